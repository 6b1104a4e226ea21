"""Gaussian noise that is a function of (seed, image id, draw) and of nothing else.

Two sources compute it. Both are counter-based (Philox), so a draw can be made alone, in any order, in any
batch and on any worker:

* `NUMPY_PHILOX` on a CPU: NumPy's Philox4x64-10 and its float32 ziggurat, made here.
* `DEVICE_PHILOX` on an accelerator: Philox4x32-10 and Box-Muller, made where the model runs
  (`multiguard.smooth.philox`).

torch's own CPU generator is not used: it keeps 32 bits of the seed, so that among 100,000 draws seeded one by
one about one pair would be the same noise, and the binomial bounds need independent draws.
"""

import hashlib
import json
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Stream = Literal["certify", "pilot"]
NoiseSource = Literal["numpy-philox4x64-ziggurat", "philox4x32-box-muller"]
NUMPY_PHILOX: NoiseSource = "numpy-philox4x64-ziggurat"
DEVICE_PHILOX: NoiseSource = "philox4x32-box-muller"


def noise_key(seed: int, image_id: str, stream: Stream = "certify") -> bytes:
    """The 128 bits that name the noise of one image: different inputs give different, unrelated noise.

    The pilot draws that choose a set and the draws that certify it have separate streams, so that no draw can
    serve both.
    """
    message = json.dumps([stream, seed, image_id]).encode()
    return hashlib.blake2b(message, digest_size=16, person=b"multiguard-noise").digest()


def key_words(key: bytes) -> tuple[int, int, int, int]:
    """The key as the four signed 32-bit words that Philox4x32 takes."""
    first, second, third, fourth = struct.unpack("<4i", key)
    return first, second, third, fourth


class HostNoise:
    """Noise made on the CPU into the caller's memory; a draw's values depend on its key and index alone.

    Args:
        threads: How many threads share the rows of a batch; it has no influence on the values.
    """

    def __init__(self, threads: int = 1) -> None:
        self._lanes = [_Lane() for _ in range(max(1, threads))]
        self._pool = ThreadPoolExecutor(len(self._lanes)) if threads > 1 else None

    def standard_normal(self, key: bytes, draw: int, out: NDArray[np.float32]) -> None:
        """Fill a contiguous array with the independent N(0, 1) values of one draw."""
        self._lanes[0].seek(key, draw)
        self._lanes[0].fill(out)

    def perturb(
        self,
        images: Sequence[NDArray[np.float32]],
        keys: Sequence[bytes],
        draws: Sequence[int],
        sigma: float,
        out: NDArray[np.float32],
    ) -> None:
        """Write image + sigma * noise(key, draw) into each row of `out`: one row per image, key and draw."""

        def work(lane: int) -> None:
            for row in range(lane, len(draws), len(self._lanes)):
                self._lanes[lane].perturb(images[row], keys[row], draws[row], np.float32(sigma), out[row])

        if self._pool is None:
            work(0)
        else:
            list(self._pool.map(work, range(len(self._lanes))))


class _Lane:
    """One reusable bit generator: setting its state costs a microsecond, building one costs twenty."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._bits)

    def seek(self, key: bytes, draw: int) -> None:
        # A draw owns the 2^128 counter values under its own index, far more than any picture takes.
        counter = np.array([0, 0, draw, 0], dtype=np.uint64)
        self._bits.state = {
            "bit_generator": "Philox",
            "state": {"counter": counter, "key": np.frombuffer(key, dtype="<u8").astype(np.uint64)},
            "buffer": np.zeros(4, dtype=np.uint64),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }

    def fill(self, out: NDArray[np.float32]) -> None:
        self._generator.standard_normal(dtype=np.float32, out=out)

    def perturb(
        self, image: NDArray[np.float32], key: bytes, draw: int, sigma: np.float32, out: NDArray[np.float32]
    ) -> None:
        self.seek(key, draw)
        self.fill(out)
        np.multiply(out, sigma, out=out)
        np.add(out, image, out=out)
