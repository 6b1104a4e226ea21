"""A seeded random part of a dataset, with how it was drawn on record."""

from collections.abc import Sequence

import numpy as np

from multiguard.data.sample import Dataset, Sample
from multiguard.errors import DataError


class Subset:
    """Some samples of a dataset, in the dataset's own order, with unchanged ids.

    Args:
        dataset: Where the samples come from.
        positions: Which of them, without repetition.
        note: How they were chosen, for the record.
    """

    def __init__(self, dataset: Dataset, positions: Sequence[int], note: str) -> None:
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

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: int, /) -> Sample:
        return self.dataset[self.positions[index]]


def subset(dataset: Dataset, images: int = 500, seed: int = 0) -> Subset:
    """A uniformly random part of the dataset, the same for the same seed and ids; its name records both.

    Args:
        dataset: Where the pictures come from.
        images: How many; more than there are raises `DataError`.
        seed: Which ones.
    """
    if not 1 <= images <= len(dataset):
        raise DataError(f"{dataset.name}: a subset of {images} pictures was asked of {len(dataset)}")
    chosen = np.random.default_rng(seed).permutation(len(dataset))[:images]
    return Subset(dataset, [int(position) for position in chosen], f"images={images},seed={seed}")


def hold_out(dataset: Dataset, share: float, seed: int = 0) -> tuple[Subset, Subset]:
    """The dataset in two parts without overlap, the second a random `share`; the same for the same seed."""
    held = round(share * len(dataset))
    if not 0 < held < len(dataset):
        raise DataError(f"{dataset.name}: holding out {share} of {len(dataset)} pictures leaves a part empty")
    order = [int(position) for position in np.random.default_rng(seed).permutation(len(dataset))]
    note = f"share={share},seed={seed}"
    return Subset(dataset, order[held:], f"kept,{note}"), Subset(dataset, order[:held], f"held out,{note}")
