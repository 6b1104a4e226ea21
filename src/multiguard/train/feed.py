"""Batches of decoded images on the device: kept there whole where they fit, else streamed."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.data import Pixels
from multiguard.train.noise import ORDER, derived_seed

Positions = NDArray[np.int64]
_SHARE_OF_FREE_MEMORY = 0.5
_COPY = 4096


class Feed:
    """The images and targets of one split, given out batch by batch on one device.

    Args:
        pixels: The decoded split.
        device: Where batches are wanted.
        resident: Whether to keep all images on the device; None keeps them on a GPU that has room.
    """

    def __init__(self, pixels: Pixels, device: torch.device, resident: bool | None = None) -> None:
        self.pixels = pixels
        self.device = device
        self.targets = torch.from_numpy(np.array(pixels.targets)).to(device)
        keep = _has_room(pixels, device) if resident is None else resident
        self.images = _moved(pixels.images, device) if keep else None

    def __len__(self) -> int:
        return len(self.pixels)

    def batches(self, positions: Sequence[Positions]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each array of positions, its images (B, 3, height, width) and targets (B, c), both uint8."""
        places = [torch.from_numpy(p).to(self.device, non_blocking=True) for p in positions]
        streamed = self._streamed(positions) if self.images is None else map(self.images.__getitem__, places)
        for place, images in zip(places, streamed, strict=True):
            yield images, self.targets[place]

    def _streamed(self, positions: Sequence[Positions]) -> Iterator[Tensor]:
        """Each batch copied to the device while the one before it is worked on."""
        if not positions:
            return
        with ThreadPoolExecutor(1) as pool:
            coming = [pool.submit(self._gathered, positions[0])]
            for following in positions[1:]:
                ready = coming.pop().result()
                coming.append(pool.submit(self._gathered, following))
                yield ready.to(self.device, non_blocking=True)
            yield coming.pop().result().to(self.device, non_blocking=True)

    def _gathered(self, positions: Positions) -> Tensor:
        batch = torch.from_numpy(self.pixels.images[positions])
        return batch.pin_memory() if self.device.type == "cuda" else batch


def epoch_positions(count: int, batch: int, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> list[Positions]:
    """What this rank reads in each step of an epoch: its share of the batches of one seeded shuffle.

    The batches, and their order, are the same for every number of processes. A last, incomplete batch is left
    out (another one every epoch), unless it is the only one.
    """
    order = np.random.default_rng(derived_seed(seed, ORDER, epoch)).permutation(count)
    steps = max(count // batch, 1)
    return [order[step * batch : (step + 1) * batch][rank::world] for step in range(steps)]


def _has_room(pixels: Pixels, device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return pixels.images.nbytes < _SHARE_OF_FREE_MEMORY * free


def _moved(images: NDArray[np.uint8], device: torch.device) -> Tensor:
    """The array on the device, copied piece by piece so that a memory-mapped one is never whole in memory."""
    moved = torch.empty(images.shape, dtype=torch.uint8, device=device)
    for start in range(0, len(images), _COPY):
        moved[start : start + _COPY] = torch.from_numpy(np.array(images[start : start + _COPY])).to(device)
    return moved
