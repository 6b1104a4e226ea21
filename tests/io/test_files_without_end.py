"""A pipe, a device, or a file of any length, in place of any file that is read: refused by name, without waiting."""

import os
import signal
from contextlib import contextmanager

import pytest
from tests.evaluate.votes_cases import random_votes

from multiguard.data import DataConfig, open_dataset, read_image
from multiguard.errors import DataError, MultiGuardError
from multiguard.evaluate import read_attacks, read_calibration, read_certificates
from multiguard.io.config import from_tree, to_tree
from multiguard.io.files import mentions, read_lines, read_regular
from multiguard.run.arms import read_record
from multiguard.run.recipe import read_recipe
from multiguard.votes import read_votes
from multiguard.votes.folder import check_votes_folder


@contextmanager
def limit(seconds=20):
    """A wait without end becomes an error."""

    def stop(number, frame):
        raise AssertionError("it waits for a file that never ends")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def voc(root):
    return open_dataset("voc2007", root=root, split="test")


READERS = {
    "manifest.json": read_votes,
    "certificates.parquet": read_certificates,
    "attack.parquet": read_attacks,
    "calibration.json": lambda root: read_calibration(root / "calibration.json"),
    "run.json": read_record,
    "recipe.yaml": lambda root: read_recipe(root / "recipe.yaml"),
    "labels.csv": lambda root: open_dataset("folder", root=root, split="all", table=root / "labels.csv"),
    "annotations/instances_val2014.json": lambda root: open_dataset("coco", root=root, split="val2014"),
    "ImageSets/Main/test.txt": voc,
    "image.png": lambda root: read_image(root / "image.png"),
    "source.json": lambda root: check_votes_folder(root, force=True),
}


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", READERS)
def test_endless_file(tmp_path, name, kind):
    """Each reader refuses it in its own words."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with limit(), pytest.raises(MultiGuardError, match=path.name):
        READERS[name](tmp_path)


def test_endless_shard(tmp_path):
    """A shard, too."""
    random_votes(tmp_path / "votes", images=3, draws=5)
    path = tmp_path / "votes/votes-00000.parquet"
    path.unlink()
    os.mkfifo(path)
    with limit(), pytest.raises(MultiGuardError, match="not a regular file"):
        read_votes(tmp_path / "votes")


def test_growing_file(tmp_path):
    """A file that holds more than it says, as the kernel's do, and one that is too long, are refused."""
    with pytest.raises(OSError, match="grows while it is read"):
        read_regular(type(tmp_path)("/proc/self/status"))
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    with limit(), pytest.raises(OSError, match="more than the 10 allowed"):
        read_regular(tmp_path / "large", 10)


def test_mentions(tmp_path, monkeypatch):
    """A word is found wherever blocks divide it, and never through a link."""
    monkeypatch.setattr("multiguard.io.files._BLOCK", 7)
    for start in range(20):
        (tmp_path / "file").write_bytes(b"." * start + b'"word"' + b"." * 9)
        assert mentions(tmp_path / "file", "word")
    assert not mentions(tmp_path / "file", "other")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert not mentions(tmp_path / "link", "word")


@pytest.mark.parametrize(
    "forged",
    [
        {"table": "/dev/zero"},
        {"size": 10**9},
        {"size": 10**400},
        {"images": 10**400},
        {"seed": 10**400, "images": 1},
        {"size": -1},
    ],
)
def test_forged_source(tmp_path, forged):
    """Options of a stranger's folder neither hang nor fill memory."""
    stored = {**to_tree(DataConfig("folder", tmp_path, "all")), **forged}
    (tmp_path / "labels.csv").write_text("file,labels\na.png,x\n")
    try:
        with limit():
            from_tree(DataConfig, stored).open()
    except MultiGuardError:
        return
    assert {*forged} <= {"images", "seed"}


def test_read_lines(tmp_path):
    """Blank lines are left out."""
    (tmp_path / "names.txt").write_text("cat\n\n dog \n")
    assert read_lines(tmp_path / "names.txt") == ["cat", "dog"]


def test_list_without_end(tmp_path, monkeypatch):
    """A pipe, a device and a file that is too large are refused."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "large").write_text("12345\n")
    monkeypatch.setattr("multiguard.io.files._MOST_LIST", 5)
    for name, reason in (
        ("pipe", "not a regular"),
        ("link", "not a regular"),
        ("large", "6 bytes are more than the 5"),
    ):
        with pytest.raises(DataError, match=reason):
            read_lines(tmp_path / name)
