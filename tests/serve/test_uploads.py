"""Hostile uploads: each is refused in one line, and the server continues."""

import io
import socket
import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from tests.serve.client import until
from tests.serve.colours import encode


@pytest.fixture(autouse=True)
def continues(running, orange):
    """After whatever was sent, an image is predicted as before, and no place is lost."""
    yield
    assert running.client.predict(orange, query="?draws=1").status == 200
    assert until(lambda: running.service.worker.tasks == [])


def png_bomb(width: int, height: int) -> bytes:
    """A small PNG file that decodes to this many pixels."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = zlib.compress(bytes((width + 7) // 8 + 1) * height, 9)
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def animated() -> bytes:
    file = io.BytesIO()
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the upload is empty"),
        (b"hello", "in none of the formats"),
        (b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "in none of the formats"),
        (encode()[:50], "not a readable image"),
        (encode(size=(300, 300), kind="JPEG")[:900], "not a readable image"),
        (png_bomb(20_000, 20_000), "more than the 1,000,000 pixels allowed"),
        (png_bomb(1001, 1000), "more than the 1,000,000 allowed"),
        (animated(), "several frames"),
        (np.random.default_rng(0).bytes(5000), "in none of the formats"),
    ],
    ids=["empty", "text", "svg", "truncated-png", "truncated-jpeg", "bomb", "large", "animated", "noise"],
)
def test_bad_image(running, content, words):
    """A body that is no usable image is 422, whatever its type says."""
    reply = running.client.predict(content, kind="image/jpeg")
    text = reply.json["error"]
    assert (reply.status, words in text, "\n" in text) == (422, True, False)


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", ""])
def test_wrong_type(running, orange, kind):
    """Types that hold no image are refused, and so is a missing one."""
    reply = running.client.predict(orange, kind=kind)
    assert (reply.status, "Content-Type such as image/jpeg" in reply.json["error"]) == (415, True)


def test_large_upload(running):
    """An upload that says it is too large is refused before it is read."""
    reply = running.client.predict(bytes(300_000))
    assert (reply.status, "larger than the 200,000 bytes" in reply.json["error"]) == (413, True)


def test_large_chunks(running):
    """An upload that does not say how large it is is refused once it is too large."""
    reply = running.client.ask(
        "POST", "/api/predict", iter([*[bytes(50_000)] * 4, b"more"]), {"Content-Type": "image/png"}
    )
    assert reply.status == 413


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000,
        b"GET /" + b"a" * 100_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["header", "path", "tls", "length", "both-lengths", "two-hosts", "no-host"],
)
def test_bad_request(running, head):
    """Requests that are none, or whose head is huge, are refused with 4xx."""
    host, port = running.client.host.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(head)
        assert raw.recv(100).split()[1][:1] == b"4"


def test_half_upload(running, orange):
    """A client that goes away in the middle of its upload leaves nothing behind."""
    host, port = running.client.host.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(
            b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 9999\r\n\r\n"
        )
        raw.sendall(orange)
