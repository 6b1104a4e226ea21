"""How an image is decoded: one fixed rule for each colour mode, depth and orientation."""

import struct

import numpy as np
import pytest
from image_files import PIXELS, chunk, encoded, png
from PIL import Image

from multiguard.data.image import FORMATS, read_image
from multiguard.errors import DataError


def saved(tmp_path, image, name, **options):
    path = tmp_path / name
    image.save(path, **options)
    return path


def test_rgb(tmp_path):
    """RGB keeps its pixels, channel first."""
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    image = read_image(saved(tmp_path, Image.fromarray(pixels), "a.png"))
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    np.testing.assert_array_equal(image, pixels.transpose(2, 0, 1))


def test_cmyk_jpeg(tmp_path):
    """A CMYK JPEG keeps its colours."""
    red = Image.new("RGB", (16, 16), (250, 10, 20)).convert("CMYK")
    image = read_image(saved(tmp_path, red, "cmyk.jpg", quality=95))
    assert image[0].mean() > 235
    assert image[1].mean() < 30
    assert image[2].mean() < 40


def test_sixteen_bit_colour(tmp_path):
    """Sixteen bits of colour keep their upper byte."""
    (tmp_path / "deep.png").write_bytes(png(1, 1, 16, 2, b"\0" + struct.pack(">HHH", 65535, 255, 256)))
    assert read_image(tmp_path / "deep.png").ravel().tolist() == [255, 0, 1]


def test_sixteen_bit_grey_and_alpha(tmp_path):
    """Sixteen bits of grey are scaled in every format, and an alpha channel is composited."""
    deep = np.array([[0, 300, 32896, 65535]], dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.tiff")
    Image.fromarray(deep).save(tmp_path / "deep.png")
    (tmp_path / "deep.pgm").write_bytes(b"P5 4 1 65535\n" + deep.astype(">u2").tobytes())  # Pillow 10 writes none
    for name in ("deep.tiff", "deep.pgm", "deep.png"):
        assert read_image(tmp_path / name)[1].tolist() == [[0, 1, 128, 255]]
    clear = struct.pack(">HHHH", 65535, 0, 0, 0) + struct.pack(">HHHH", 65535, 256, 0, 65535)
    (tmp_path / "rgba.png").write_bytes(png(2, 1, 16, 6, b"\0" + clear))
    assert read_image(tmp_path / "rgba.png").transpose(1, 2, 0).tolist() == [[[255, 255, 255], [255, 1, 0]]]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels(tmp_path, mode):
    """Transparent pixels are white."""
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    clear.putpixel((0, 0), (0, 0, 0, 255))
    image = read_image(saved(tmp_path, clear.convert(mode), "alpha.png"))
    assert image[0, 0, 0] == 0
    assert image[0, 3, 3] == 255


def test_transparent_grey(tmp_path):
    """A transparent grey is white, whatever its depth."""
    (tmp_path / "8.png").write_bytes(png(2, 1, 8, 0, bytes([0, 10, 20]), chunk(b"tRNS", struct.pack(">H", 10))))
    assert read_image(tmp_path / "8.png")[0].tolist() == [[255, 20]]
    lines = b"\0" + struct.pack(">HH", 2570, 5140)
    (tmp_path / "16.png").write_bytes(png(2, 1, 16, 0, lines, chunk(b"tRNS", struct.pack(">H", 2570))))
    assert read_image(tmp_path / "16.png")[0].tolist() == [[255, 20]]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path, orientation):
    """Every orientation of a camera is applied."""
    turned = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # what undoes each, as Pillow numbers its transpositions
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = Image.fromarray(PIXELS)
    stored = upright if orientation == 1 else upright.transpose(Image.Transpose(turned[orientation]))
    stored.save(tmp_path / "phone.png", exif=exif)
    np.testing.assert_array_equal(read_image(tmp_path / "phone.png"), PIXELS.transpose(2, 0, 1))


def test_resizing(tmp_path):
    """Resizing squashes the image to a square, with antialiasing."""
    stripes = np.zeros((64, 32), dtype=np.uint8)
    stripes[::2] = 255
    image = read_image(saved(tmp_path, Image.fromarray(stripes), "s.png"), 16)
    assert image.shape == (3, 16, 16)
    assert abs(image[:, 4:-4].mean() - 127.5) < 3
    assert image[:, 4:-4].std() < 3


def test_camera_jpeg_with_several_images(tmp_path):
    """A camera's JPEG with several images is decoded as its first."""
    first, second = Image.new("RGB", (16, 16), "red"), Image.new("RGB", (16, 16), "blue")
    first.save(tmp_path / "alone.jpg")
    first.save(tmp_path / "phone.jpg", format="MPO", save_all=True, append_images=[second])
    with Image.open(tmp_path / "phone.jpg") as opened:
        assert (opened.format, opened.n_frames) == ("MPO", 2)
    np.testing.assert_array_equal(read_image(tmp_path / "phone.jpg"), read_image(tmp_path / "alone.jpg"))


def test_wrong_suffix(tmp_path):
    """The content decides the format, not the suffix; a format that is not known is refused."""
    (tmp_path / "really-png.jpg").write_bytes(encoded("png"))
    np.testing.assert_array_equal(read_image(tmp_path / "really-png.jpg"), PIXELS.transpose(2, 0, 1))
    (tmp_path / "script.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    with pytest.raises(DataError, match=rf"script\.jpg: .*in none of the formats {', '.join(FORMATS)}"):
        read_image(tmp_path / "script.jpg")
