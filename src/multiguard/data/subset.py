"""A seeded random part of a dataset, with how it was drawn on record."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from multiguard.data.sample import Catalogued, Dataset, Sample
from multiguard.errors import DataError

D = TypeVar("D", bound=Dataset)
D_co = TypeVar("D_co", bound=Dataset, covariant=True)


class Subset(Generic[D_co]):
    """Some samples of a dataset, in the dataset's own order, with unchanged ids.

    Args:
        dataset: Where the samples come from.
        positions: Which of them, without repetition.
        note: How they were chosen, for the record.
    """

    def __init__(self, dataset: D_co, positions: Sequence[int], note: str) -> None:
        self.dataset = dataset
        self.positions = tuple(sorted(positions))
        self.note = note

    @property
    def name(self) -> str:
        """The dataset's name and how this part of it was chosen."""
        return f"{self.dataset.name}[{self.note}]"

    @property
    def label_names(self) -> Sequence[str]:
        """The name of each label, in index order."""
        return self.dataset.label_names

    @property
    def ids(self) -> Sequence[str]:
        """The id of each sample, in order."""
        ids = self.dataset.ids
        return [ids[position] for position in self.positions]

    @property
    def labels(self: "Subset[Catalogued]") -> Sequence[tuple[int, ...]]:
        """The labels of each sample, in order."""
        labels = self.dataset.labels
        return [labels[position] for position in self.positions]

    @property
    def origins(self: "Subset[Catalogued]") -> Sequence[str]:
        """For each sample, in order, a text that changes whenever its decoded image may."""
        origins = self.dataset.origins
        return [origins[position] for position in self.positions]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: int, /) -> Sample:
        return self.dataset[self.positions[index]]


def subset(dataset: D, images: int = 500, seed: int = 0) -> Subset[D]:
    """A uniformly random part of the dataset, the same for the same seed and ids; its name records both.

    Args:
        dataset: Where the images come from.
        images: How many; more than there are raises `DataError`.
        seed: Which ones.
    """
    if not 1 <= images <= len(dataset):
        raise DataError(f"{dataset.name}: a subset of {images} images was asked of {len(dataset)}")
    chosen = _shuffled(dataset, seed)[:images]
    return Subset(dataset, chosen, f"images={images},seed={seed}")


def hold_out(dataset: D, share: float, seed: int = 0) -> tuple[Subset[D], Subset[D]]:
    """The dataset in two parts without overlap, the second a random `share`; the same for the same seed."""
    held = round(share * len(dataset))
    if not 0 < held < len(dataset):
        raise DataError(f"{dataset.name}: holding out {share} of {len(dataset)} images leaves a part empty")
    order = _shuffled(dataset, seed)
    note = f"share={share},seed={seed}"
    return Subset(dataset, order[held:], f"kept,{note}"), Subset(dataset, order[:held], f"held out,{note}")


def _shuffled(dataset: Dataset, seed: int) -> list[int]:
    if seed < 0:
        raise DataError(f"{dataset.name}: the seed is {seed}; it must be 0 or more")
    return [int(position) for position in np.random.default_rng(seed).permutation(len(dataset))]
