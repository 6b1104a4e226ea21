"""`multiguard doctor`: facts for a bug report, and the usual causes found by itself."""

import errno
import json
import shutil
import sys
from collections import namedtuple

import pytest
import torch
from tests.pipeline.tiny_run import command

from multiguard.io import lock
from multiguard.pipeline import diagnosis
from multiguard.version import __version__


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    """A machine without other work."""
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


def doctor(*arguments):
    code, out, err = command("doctor", *arguments, "--json")
    assert not err
    found = json.loads(out)
    assert code == (1 if found["problems"] else 0)
    return found["facts"], found["problems"]


def test_facts(tmp_path):
    """A report names versions, device, precision, space and locks."""
    (tmp_path / "run.json").touch()
    facts, _ = doctor(tmp_path)
    assert facts["multiguard"] == __version__
    assert f"torch {torch.__version__.split('+')[0]}" in facts["packages"]
    assert "tf32_matmul False" in facts["precision"]
    assert (facts["locks"], facts["content"]) == ("work", "a run")
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_text():
    """Without --json each fact has a line."""
    code, out, _ = command("doctor")
    assert code in (0, 1)
    assert out.startswith(f"multiguard       {__version__}\n")


def test_no_locks(tmp_path, monkeypatch):
    """A file system without locks is named."""

    def refuse(handle):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(lock, "_lock", refuse)
    facts, problems = doctor(tmp_path)
    assert facts["locks"] == "not supported"
    assert any("file system without locks" in problem for problem in problems)


def test_full_disk(tmp_path, monkeypatch):
    """A disk that is nearly full is named, for temporary files and for the folder."""
    Usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 40, 1 << 40, 1 << 20))
    _, problems = doctor(tmp_path)
    assert sum("only 0.0 GiB are free" in problem for problem in problems) == 2


def test_gpu_causes(monkeypatch):
    """A CUDA build without a GPU, and a GPU beside a CPU build, are named."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert any("built for CUDA 12.8 and finds no GPU" in problem for problem in doctor()[1])
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(diagnosis, "_GPU_FILES", ("/dev/null",))
    assert any("torch is a CPU build" in problem for problem in doctor()[1])


def test_threads(monkeypatch):
    """More threads than cores are named with the number to set."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2 * diagnosis.usable_cores())
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert any("set OMP_NUM_THREADS to" in problem for problem in doctor()[1])


def test_broken_torchvision(monkeypatch, tmp_path):
    """A torchvision that was built for another torch is named, whatever it raises."""
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(str(tmp_path))
    facts, problems = doctor()
    assert facts["torchvision"] == "cannot be imported: operator torchvision::nms does not exist"
    assert any("built for another torch" in problem for problem in problems)


def test_missing_folder(tmp_path):
    """A folder that is not there is a finding."""
    assert f"{tmp_path / 'none'} is not a folder; check the path" in doctor(tmp_path / "none")[1]
