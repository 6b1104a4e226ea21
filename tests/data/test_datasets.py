"""Datasets by name, and their default splits."""

import re

import pytest

from multiguard.data import DigitsDataset, load_pixels, open_dataset, subset
from multiguard.data.config import default_split, validation_split
from multiguard.errors import DataError, InvalidInputError


def test_open_dataset(tmp_path):
    """Unknown names, missing roots and unknown options are refused."""
    assert len(open_dataset("digits", split="test", images=7, seed=2)) == 7
    with pytest.raises(DataError, match="unknown dataset 'coc': did you mean 'coco'"):
        open_dataset("coc", split="val")
    with pytest.raises(DataError, match="coco: no root folder given"):
        open_dataset("coco", split="val")
    with pytest.raises(DataError, match="unknown option 'difficulty': did you mean 'difficult'"):
        open_dataset("voc2007", root=tmp_path, split="val", difficulty=True)


def test_impossible_numbers():
    """Negative seeds and sizes, and no workers at all, are refused."""
    dataset = DigitsDataset(images=10)
    with pytest.raises(DataError, match="the seed is -1"):
        subset(dataset, 5, seed=-1)
    with pytest.raises(DataError, match="the seed is -1"):
        DigitsDataset(seed=-1)
    with pytest.raises(InvalidInputError, match="workers is 0"):
        load_pixels(dataset, workers=0)
    for size in (-3, (32, 32), "32"):
        with pytest.raises(DataError, match=rf"the size is {re.escape(repr(size))}; give one number of 1 to"):
            open_dataset("digits", split="test", size=size)


def folder(root, header, rows):
    (root / "labels.csv").write_text("\n".join([header, *rows]))
    return root


def test_default_split_of_table(tmp_path):
    """The split of a table to vote on is the one called test."""
    assert default_split("folder", "test", folder(tmp_path, "file,labels", ["a.png,x"])) == "all"
    folder(tmp_path, "file,labels,split", ["a.png,x,train", "b.png,x,test"])
    assert default_split("folder", "test", tmp_path) == "test"
    folder(tmp_path, "file,labels,split", ["a.png,x,train", "b.png,x,val"])
    with pytest.raises(DataError, match="none is called test; the table has train, val"):
        default_split("folder", "test", tmp_path)


def test_default_splits_for_training(tmp_path):
    """The splits of a table decide what training and validation read."""
    folder(tmp_path, "file,labels,split", ["a.jpg,x,train", "b.jpg,y,val", "c.jpg,y,"])
    assert default_split("folder", "train", tmp_path) == "train"
    assert validation_split("folder", "train", tmp_path) == "val"
    assert validation_split("folder", "all", tmp_path) is None
    folder(tmp_path, "file,labels,split", ["a.jpg,x,train", "b.jpg,y,test"])
    assert validation_split("folder", "train", tmp_path) is None
    folder(tmp_path, "file,labels,split", ["a.jpg,x,fit", "b.jpg,y,check"])
    with pytest.raises(DataError, match="none is called train; the table has check, fit"):
        default_split("folder", "train", tmp_path)
    folder(tmp_path, "file,labels", ["a.jpg,x"])
    assert default_split("folder", "train", tmp_path) == "all"
