"""Other sites in the same browser cannot use the server, by no name and from no page."""

import base64
import hashlib
import re
import socket

import pytest
from starlette.datastructures import Headers

from multiguard.certify import TopK
from multiguard.serve import ServeConfig, access
from multiguard.serve.access import Access
from multiguard.serve.live_page import make_page
from multiguard.smooth import Smoother
from multiguard.smooth.config import PredictConfig
from multiguard.smooth.predictor import Predictor

ACCESS = Access(None, ["mybox"])
OURS = ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000", "192.168.0.7:80", "mybox:8000"]
THEIRS = ["evil.example", "127.0.0.1.evil.example:8000", "localhost.evil.example", "mybox.evil.example", "", "[::1"]


@pytest.mark.parametrize("host", OURS)
def test_own_hosts(host):
    """The server answers to IP addresses and its own names."""
    assert ACCESS.refusal("GET", Headers({"host": host})) is None


@pytest.mark.parametrize("host", THEIRS)
def test_rebound_hosts(host):
    """A name that another name server decides is refused, also for pages: it may point here only for now."""
    assert "own name only" in ACCESS.refusal("GET", Headers({"host": host}))
    assert "own name only" in ACCESS.refusal("POST", Headers({"host": host, "origin": f"http://{host}"}))


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),  # a program
        ({"origin": "http://localhost:8000"}, True),
        ({"origin": "http://localhost:8000", "sec-fetch-site": "same-origin"}, True),
        ({"origin": "http://localhost:9000"}, False),
        ({"origin": "http://127.0.0.1:8000"}, False),
        ({"origin": "https://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://["}, False),
        ({"origin": "http://localhost:8000@evil.example"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
    ],
)
def test_origins(headers, allowed):
    """A request that changes something comes from a page of this server, or from no page."""
    assert (ACCESS.refusal("POST", Headers({"host": "localhost:8000", **headers})) is None) == allowed


def test_refused_post(running, orange):
    """Over HTTP such a request is 403, and no work begins."""
    reply = running.client.predict(orange, Origin="https://evil.example")
    assert (reply.status, "another site" in reply.json["error"]) == (403, True)
    assert len(running.service.worker.tasks) == 0


def test_headers(running):
    """Only the page's own script and style run; no other site may frame or read it, and it fetches nothing else."""
    reply = running.client.ask("GET", "/")
    text, policy = reply.body.decode(), reply.headers["content-security-policy"]
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert re.findall(r"""(?:src|href)=["'](?!data:|#)[^"']*""", text) == []
    assert not re.search(r"\son\w+=|style=", text)
    for other in ("/", "/api/model", "/nothing"):
        headers = running.client.ask("GET", other).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert "default-src 'none'" in headers["content-security-policy"]


def test_hostile_names():
    """No name of a label or a model becomes part of the page's code."""
    bad = "</script><script>alert(1)</script>"
    smoother = Smoother(lambda x: x.mean((2, 3)), 0.5, labels=[bad, "b", "c"], image_size=(8, 8), device="cpu")
    predictor = Predictor(smoother, TopK(1, 1), 8, f'"><img src=x onerror=alert(2)>{bad}', PredictConfig())
    text, _ = make_page(predictor, ServeConfig(), ((bad, b"", "data:,"),))
    assert "alert(1)</script>" not in text
    assert "<img src=x" not in text
    assert text.count("<script") == 2


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: 127"])
def test_silent_connection(running, monkeypatch, sent):
    """A connection that sends no complete request in time is closed, and a later one is served."""
    monkeypatch.setattr(access, "FIRST_REQUEST_SECONDS", 0.2)
    host, _, port = running.client.host.partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as silent:
        silent.sendall(sent)
        assert silent.recv(1) == b"", "the server closes it"
    assert running.client.ask("GET", "/").status == 200
