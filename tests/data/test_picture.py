import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from multiguard.data.image import read_image
from multiguard.errors import DataError


@pytest.fixture
def gradient():
    return np.arange(32 * 24, dtype=np.uint32).reshape(32, 24)


def saved(tmp_path, image, name, **options):
    path = tmp_path / name
    image.save(path, **options)
    return path


def test_rgb_keeps_its_pixels_channel_first(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    image = read_image(saved(tmp_path, Image.fromarray(pixels), "a.png"))
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    np.testing.assert_array_equal(image, pixels.transpose(2, 0, 1))


def test_grey_jpeg_is_repeated_in_three_channels(tmp_path):
    image = read_image(saved(tmp_path, Image.new("L", (9, 6), 140), "grey.jpg"))
    assert image.shape == (3, 6, 9)
    assert abs(int(image[0, 0, 0]) - 140) <= 1
    np.testing.assert_array_equal(image[0], image[2])


def test_cmyk_jpeg_comes_out_in_its_colours(tmp_path):
    red = Image.new("RGB", (16, 16), (250, 10, 20)).convert("CMYK")
    image = read_image(saved(tmp_path, red, "cmyk.jpg", quality=95))
    assert image[0].mean() > 235
    assert image[1].mean() < 30
    assert image[2].mean() < 40


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    values = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    image = read_image(saved(tmp_path, Image.fromarray(values), "deep.png"))
    np.testing.assert_array_equal(image[0], [[0, 1, 128, 255]])


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_sixteen_bits_of_colour_keep_their_upper_byte(tmp_path):
    values = np.array([[[65535, 255, 256]]], dtype=">u2")
    header = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    lines = zlib.compress(b"\0" + values.tobytes())
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")
    (tmp_path / "deep.png").write_bytes(png)
    assert read_image(tmp_path / "deep.png").ravel().tolist() == [255, 0, 1]


def test_floating_point_pixels_are_refused(tmp_path):
    path = saved(tmp_path, Image.fromarray(np.ones((4, 4), dtype=np.float32)), "float.tiff")
    with pytest.raises(DataError, match=r"float\.tiff: not a readable image \(floating-point"):
        read_image(path)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_show_white(tmp_path, mode):
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    clear.putpixel((0, 0), (0, 0, 0, 255))
    image = read_image(saved(tmp_path, clear.convert(mode), "alpha.png"))
    assert image[0, 0, 0] == 0
    assert image[0, 3, 3] == 255


def test_exif_orientation_is_applied(tmp_path):
    pixels = np.zeros((4, 8, 3), dtype=np.uint8)
    pixels[:, :4] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned by a quarter, clockwise
    image = read_image(saved(tmp_path, Image.fromarray(pixels), "phone.png", exif=exif))
    assert image.shape == (3, 8, 4)
    assert image[0, :4].min() == 255
    assert image[0, 4:].max() == 0


def test_resizing_squashes_with_antialiasing(tmp_path):
    stripes = np.zeros((64, 32), dtype=np.uint8)
    stripes[::2] = 255
    image = read_image(saved(tmp_path, Image.fromarray(stripes), "s.png"), 16)
    assert image.shape == (3, 16, 16)
    assert abs(image[:, 4:-4].mean() - 127.5) < 3
    assert image[:, 4:-4].std() < 3


@pytest.mark.parametrize("name", ["cut.jpg", "cut.png"])
def test_truncated_image_raises_with_its_path(tmp_path, gradient, name):
    path = saved(tmp_path, Image.fromarray((gradient % 256).astype(np.uint8)).resize((256, 256)), name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=name):
        read_image(path, 32)


def test_file_that_is_no_image_raises_with_its_path(tmp_path):
    path = tmp_path / "page.jpg"
    path.write_text("<html>404</html>")
    with pytest.raises(DataError, match=r"page\.jpg: not a readable image"):
        read_image(path)


def test_missing_image_raises_with_its_path(tmp_path):
    with pytest.raises(DataError, match=r"gone\.jpg: no such image"):
        read_image(tmp_path / "gone.jpg")
