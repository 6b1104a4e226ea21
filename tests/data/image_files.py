"""Image files made byte by byte."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

PIXELS = np.random.default_rng(7).integers(0, 256, (12, 10, 3), dtype=np.uint8)


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
