"""Every kind of bad image: refused with its name, or decoded by a stated rule. None is guessed at, none hangs."""

import io
import os
import resource
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from multiguard.cli.main import app
from multiguard.data import check_dataset, open_dataset, open_images
from multiguard.data.image import FORMATS, MOST_PIXELS, read_image
from multiguard.errors import DataError, ImageError

PIXELS = np.random.default_rng(7).integers(0, 256, (12, 10, 3), dtype=np.uint8)
AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, bits, colour, lines, *before):
    """A PNG as bytes; `colour` 0 is grey and 2 is RGB."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(before) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def encoded(kind, **options):
    written = io.BytesIO()
    Image.fromarray(PIXELS).save(written, kind, **options)
    return written.getvalue()


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
def test_a_file_cut_anywhere_is_refused_or_was_decoded_whole(tmp_path, name):
    content, path = encoded(**CUTS[name]), tmp_path / "cut.jpg"
    path.write_bytes(content)
    whole = read_image(path)
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        found = refused_or_read(path)
        if isinstance(found, str):
            assert found.startswith(f"{path}: not a readable image (")
        else:
            np.testing.assert_array_equal(found, whole)
            assert length > 0.9 * len(content)


def refused_or_read(path):
    try:
        return read_image(path)
    except DataError as error:
        return str(error)


def test_an_empty_file_is_said_to_be_empty(tmp_path):
    (tmp_path / "none.png").touch()
    with pytest.raises(DataError, match=r"none\.png: not a readable image \(the file is empty\)"):
        read_image(tmp_path / "none.png")


def test_one_pixel_is_a_image_and_fills_the_square(tmp_path):
    Image.new("RGB", (1, 1), (10, 200, 30)).save(tmp_path / "dot.png")
    assert read_image(tmp_path / "dot.png").tolist() == [[[10]], [[200]], [[30]]]
    image = read_image(tmp_path / "dot.png", 4)
    np.testing.assert_array_equal(image, np.broadcast_to(np.array([10, 200, 30])[:, None, None], (3, 4, 4)))


@pytest.mark.parametrize("times", [1, 2, 40])
def test_too_many_pixels_are_refused_before_one_is_decoded(tmp_path, times):
    path = tmp_path / "bomb.png"
    path.write_bytes(png(10_000, times * 8_948, 8, 2, b"no pixels at all"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DataError, match=r"bomb\.png: not a readable image \(.*89,478,485.* allowed; shrink it\)"):
            read_image(path, 8)
    assert MOST_PIXELS == Image.MAX_IMAGE_PIXELS
    path.write_bytes(png(10_000, 8_947, 8, 2, b"no pixels at all"))
    with pytest.raises(DataError, match=r"bomb\.png: not a readable image \((?!.*allowed)"):
        read_image(path, 8)


def test_a_warning_made_an_error_is_still_ours(tmp_path):
    (tmp_path / "bomb.png").write_bytes(png(10_000, 8_948, 8, 2, b""))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match=r"89,478,485 pixels allowed"):
            read_image(tmp_path / "bomb.png")


@pytest.mark.parametrize("name", ["a.gif", "a.png", "a.webp", "a.tiff"])
def test_several_frames_are_refused_and_one_frame_is_not(tmp_path, name):
    first, second = Image.fromarray(PIXELS), Image.fromarray(255 - PIXELS)
    first.save(tmp_path / name, save_all=True, append_images=[second])
    with pytest.raises(DataError, match="several frames or pages, and which is meant is not known"):
        read_image(tmp_path / name)
    first.save(tmp_path / f"one-{name}")
    assert read_image(tmp_path / f"one-{name}").shape == (3, 12, 10)


def test_a_cameras_jpeg_with_more_behind_it_is_its_first_image(tmp_path):
    first, second = Image.new("RGB", (16, 16), "red"), Image.new("RGB", (16, 16), "blue")
    first.save(tmp_path / "alone.jpg")
    first.save(tmp_path / "phone.jpg", format="MPO", save_all=True, append_images=[second])
    with Image.open(tmp_path / "phone.jpg") as opened:
        assert (opened.format, opened.n_frames) == ("MPO", 2)
    np.testing.assert_array_equal(read_image(tmp_path / "phone.jpg"), read_image(tmp_path / "alone.jpg"))


def test_sixteen_bits_of_colour_with_alpha_and_of_grey_in_every_format_are_scaled(tmp_path):
    deep = np.array([[0, 300, 32896, 65535]], dtype=np.uint16)
    for name in ("deep.tiff", "deep.pgm", "deep.png"):
        Image.fromarray(deep).save(tmp_path / name)
        assert read_image(tmp_path / name)[1].tolist() == [[0, 1, 128, 255]]
    clear = struct.pack(">HHHH", 65535, 0, 0, 0) + struct.pack(">HHHH", 65535, 256, 0, 65535)
    (tmp_path / "rgba.png").write_bytes(png(2, 1, 16, 6, b"\0" + clear))
    assert read_image(tmp_path / "rgba.png").transpose(1, 2, 0).tolist() == [[[255, 255, 255], [255, 1, 0]]]


def test_a_transparent_grey_is_white_whatever_its_depth(tmp_path):
    (tmp_path / "8.png").write_bytes(png(2, 1, 8, 0, bytes([0, 10, 20]), chunk(b"tRNS", struct.pack(">H", 10))))
    assert read_image(tmp_path / "8.png")[0].tolist() == [[255, 20]]
    lines = b"\0" + struct.pack(">HH", 2570, 5140)
    (tmp_path / "16.png").write_bytes(png(2, 1, 16, 0, lines, chunk(b"tRNS", struct.pack(">H", 2570))))
    assert read_image(tmp_path / "16.png")[0].tolist() == [[255, 20]]


def test_a_palette_with_a_transparent_colour_lies_over_white(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "p.gif", transparency=0)
    assert read_image(tmp_path / "p.gif").transpose(1, 2, 0).tolist() == [[[255, 255, 255], [0, 255, 0]]]


def test_values_of_32_bits_are_refused(tmp_path):
    Image.fromarray(np.array([[0, 200]], dtype=np.int32)).save(tmp_path / "int.tiff")
    with pytest.raises(DataError, match=r"int\.tiff: .*32-bit whole numbers have no fixed white"):
        read_image(tmp_path / "int.tiff")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_of_a_camera_is_undone(tmp_path, orientation):
    turned = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # what undoes each, as Pillow numbers its transpositions
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = Image.fromarray(PIXELS)
    stored = upright if orientation == 1 else upright.transpose(Image.Transpose(turned[orientation]))
    stored.save(tmp_path / "phone.png", exif=exif)
    np.testing.assert_array_equal(read_image(tmp_path / "phone.png"), PIXELS.transpose(2, 0, 1))


def test_a_wrong_ending_does_not_matter_and_an_unknown_content_is_said(tmp_path):
    (tmp_path / "really-png.jpg").write_bytes(encoded("png"))
    np.testing.assert_array_equal(read_image(tmp_path / "really-png.jpg"), PIXELS.transpose(2, 0, 1))
    (tmp_path / "script.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    with pytest.raises(DataError, match=rf"script\.jpg: .*in none of the formats {', '.join(FORMATS)}"):
        read_image(tmp_path / "script.jpg")


def folder_with_everything(root):
    """A folder of every kind of entry that is named as an image, and what must be said of each bad one."""
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
    "../outside.png": "lies outside of the images' folder",
    "out.png": "lies outside of",
    "lost.png": "the link leads to no file",
    "circle.png": "not a readable image (Too many levels of symbolic links)",
    "folder.png": "a folder, not an image",
    "pipe.png": "a pipe, socket or device",
    "good.png/below.png": "no such image",
    "x" * 300 + ".png": "not a readable image (File name too long)",
}
GOOD = ("good.png", "in.png", "inner/other.png")


def test_what_is_no_image_of_the_folder_is_listed_by_the_check_and_never_waited_for(tmp_path):
    home = folder_with_everything(tmp_path)
    rows = "".join(f"{name},cat\n" for name in (*GOOD, *BAD))
    (home / "labels.csv").write_text(f"file,labels\n{rows}")
    report = check_dataset(open_dataset("folder", root=home, split="all", size=8))
    assert report.readable == len(GOOD)
    assert [problem.id for problem in report.problems] == list(BAD)
    for problem, said in zip(report.problems, BAD.values(), strict=True):
        assert said in problem.message
        assert problem.id in problem.message
    result = CliRunner().invoke(app, ["data", "check", "folder", "--root", str(home), "--workers", "1"])
    assert result.exit_code == 1
    assert result.output.count("problem: ") == len(BAD)


def test_a_folder_without_a_list_leaves_out_nothing_that_is_named_as_a_image(tmp_path):
    images = open_images(folder_with_everything(tmp_path), ["cat"], size=8)
    report = check_dataset(images)
    assert {problem.id for problem in report.problems} == {"out.png", "lost.png", "circle.png", "pipe.png"}
    assert report.readable == len(GOOD)
    assert len(images.origins) == len(images)


def test_the_folder_itself_may_be_a_link_and_named_files_may_lie_anywhere(tmp_path):
    home = folder_with_everything(tmp_path)
    (tmp_path / "link").symlink_to(home)
    images = open_images(tmp_path / "link", ["cat"])
    assert images[list(images.ids).index("in.png")].image.shape == (3, 12, 10)
    assert open_images([home / "out.png"], ["cat"])[0].image.shape == (3, 12, 10)


def test_what_is_not_the_images_fault_is_another_error(tmp_path):
    home = folder_with_everything(tmp_path)
    images = open_images(home, ["cat"])
    with pytest.raises(ImageError, match=r"lost\.png: the link") as raised:
        images[list(images.ids).index("lost.png")]
    assert raised.value.reason == "the link leads to no file; check the root folder and the list of files"
    home.rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="images: no such folder of images") as raised:
        images[0]
    assert not isinstance(raised.value, ImageError)


def test_a_system_without_a_file_to_spare_blames_no_image(tmp_path):
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
def test_a_file_that_may_not_be_read_is_named(tmp_path):
    (tmp_path / "secret.png").write_bytes(encoded("png"))
    (tmp_path / "secret.png").chmod(0)
    with pytest.raises(DataError, match=r"secret\.png: not a readable image \(Permission denied\)"):
        read_image(tmp_path / "secret.png")
