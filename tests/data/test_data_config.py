"""The images of a config open alike from anywhere, and a damaged record of them raises an error."""

import json
from pathlib import Path

import pytest

from multiguard.data import DataConfig
from multiguard.errors import DataError, InvalidInputError
from multiguard.io.config import from_tree, to_tree


def test_record(tmp_path, monkeypatch):
    """A record opens from any working directory, with the labels in the order of the classifier."""
    (tmp_path / "labels.csv").write_text("file,labels\na.png,x\nb.png,y\nc.png,\n")
    monkeypatch.chdir(tmp_path.parent)
    data = DataConfig("folder", Path(tmp_path.name), images=2, seed=1, table=Path(tmp_path.name) / "labels.csv")
    stored = json.loads(json.dumps(to_tree(data.absolute())))
    monkeypatch.chdir("/")
    again = from_tree(DataConfig, stored).open(label_names=("y", "x"))
    assert (len(again), again.name) == (2, f"folder {tmp_path.name}, 2 random images (seed 1)")
    assert tuple(again.label_names) == ("y", "x")


def test_size():
    """The size that is given comes before that of the config."""
    data = DataConfig("digits", images=2, size=16)
    assert [each[0].image.shape for each in (data.open(), data.open(24))] == [(3, 16, 16), (3, 24, 24)]


@pytest.mark.parametrize("change", [{"name": None}, {"seed": "0"}, {"size": 1.5}, {"root": 3}, {"more": 1}])
def test_damaged_record(change):
    """The message names the damaged key."""
    with pytest.raises(InvalidInputError, match=f"data.{next(iter(change))}"):
        from_tree(DataConfig, {**to_tree(DataConfig("digits")), **change}, "data")


@pytest.mark.parametrize(
    ("more", "names", "message"),
    [
        ({"root": "x", "split": "val", "separator": ";"}, ("cat",), "split given, but .* no CSV"),
        ({"root": "x"}, None, "neither the images nor the model name any label"),
        ({}, ("cat",), "no root folder given"),
    ],
)
def test_unlisted_images(more, names, message):
    """Images without a CSV take no options of one, and the labels of the classifier."""
    with pytest.raises(DataError, match=message):
        DataConfig("folder", **more, labelled=False).open(label_names=names)
