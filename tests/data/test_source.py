"""A source of images is stored and opens again to the same images."""

import json
from pathlib import Path

import pytest

from multiguard.data import Source
from multiguard.errors import DataError


def test_stored_source(tmp_path, monkeypatch):
    """A stored source opens from any working directory."""
    (tmp_path / "labels.csv").write_text("file,labels\na.png,x\nb.png,y\nc.png,\n")
    monkeypatch.chdir(tmp_path.parent)
    options = {"table": Path(tmp_path.name) / "labels.csv", "label_names": ("y", "x")}
    source = Source("folder", Path(tmp_path.name), images=2, seed=1, options=options)
    stored = json.loads(json.dumps(source.as_dict()))
    monkeypatch.chdir("/")
    again = Source.from_dict(stored).open()
    assert len(again) == 2
    assert again.name == f"folder {tmp_path.name}, 2 random images (seed 1)"
    assert tuple(again.label_names) == ("y", "x")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"data": None}, "data"),
        ({"seed": "0"}, "seed"),
        ({"options": []}, "options"),
        ({"size": 1.5}, "size"),
        ({"options": {"label_names": [1]}}, "label_names"),
        ({"root": 3}, "root"),
        ({"more": 1}, "more"),
    ],
)
def test_damaged_source(change, field):
    """Anything but a stored source is refused."""
    with pytest.raises(DataError, match=f"not a stored source of images.*{field}"):
        Source.from_dict({**Source("digits").as_dict(), **change})


def test_text_that_is_not_utf8():
    """A text that no file can hold is refused like any other."""
    with pytest.raises(DataError, match="not a stored source of images"):
        Source.from_dict("\ud800")
