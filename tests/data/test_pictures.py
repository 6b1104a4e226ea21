import numpy as np
import pytest
from PIL import Image

from multiguard.data import open_images
from multiguard.errors import DataError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / ".cache").mkdir()
    for name in ("b/deep/z.JPG", "a.png", "b/größe-日本.webp", ".hidden.png", ".cache/x.png"):
        Image.new("RGB", (6, 4), (255, 0, 0)).save(tmp_path / name)
    (tmp_path / "labels.csv").write_text("file,labels\n")
    return tmp_path


def test_a_folder_gives_every_image_below_it_in_order_and_nothing_else(folder):
    images = open_images(folder, ["cat", "dog"], size=8)
    assert list(images.ids) == ["a.png", "b/deep/z.JPG", "b/größe-日本.webp"]
    assert images.label_names == ("cat", "dog")
    assert images.name == f"images:{folder.name}"
    sample = images[0]
    assert (sample.id, sample.labels, sample.image.shape, sample.image.dtype) == ("a.png", (), (3, 8, 8), np.uint8)
    assert list(images.labels) == [()] * 3


def test_files_are_taken_as_they_are_given_and_named_by_their_names(folder):
    Image.new("RGB", (6, 4)).save(folder / "no suffix", format="png")
    images = open_images([folder / "no suffix", str(folder / "b/deep/z.JPG")], ["cat"])
    assert list(images.ids) == ["no suffix", "z.JPG"]
    assert images[1].image.shape == (3, 4, 6)


def test_two_files_of_one_name_would_share_their_noise(folder):
    Image.new("RGB", (6, 4)).save(folder / "b" / "a.png")
    with pytest.raises(DataError, match=r"2 of the files are named 'a\.png'.*folder instead"):
        open_images([folder / "a.png", folder / "b" / "a.png"], ["cat"])
    assert len(open_images(folder, ["cat"])) == 4


def test_a_folder_without_images_is_said(tmp_path):
    with pytest.raises(DataError, match=r"no image in it or below it; expected files ending in \.bmp"):
        open_images(tmp_path, ["cat"])
    with pytest.raises(DataError, match="no such folder"):
        open_images(tmp_path / "none", ["cat"])
    with pytest.raises(DataError, match="no image is listed"):
        open_images([], ["cat"])


def test_an_unreadable_image_is_named_and_never_skipped(folder):
    (folder / "broken.jpg").write_bytes(b"not an image")
    images = open_images(folder, ["cat"])
    with pytest.raises(DataError, match=r"broken\.jpg: not a readable image"):
        images[list(images.ids).index("broken.jpg")]
    with pytest.raises(DataError, match=r"none\.jpg: no such image"):
        open_images([folder / "none.jpg"], ["cat"])[0]
