"""Every kind of bad image is refused with its name, or decoded by a stated rule. None is guessed, none hangs."""

import os
import resource
import warnings

import numpy as np
import pytest
from image_files import PIXELS, encoded, png
from PIL import Image

from multiguard.data import open_dataset, open_images
from multiguard.data.image import MAX_PIXELS, read_image
from multiguard.errors import DataError, ImageError

AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0

CUTS = {
    "jpeg": {"kind": "jpeg"},
    "progressive": {"kind": "jpeg", "progressive": True},
    "png": {"kind": "png"},
    "gif": {"kind": "gif"},
    "webp": {"kind": "webp", "lossless": True},
    "bmp": {"kind": "bmp"},
    "tiff": {"kind": "tiff"},
    "ppm": {"kind": "ppm"},
}


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("name", CUTS)
def test_truncated_file(tmp_path, name):
    """A truncated file is refused, unless all its pixels are there."""
    content, path = encoded(**CUTS[name]), tmp_path / "cut.jpg"
    path.write_bytes(content)
    complete = read_image(path)
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        found = refused_or_read(path)
        if isinstance(found, str):
            assert found.startswith(f"{path}: not a readable image (")
        else:
            np.testing.assert_array_equal(found, complete)
            assert length > 0.9 * len(content)


def refused_or_read(path):
    try:
        return read_image(path)
    except DataError as error:
        return str(error)


@pytest.mark.parametrize("times", [1, 2, 40])
def test_too_many_pixels(tmp_path, times):
    """Too many pixels are refused before one is decoded."""
    path = tmp_path / "bomb.png"
    path.write_bytes(png(10_000, times * 8_948, 8, 2, b"no pixels at all"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DataError, match=r"bomb\.png: not a readable image \(.*89,478,485.* allowed; shrink it\)"):
            read_image(path, 8)
    assert MAX_PIXELS == Image.MAX_IMAGE_PIXELS
    path.write_bytes(png(10_000, 8_947, 8, 2, b"no pixels at all"))
    with pytest.raises(DataError, match=r"bomb\.png: not a readable image \((?!.*allowed)"):
        read_image(path, 8)


@pytest.mark.parametrize("name", ["a.gif", "a.png", "a.webp", "a.tiff"])
def test_several_frames(tmp_path, name):
    """Several frames are refused, one frame is not."""
    first, second = Image.fromarray(PIXELS), Image.fromarray(255 - PIXELS)
    first.save(tmp_path / name, save_all=True, append_images=[second])
    with pytest.raises(DataError, match="several frames or pages, and which one is meant is unknown"):
        read_image(tmp_path / name)
    first.save(tmp_path / f"one-{name}")
    assert read_image(tmp_path / f"one-{name}").shape == (3, 12, 10)


@pytest.mark.parametrize(
    ("pixels", "message"), [(np.int32([[0, 200]]), "32-bit integers"), (np.ones((4, 4), np.float32), "floating-point")]
)
def test_pixels_without_white(tmp_path, pixels, message):
    """32-bit integers and floating-point pixels have no fixed white."""
    Image.fromarray(pixels).save(tmp_path / "a.tiff")
    with pytest.raises(DataError, match=rf"a\.tiff: not a readable image \({message}.* no fixed white"):
        read_image(tmp_path / "a.tiff")


def folder_with_everything(root):
    """A folder with every kind of entry that has the suffix of an image."""
    home = root / "images"
    (home / "inner").mkdir(parents=True)
    for name in ("good.png", "inner/other.png"):
        Image.fromarray(PIXELS).save(home / name)
    Image.fromarray(PIXELS).save(root / "outside.png")
    (home / "in.png").symlink_to("inner/other.png")
    (home / "out.png").symlink_to(root / "outside.png")
    (home / "lost.png").symlink_to("nowhere.png")
    (home / "circle.png").symlink_to("circle.png")
    (home / "folder.png").mkdir()
    os.mkfifo(home / "pipe.png")
    return home


BAD = {
    "../outside.png": "outside the image folder",
    "out.png": "outside the image folder",
    "lost.png": "the link points to no file",
    "circle.png": "not a readable image (Too many levels of symbolic links)",
    "folder.png": "a folder, not an image",
    "pipe.png": "a pipe, socket or device",
    "good.png/below.png": "no such image",
    "x" * 300 + ".png": "not a readable image (File name too long)",
}

GOOD = ("good.png", "in.png", "inner/other.png")


def unreadable(dataset):
    """The ids of the images that cannot be read, with the reasons."""
    reasons = {}
    for index, image_id in enumerate(dataset.ids):
        try:
            dataset[index]
        except ImageError as error:
            reasons[image_id] = error.reason
    return reasons


def test_bad_entries(tmp_path):
    """Every entry that is not an image of the folder raises an error when it is read; none is waited for."""
    home = folder_with_everything(tmp_path)
    rows = "".join(f"{name},cat\n" for name in (*GOOD, *BAD))
    (home / "labels.csv").write_text(f"file,labels\n{rows}")
    reasons = unreadable(open_dataset("folder", root=home, split="all", size=8))
    assert list(reasons) == list(BAD)
    assert all(reason in reasons[name] for name, reason in BAD.items())


def test_bad_entries_without_table(tmp_path):
    """A folder without a table leaves out no file with the suffix of an image."""
    images = open_images(folder_with_everything(tmp_path), ["cat"], size=8)
    assert set(unreadable(images)) == {"out.png", "lost.png", "circle.png", "pipe.png"}
    assert len(images.origins) == len(images)


def test_linked_folder(tmp_path):
    """The folder itself may be a link, and named files may be anywhere."""
    home = folder_with_everything(tmp_path)
    (tmp_path / "link").symlink_to(home)
    images = open_images(tmp_path / "link", ["cat"])
    assert images[list(images.ids).index("in.png")].image.shape == (3, 12, 10)
    assert open_images([home / "out.png"], ["cat"])[0].image.shape == (3, 12, 10)


def test_missing_folder(tmp_path):
    """A missing folder is not an image's fault and raises another error."""
    home = folder_with_everything(tmp_path)
    images = open_images(home, ["cat"])
    with pytest.raises(ImageError, match=r"lost\.png: the link") as raised:
        images[list(images.ids).index("lost.png")]
    assert raised.value.reason == "the link points to no file; check the root folder and the list of files"
    home.rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="images: no such folder of images") as raised:
        images[0]
    assert not isinstance(raised.value, ImageError)


def test_too_many_open_files(tmp_path):
    """A system that cannot open more files is not an image failure."""
    (tmp_path / "good.png").write_bytes(encoded("png"))
    read_image(tmp_path / "good.png")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(tmp_path, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(DataError, match=r"good\.png: cannot be read now \(Too many open files\)") as raised:
            read_image(tmp_path / "good.png")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not isinstance(raised.value, ImageError)


@pytest.mark.skipif(AS_ROOT, reason="root may read every file")
def test_unreadable_file(tmp_path):
    """A file without read permission is named."""
    (tmp_path / "secret.png").write_bytes(encoded("png"))
    (tmp_path / "secret.png").chmod(0)
    with pytest.raises(DataError, match=r"secret\.png: not a readable image \(Permission denied\)"):
        read_image(tmp_path / "secret.png")
