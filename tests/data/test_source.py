"""A source of images is written down and opens again to the same images."""

import json
from pathlib import Path

import pytest

from multiguard.data import Source
from multiguard.data.catalog import voting_split
from multiguard.errors import DataError


def folder(root, header, rows):
    (root / "labels.csv").write_text("\n".join([header, *rows]))
    return root


def test_it_opens_again_from_anywhere(tmp_path, monkeypatch):
    folder(tmp_path, "file,labels", ["a.png,x", "b.png,y", "c.png,"])
    monkeypatch.chdir(tmp_path.parent)
    options = {"table": Path(tmp_path.name) / "labels.csv", "label_names": ("y", "x")}
    source = Source("folder", Path(tmp_path.name), images=2, seed=1, options=options)
    stored = json.loads(json.dumps(source.as_dict()))
    monkeypatch.chdir("/")
    again = Source.from_dict(stored).open()
    assert len(again) == 2
    assert again.name.endswith("[images=2,seed=1]")
    assert tuple(again.label_names) == ("y", "x")


@pytest.mark.parametrize(
    ("change", "place"),
    [({"data": None}, "data"), ({"seed": "0"}, "seed"), ({"options": []}, "options"), ({"size": 1.5}, "size")],
)
def test_what_is_no_source_is_refused(change, place):
    with pytest.raises(DataError, match=f"{place} is"):
        Source.from_dict({**Source("digits").as_dict(), **change})


@pytest.mark.parametrize(
    ("name", "split"), [("digits", "test"), ("voc2007", "test"), ("coco", "val"), ("nuswide", "val")]
)
def test_each_dataset_has_its_usual_split_to_vote_on(name, split):
    assert voting_split(name) == split


def test_a_table_of_ones_own_is_voted_on_where_it_says_test(tmp_path):
    assert voting_split("folder", folder(tmp_path, "file,labels", ["a.png,x"])) == "all"
    folder(tmp_path, "file,labels,split", ["a.png,x,train", "b.png,x,test"])
    assert voting_split("folder", tmp_path) == "test"
    folder(tmp_path, "file,labels,split", ["a.png,x,train", "b.png,x,val"])
    with pytest.raises(DataError, match="none is called test; the table's are train, val"):
        voting_split("folder", tmp_path)
