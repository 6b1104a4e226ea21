"""Noise that is a function of (noise seed, image id, draw) and of nothing else; a band ablation only of the draw.

Two counter-based sources compute it, so a draw can be made alone, in any order, in any batch and on any worker:
`HOST_PHILOX` on a CPU (NumPy's Philox4x64-10, made here) and `DEVICE_PHILOX` on an accelerator (Philox4x32-10, made
where the model runs: `smooth.torch_engine`). Box-Muller makes Gaussian values of their words.

torch's own CPU generator is not used: it keeps 32 bits of the seed, so about one pair of 100,000 separately seeded
draws would share its noise, and the binomial bounds need independent draws.
"""

import hashlib
import json
import secrets
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multiguard.certify.noise import HIDDEN, Noise
from multiguard.errors import InvalidInputError

# Part of the noise key: renaming one changes its noise. "bare" has none: the image as it is.
Stream = Literal["certify", "pilot", "attack", "judge", "bare"]
NoiseSource = Literal["philox4x64-box-muller", "philox4x32-box-muller"]
Pixels = NDArray[np.float32]
HOST_PHILOX: NoiseSource = "philox4x64-box-muller"
DEVICE_PHILOX: NoiseSource = "philox4x32-box-muller"
_CACHED_PAIRS = 1 << 15  # words processed at once, so that they stay in a core's cache


def resolve_seed(seed: int | None) -> int:
    """The given seed; for None a random one that cannot be guessed, to be recorded.

    A certificate needs an image that was chosen independently of the noise. Whoever supplies the image must therefore
    not know the seed.

    >>> resolve_seed(7), resolve_seed(None) == resolve_seed(None)
    (7, False)
    """
    return secrets.randbits(63) if seed is None else seed


def noise_key(noise_seed: int, image_id: str, stream: Stream = "certify") -> bytes:
    """The 128-bit key of one image's noise: different arguments give different, unrelated noise.

    Draws that choose labels (pilot), certify them, search for an attack and evaluate it (judge) have separate streams,
    so no draw serves two purposes.

    >>> noise_key(0, "cat.jpg").hex()
    'e5a2e05fe22a6600db04b2a23a6bbcd8'
    >>> noise_key(0, "cat.jpg") == noise_key(0, "cat.jpg", "pilot")
    False
    """
    if stream not in get_args(Stream):
        raise InvalidInputError(f"stream must be one of {get_args(Stream)}, not {stream!r}.")
    message = json.dumps([stream, noise_seed, image_id]).encode()
    return hashlib.blake2b(message, digest_size=16, person=b"multiguard-noise").digest()


def key_words(key: bytes) -> tuple[int, int, int, int]:
    """The key as four signed 32-bit words, for Philox4x32."""
    return struct.unpack("<4i", key)


def noise_scale(width: float) -> float:
    """The least float32 that is not below sigma, or the half width: what the noise is multiplied by.

    Radii are computed with the number itself. The nearest float32 may be smaller, and noise that is weaker than its
    record would prove less than is claimed.

    >>> noise_scale(0.5), noise_scale(0.7) >= 0.7 > float(np.float32(0.7))
    (0.5, True)
    """
    nearest = np.float32(width)
    return float(nearest if float(nearest) >= width else np.nextafter(nearest, np.float32(np.inf)))


class HostNoise:
    """Noise made on the CPU in the caller's memory; the values of a draw depend only on its key and index.

    One 64-bit word makes the two values of Box-Muller: 40 bits for the radius, so no value exceeds 7.6, and 24 for the
    angle, as many as float32 holds. NumPy's own ziggurat takes more than twice as long. Two uniform values take one
    word, and each pixel that may be hidden takes one of its own.

    `threads` share the rows, without influence on the values.

    >>> noisy = np.empty((2, 3), dtype=np.float32)
    >>> from multiguard.certify import Gaussian
    >>> HostNoise(Gaussian(0.5)).perturb([np.ones(3, np.float32)] * 2, [noise_key(0, "cat.jpg")] * 2, [0, 1], noisy)
    >>> noisy.round(2)
    array([[0.81, 0.62, 0.81],
           [0.96, 0.66, 1.34]], dtype=float32)
    """

    def __init__(self, noise: Noise, threads: int = 1) -> None:
        self._count, self._fill = noise.sample(_HostSampler())
        self._words = [_Words() for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def perturb(self, images: Sequence[Pixels], keys: Sequence[bytes], draws: Sequence[int], out: Pixels) -> None:
        """Write the image with the noise of its draw into each row of `out`: one row per image, key and draw."""
        pairs = -(-out[0].size // 2)
        count = pairs if self._count is None else self._count
        step = max(1, _CACHED_PAIRS // pairs)
        parts = [slice(start, start + step) for start in range(0, len(out), step)]

        def work(words: _Words, lane: list[slice]) -> None:
            for rows in lane:
                self._fill(words.draw(keys[rows], draws[rows], count), draws[rows], images[rows], out[rows])

        lanes = [parts[lane :: len(self._words)] for lane in range(len(self._words))]
        list((self._pool.map if self._pool else map)(work, self._words, lanes))


class _Words:
    """A reusable bit generator: setting its state takes a microsecond, creating one takes twenty."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._counter, self._key = np.zeros(4, dtype=np.uint64), np.zeros(2, dtype=np.uint64)
        self._state: Any = {**self._bits.state, "state": {"counter": self._counter, "key": self._key}}

    def draw(self, keys: Sequence[bytes], draws: Sequence[int], count: int) -> NDArray[np.uint64]:
        """(rows, count) random words, each row a function of its key and draw."""
        words = np.empty((len(keys), count), dtype=np.uint64)
        for row, (key, draw) in enumerate(zip(keys, draws, strict=True)):
            # A draw has the 2^128 counter values under its index, far more than any image needs.
            self._counter[2] = draw
            self._key[:] = np.frombuffer(key, dtype="<u8")
            self._bits.state = self._state
            words[row] = self._bits.random_raw(count)
        return words


# From words (rows, count), draws and images to noisy rows.
_Fill = Callable[[NDArray[np.uint64], Sequence[int], Sequence[Pixels], Pixels], None]


class _HostSampler:
    """How many words a row takes, None for one per pair of values, and what makes noisy rows of them."""

    def gaussian(self, sigma: float) -> tuple[int | None, _Fill]:
        return None, partial(_add, _box_muller, noise_scale(sigma))

    def uniform(self, half_width: float) -> tuple[int | None, _Fill]:
        return None, partial(_add, _uniform, noise_scale(half_width))

    def pixels(self, keep: int, pixels: int) -> tuple[int | None, _Fill]:
        return pixels, partial(_hide_pixels, keep)

    def band(self, width: int, columns: int) -> tuple[int | None, _Fill]:
        return 0, partial(_hide_columns, width, columns)


def _add(
    make: Callable[[NDArray[np.uint64], float, Pixels], None],
    scale: float,
    words: NDArray[np.uint64],
    _: Sequence[int],
    images: Sequence[Pixels],
    out: Pixels,
) -> None:
    make(words, scale, out.reshape(len(out), -1))
    for row, image in zip(out, images, strict=True):
        np.add(row, image, out=row)


def _hide_pixels(keep: int, words: NDArray[np.uint64], _: Sequence[int], images: Sequence[Pixels], out: Pixels) -> None:
    """Each image (channels, height, width) with only this number of its pixels."""
    for row, image, hidden in zip(out, images, hidden_pixels(words, keep), strict=True):
        np.copyto(row, image)
        np.copyto(row.reshape(len(row), -1), HIDDEN, where=hidden)


def hidden_pixels(words: NDArray[np.uint64], keep: int) -> NDArray[np.bool_]:
    """(rows, pixels), False at the `keep` smallest words of each row; of equal words the first come first.

    Words are uniform, so each set of positions is equally likely: two words that matter are equal once in 10^14 rows.

    >>> hidden_pixels(np.array([[7, 2, 7, 9]], dtype=np.uint64), keep=2)
    array([[False, False,  True,  True]])
    """
    largest = np.partition(words, keep - 1, axis=1)[:, keep - 1, None]
    hidden = words > largest
    for row in np.flatnonzero(hidden.sum(axis=1) != words.shape[1] - keep):
        hidden[row] = True
        hidden[row, np.argsort(words[row], kind="stable")[:keep]] = False
    return hidden


def _hide_columns(
    width: int, columns: int, _: NDArray[np.uint64], draws: Sequence[int], images: Sequence[Pixels], out: Pixels
) -> None:
    """Each image (channels, height, columns) with only the band that starts at the column of its draw."""
    starts = np.asarray(draws, dtype=np.int64)[:, None]
    hidden = (np.arange(columns) - starts) % columns >= width
    for row, image, where in zip(out, images, hidden, strict=True):
        np.copyto(row, image)
        np.copyto(row, HIDDEN, where=where)


def _uniform(words: NDArray[np.uint64], scale: float, out: Pixels) -> None:
    """Two independent U(-scale, scale) values from each word (rows, pairs): all high halves, then all low ones."""
    pairs = words.shape[1]
    halves = ((words >> np.uint64(32)).astype(np.uint32), words.astype(np.uint32))
    for half, part in zip(halves, (out[:, :pairs], out[:, pairs:]), strict=True):
        np.multiply(half.view(np.int32)[:, : part.shape[1]], np.float32(2.0**-31), out=part, casting="unsafe")
        part *= np.float32(scale)


def _box_muller(words: NDArray[np.uint64], scale: float, out: Pixels) -> None:
    """Two independent N(0, scale^2) values from each word (rows, pairs): first all cosines, then all sines."""
    pairs = words.shape[1]
    angle = (words & np.uint64(0xFFFFFF)).astype(np.float32)
    angle *= np.float32(2 * np.pi / 2**24)
    radius = (words >> np.uint64(24)).view(np.int64).astype(np.float32)
    radius += np.float32(0.5)
    radius *= np.float32(2.0**-40)
    np.log(radius, out=radius)
    radius *= np.float32(-2)
    # A fast logarithm may be slightly above 0 at u = 1, and its root would be NaN.
    np.maximum(radius, np.float32(0), out=radius)
    np.sqrt(radius, out=radius)
    radius *= np.float32(scale)
    cosines, sines = out[:, :pairs], out[:, pairs:]
    np.multiply(np.cos(angle), radius, out=cosines)
    np.sin(angle, out=angle)
    np.multiply(angle[:, : sines.shape[1]], radius[:, : sines.shape[1]], out=sines)
