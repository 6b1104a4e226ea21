"""Small classifiers and datasets that the tests of smoothing share."""

import numpy as np
import torch
from torch import Tensor

from multiguard.data.sample import Sample
from multiguard.errors import ImageError
from multiguard.models import load
from multiguard.models.torch_model import TorchClassifier


class Images:
    """A dataset of random images, held in memory.

    Args:
        count: The number of images.
        size: Height and width.
        first: The number of the first image.
        unreadable: The positions of images that cannot be read.
    """

    name = "generated"
    label_names = ("a", "b", "c", "d", "e")

    def __init__(
        self, count: int, *, size: int = 4, first: int = 0, unreadable: frozenset[int] | set[int] = frozenset()
    ):
        numbers = range(first, first + count)
        self.ids = [f"image-{number}" for number in numbers]
        self.unreadable = unreadable
        self.reads: list[int] = []
        self._images = [
            np.random.default_rng(number).integers(0, 256, (3, size, size), dtype=np.uint8) for number in numbers
        ]

    def __len__(self) -> int:
        return len(self.ids)

    def change(self, index: int) -> None:
        """Replace an image by another one of the same id."""
        self._images[index] = 255 - self._images[index]

    def __getitem__(self, index: int, /) -> Sample:
        sample = Sample(self.ids[index], self._images[index], (index % 5,))
        self.reads.append(index)
        if index in self.unreadable:
            raise ImageError(f"{index}.jpg", "cannot\n  be decoded")
        return sample


def linear(size: int = 4, labels: int = 5, seed: int = 0) -> TorchClassifier:
    """A linear classifier of images; exact, since its weights are whole numbers over a power of two."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randint(-8, 9, (3 * size * size, labels), generator=generator).float() / 8

    def scores(images: Tensor) -> Tensor:
        # One row at a time: the sum of a row must not depend on the number of rows.
        return torch.stack([row.flatten() @ weights for row in images])

    return load(scores, labels=[chr(ord("a") + i) for i in range(labels)], output="logits", name="linear").module()


def streamed(one, images, draws, noise_seed=0):
    """The votes of each (id, image), in batches that they share."""
    jobs = (one.job(image, draws, noise_seed=noise_seed, image_id=name) for name, image in images)
    return {job.image_id: votes for job, votes in one.run(jobs)}
