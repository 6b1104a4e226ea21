"""A result is replaced as a whole, and only where multiguard wrote what is there."""

import os

import pytest

from multiguard.errors import InvalidInputError
from multiguard.io.outputs import Outputs


def write(home, text, *, followers=("a", "b"), force=False, names=()):
    """Write a head and followers in two folders; whether there was anything to do."""
    folders = (home / "more",)
    with Outputs(home / "head", "a text", {"text": text}, folders=folders, force=force, names=names) as outputs:
        if outputs.finished and not force:
            return False
        (outputs.stage(home) / "head").write_text(text)
        for name in followers:
            (outputs.stage(home / "more") / name).write_text(f"{text} {name}")
        outputs.publish()
    return True


def files(home):
    return {path.relative_to(home).as_posix(): path.read_text() for path in home.rglob("*") if path.is_file()}


def texts(home):
    return {name: text for name, text in files(home).items() if name != ".head.json"}


def test_replacement(tmp_path):
    """Another request needs force, and takes the older files away; the same one finds its work done."""
    assert write(tmp_path, "one")
    first = files(tmp_path)
    assert not write(tmp_path, "one")
    with pytest.raises(InvalidInputError, match="holds a text already, made with other settings; --force replaces"):
        write(tmp_path, "two")
    assert files(tmp_path) == first
    assert write(tmp_path, "two", followers=("b", "c"), force=True)
    assert texts(tmp_path) == {"head": "two", "more/b": "two b", "more/c": "two c"}


@pytest.mark.parametrize("name", ["head", "more/a"])
def test_missing_file(tmp_path, name):
    """A file that is gone is made again by the same request."""
    write(tmp_path, "one")
    before = files(tmp_path)
    (tmp_path / name).unlink()
    assert write(tmp_path, "one")
    assert files(tmp_path) == before


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["head", "more/a"])
def test_edited_file(tmp_path, name, force):
    """A file that somebody edited is theirs now: it stays, and so does everything else."""
    write(tmp_path, "one")
    (tmp_path / name).write_text("edited")
    before = files(tmp_path)
    with pytest.raises(InvalidInputError, match="is not as multiguard wrote it, so it is not replaced"):
        write(tmp_path, "two", force=force or name != "head")
    assert files(tmp_path) == before


def test_foreign_folder(tmp_path):
    """A folder that holds files of somebody else is written to only by force, and they stay."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "photo").write_text("mine")
    with pytest.raises(
        InvalidInputError, match="more holds photo, which is not of this command; --force writes beside"
    ):
        write(tmp_path, "one")
    assert files(tmp_path) == {"more/photo": "mine"}
    write(tmp_path, "one", force=True)
    assert not write(tmp_path, "one")
    assert texts(tmp_path) == {"head": "one", "more/a": "one a", "more/b": "one b", "more/photo": "mine"}


def make_pipe(_, link):
    os.mkfifo(link)


def make_folder(_, link):
    link.mkdir()


@pytest.mark.parametrize("make", [os.symlink, os.link, make_pipe, make_folder])
@pytest.mark.parametrize("name", ["head", "more/a", ".head.json", ".multiguard.lock"])
def test_links(tmp_path, name, make):
    """A link, a pipe or a folder in place of a file is refused, and nothing is written behind it."""
    mine, home = tmp_path / "mine", tmp_path / "home"
    mine.write_text("mine")
    (home / "more").mkdir(parents=True)
    make(mine, home / name)
    if make is os.link and name == ".head.json":
        write(home, "one", force=True)  # replaced by name: the other name keeps its content
    else:
        with pytest.raises(InvalidInputError, match=r"is a link|is not as multiguard wrote it"):
            write(home, "one", force=True)
    assert mine.read_text() == "mine"


def test_known_names(tmp_path):
    """Files that would be in the way at the end are named at the start."""
    (tmp_path / "a").write_text("mine")
    with pytest.raises(InvalidInputError, match="a is not as multiguard wrote it"):
        write(tmp_path, "one", names=["a"], force=True)


def test_forged_record(tmp_path):
    """A record that names files elsewhere makes us remove none of them."""
    home = tmp_path / "home"
    write(home, "one")
    (tmp_path / "mine").write_text("one a")  # of the same content as a file that is ours
    record = home / ".head.json"
    from multiguard.io.records import decode_checked, encode_checked

    kind = {"format": "multiguard-files", "version": 1}
    stored = decode_checked(record.read_bytes(), **kind)
    stored["files"]["../mine"] = stored["files"]["more/a"]
    record.write_bytes(encode_checked(stored, **kind))
    write(home, "two", force=True)
    assert (tmp_path / "mine").read_text() == "one a"


def test_damaged_record(tmp_path):
    """Without its record nothing is known to be ours."""
    write(tmp_path, "one")
    (tmp_path / ".head.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="head is not as multiguard wrote it"):
        write(tmp_path, "two", force=True)
