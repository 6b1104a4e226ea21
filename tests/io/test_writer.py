"""A result is replaced as a whole, and only where multiguard wrote what is there."""

import os

import pytest

from multiguard.errors import InvalidInputError
from multiguard.io.writer import staged


def write(home, text, *, followers=("a", "b"), force=False, names=()):
    """Write a head and followers in two folders; whether there was anything to do."""
    more = {"folders": ["more"], "names": names, "force": force}
    with staged(home / "head", {"text": text}, kind="a text", **more) as stage:
        if stage is None:
            return False
        (stage / "more").mkdir()
        (stage / "head").write_text(text)
        for name in followers:
            (stage / "more" / name).write_text(f"{text} {name}")
    return True


def files(home):
    known = home.rglob("*")
    return {path.relative_to(home).as_posix(): path.read_text() for path in known if path.is_file()}


def texts(home):
    return {name: text for name, text in files(home).items() if not name.startswith(".")}


def complete(text):
    return {"head": text, "more/a": f"{text} a", "more/b": f"{text} b"}


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


def test_no_request(tmp_path):
    """A result of no known request is never found complete."""
    for force in (False, True):
        with staged(tmp_path / "head", None, kind="a text", force=force) as stage:
            (stage / "head").touch()
    with pytest.raises(InvalidInputError, match="made with other settings"), staged(tmp_path / "head", None, kind="a"):
        pass


def test_failure(tmp_path):
    """A block that fails leaves everything as it was."""
    write(tmp_path, "one")
    before = files(tmp_path)
    with pytest.raises(TypeError), staged(tmp_path / "head", {}, kind="a text", force=True) as stage:
        (stage / "head").write_text(None)
    assert files(tmp_path) == before


@pytest.mark.parametrize("name", ["head", "more/a"])
def test_missing_file(tmp_path, name):
    """A file that is gone is made again by the same request."""
    write(tmp_path, "one")
    (tmp_path / name).unlink()
    assert write(tmp_path, "one")
    assert texts(tmp_path) == complete("one")


@pytest.mark.parametrize("name", ["head", "more/a"])
def test_edited_file(tmp_path, name):
    """An edited file is not ours: it stays, and so does everything else."""
    write(tmp_path, "one")
    (tmp_path / name).write_text("edited")
    before = files(tmp_path)
    with pytest.raises(InvalidInputError, match="is not as multiguard wrote it, so it is not replaced"):
        write(tmp_path, "two", force=True)
    assert files(tmp_path) == before


def test_foreign_folder(tmp_path):
    """A folder that holds files of others is written to only by force, and they stay."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "photo").write_text("mine")
    with pytest.raises(InvalidInputError, match="more holds photo, which is not of this command; --force writes"):
        write(tmp_path, "one")
    assert texts(tmp_path) == {"more/photo": "mine"}
    write(tmp_path, "one", force=True)
    assert not write(tmp_path, "one")
    assert texts(tmp_path) == complete("one") | {"more/photo": "mine"}


def make_pipe(_, link):
    os.mkfifo(link)


def make_folder(_, link):
    link.mkdir()


@pytest.mark.parametrize("make", [os.symlink, os.link, make_pipe, make_folder])
@pytest.mark.parametrize("name", ["head", "more/a", ".head.json"])
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


def test_linked_folder(tmp_path):
    """A folder inside that is a link is not written to; the folder of the head may be one."""
    outside, home = tmp_path / "outside", tmp_path / "home"
    outside.mkdir()
    home.symlink_to(outside, target_is_directory=True)
    assert write(home, "one")
    (tmp_path / "elsewhere").mkdir()
    other = tmp_path / "other"
    other.mkdir()
    (other / "more").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInputError, match="is not as multiguard wrote it"):
        write(other, "one", force=True)
    assert not [*(tmp_path / "elsewhere").iterdir()]


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
    record.write_text(record.read_text().replace('"more/a"', '"../mine"'))
    (home / "more" / "a").unlink()
    write(home, "two", force=True)
    assert (tmp_path / "mine").read_text() == "one a"


def test_damaged_record(tmp_path):
    """Without its record no file is known to be ours."""
    write(tmp_path, "one")
    (tmp_path / ".head.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="head is not as multiguard wrote it"):
        write(tmp_path, "two", force=True)
