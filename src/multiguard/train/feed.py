"""Batches of decoded images on the device: kept there where they fit, else streamed."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.data import Pixels
from multiguard.train.augmentation import ORDER, derived_seed

Indices = NDArray[np.int64]
_FRACTION_OF_FREE_MEMORY = 0.5
_COPY = 4096


class Feed:
    """The images and targets of one split, batch by batch on one device.

    It keeps all images there if `resident`; None keeps them on a GPU with enough free memory.
    """

    def __init__(self, pixels: Pixels, device: torch.device, resident: bool | None = None) -> None:
        self.pixels, self.device = pixels, device
        self.targets = torch.from_numpy(np.array(pixels.targets)).to(device)
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
        keep = pixels.images.nbytes < _FRACTION_OF_FREE_MEMORY * free if resident is None else resident
        self.images = _copy_to(device, pixels.images) if keep else None

    def __len__(self) -> int:
        return len(self.pixels)

    def batches(self, indices: Sequence[Indices]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each array of indices, yield its images (B, 3, height, width) and targets (B, c), both uint8."""
        on_device = [torch.from_numpy(array).to(self.device, non_blocking=True) for array in indices]
        batches = self._stream(indices) if self.images is None else map(self.images.__getitem__, on_device)
        for index, images in zip(on_device, batches, strict=True):
            yield images, self.targets[index]

    def _stream(self, indices: Sequence[Indices]) -> Iterator[Tensor]:
        """Gather each batch in memory while the one before it is in use."""
        if not indices:
            return
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(self._gather, indices[0])
            for following in indices[1:]:
                ready = coming.result()
                coming = pool.submit(self._gather, following)
                yield ready.to(self.device, non_blocking=True)
            yield coming.result().to(self.device, non_blocking=True)

    def _gather(self, index: Indices) -> Tensor:
        batch = torch.from_numpy(self.pixels.images[index])
        return batch.pin_memory() if self.device.type == "cuda" else batch


def epoch_indices(count: int, batch: int, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> list[Indices]:
    """Return what this rank reads in each step of an epoch: its part of the batches of one seeded shuffle.

    The batches and their order are the same for every number of processes. A last, incomplete batch is dropped
    (another one in every epoch), unless it is the only one.
    """
    order = np.random.default_rng(derived_seed(seed, ORDER, epoch)).permutation(count)
    steps = max(count // batch, 1)
    return [order[step * batch : (step + 1) * batch][rank::world] for step in range(steps)]


def _copy_to(device: torch.device, images: NDArray[np.uint8]) -> Tensor:
    """Copy the array to the device piece by piece, so that a memory-mapped one is never read into memory at once."""
    copy = torch.empty(images.shape, dtype=torch.uint8, device=device)
    for start in range(0, len(images), _COPY):
        copy[start : start + _COPY] = torch.from_numpy(np.array(images[start : start + _COPY])).to(device)
    return copy
