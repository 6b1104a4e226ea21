"""`multiguard serve` as a process: it starts, says where, ends with Ctrl-C; mistakes are one line."""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import uuid

import pytest
from tests.pipeline.tiny_run import command
from tests.serve.client import Client
from tests.serve.colours import encode

MODEL = """
import torch

def net(images):
    return images.mean(dim=(2, 3))
"""
OPTIONS = ["--output", "probabilities", "--sigma", "0.5", "--size", "8", "--k", "1", "--port", "0"]


@pytest.fixture
def model(tmp_path):
    name = f"colours_{uuid.uuid4().hex}"  # a module is imported once per process
    (tmp_path / f"{name}.py").write_text(MODEL)
    (tmp_path / "labels.txt").write_text("red\ngreen\nblue\n")
    return ["--model", f"{tmp_path}/{name}.py:net", "--labels", f"{tmp_path}/labels.txt"]


def test_process(model):
    """The page is served on this machine alone; Ctrl-C ends the work that runs, and the process with code 0."""
    asked = [sys.executable, "-m", "multiguard", "serve", *model, *OPTIONS]
    started = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        line = started.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
        client = Client(address)
        assert b"Which labels provably stay" in client.ask("GET", "/").body
        stream = client.stream("/api/predict?draws=1000000", encode())
        assert next(stream)[0] == "run"
        started.send_signal(signal.SIGINT)
        rest = []
        with contextlib.suppress(http.client.IncompleteRead):
            rest += stream
        assert ("error", {"error": "the server is stopping", "status": 503}) in rest
        said, complained = started.communicate(timeout=20)
        assert (started.returncode, said, complained) == (0, "stopped\n", "")
    finally:
        started.kill()


def test_taken_port(model):
    """A port in use is said before the model is loaded."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, said = command("serve", *model, *OPTIONS[:-1], port)
    assert (code, said.count("\n")) == (2, 1)
    assert f"--port {port}: cannot listen there" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "draws=0"], "draws is 0; expected a whole number of 1 or more"),
        (["--examples", "nowhere"], "nowhere: no such folder; give a folder of images"),
        (["--host", "no such host"], "cannot listen there"),
        (["--set", "threshold=0.5"], "threshold belongs to the threshold rule"),
    ],
)
def test_mistakes(model, options, words):
    """Mistakes are one line that names the option."""
    code, _, said = command("serve", *model, *OPTIONS, *options)
    assert (code, said.count("\n")) == (2, 1)
    assert words in said


def test_any_size(model):
    """A model that takes images of any size needs to be told one."""
    options = [*OPTIONS[:4], *OPTIONS[6:]]
    code, _, said = command("serve", *model, *options)
    assert (code, "give --size, such as 224" in said) == (2, True)


WITHOUT_STARLETTE = """
import sys
sys.modules["starlette"] = sys.modules["uvicorn"] = None
from multiguard.cli.main import run
sys.argv = ["multiguard", *sys.argv[1:]]
run()
"""


def test_missing_extra(model):
    """Where the extra is not installed, the command says how to install it."""
    asked = [sys.executable, "-c", WITHOUT_STARLETTE, "serve", *model, *OPTIONS]
    done = subprocess.run(asked, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"multiguard: serve needs \w+: pip install 'multiguard\[serve\]'\n", done.stderr)
