import numpy as np
import pytest
from PIL import Image

from multiguard.data import open_pictures
from multiguard.errors import DataError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / ".cache").mkdir()
    for name in ("b/deep/z.JPG", "a.png", "b/größe-日本.webp", ".hidden.png", ".cache/x.png"):
        Image.new("RGB", (6, 4), (255, 0, 0)).save(tmp_path / name)
    (tmp_path / "labels.csv").write_text("file,labels\n")
    return tmp_path


def test_a_folder_gives_every_picture_below_it_in_order_and_nothing_else(folder):
    pictures = open_pictures(folder, ["cat", "dog"], size=8)
    assert list(pictures.ids) == ["a.png", "b/deep/z.JPG", "b/größe-日本.webp"]
    assert pictures.label_names == ("cat", "dog")
    assert pictures.name == f"pictures:{folder.name}"
    sample = pictures[0]
    assert (sample.id, sample.labels, sample.image.shape, sample.image.dtype) == ("a.png", (), (3, 8, 8), np.uint8)
    assert list(pictures.labels) == [()] * 3


def test_files_are_taken_as_they_are_given_and_named_by_their_names(folder):
    Image.new("RGB", (6, 4)).save(folder / "no suffix", format="png")
    pictures = open_pictures([folder / "no suffix", str(folder / "b/deep/z.JPG")], ["cat"])
    assert list(pictures.ids) == ["no suffix", "z.JPG"]
    assert pictures[1].image.shape == (3, 4, 6)


def test_two_files_of_one_name_would_share_their_noise(folder):
    Image.new("RGB", (6, 4)).save(folder / "b" / "a.png")
    with pytest.raises(DataError, match=r"2 of the files are named 'a\.png'.*folder instead"):
        open_pictures([folder / "a.png", folder / "b" / "a.png"], ["cat"])
    assert len(open_pictures(folder, ["cat"])) == 4


def test_a_folder_without_pictures_is_said(tmp_path):
    with pytest.raises(DataError, match=r"no picture in it or below it; expected files ending in \.bmp"):
        open_pictures(tmp_path, ["cat"])
    with pytest.raises(DataError, match="no such folder"):
        open_pictures(tmp_path / "none", ["cat"])
    with pytest.raises(DataError, match="no picture is listed"):
        open_pictures([], ["cat"])


def test_an_unreadable_picture_is_named_and_never_skipped(folder):
    (folder / "broken.jpg").write_bytes(b"not a picture")
    pictures = open_pictures(folder, ["cat"])
    with pytest.raises(DataError, match=r"broken\.jpg: not a readable picture"):
        pictures[list(pictures.ids).index("broken.jpg")]
    with pytest.raises(DataError, match=r"none\.jpg: no such picture"):
        open_pictures([folder / "none.jpg"], ["cat"])[0]
