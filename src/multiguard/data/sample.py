"""One image with its labels: what every dataset yields and what training and voting take."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

# Called with how much is done and how much there is.
Progressed = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Sample:
    """One image, its stable name and the indices of its labels.

    Attributes:
        id: A name that stays the same whatever the order, the subset or the machine.
        image: (3, height, width), either uint8 (a pixel's value is x / 255) or float32 in [0, 1].
        labels: The indices of the labels that are present, sorted, without repetition; may be empty.
    """

    id: str
    image: NDArray[np.uint8] | NDArray[np.float32]
    labels: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """One sample, or one line of a listing, that cannot be used as it is, and why."""

    id: str
    message: str


class Dataset(Protocol):
    """A finite, ordered collection of samples; reading an item decodes its image."""

    @property
    def name(self) -> str:
        """Which dataset and split this is, for the record."""

    @property
    def label_names(self) -> Sequence[str]:
        """The name of each label, in index order."""

    @property
    def ids(self) -> Sequence[str]:
        """The id of each sample, in order, known without decoding any image."""

    def __len__(self) -> int:
        """The number of samples."""

    def __getitem__(self, index: int, /) -> Sample:
        """The sample at this position, decoded; an unreadable image raises `ImageError` with its path."""


class Catalogued(Dataset, Protocol):
    """A dataset that knows its labels, and where each image comes from, without decoding any."""

    @property
    def labels(self) -> Sequence[tuple[int, ...]]:
        """The labels of each sample, in order."""

    @property
    def origins(self) -> Sequence[str]:
        """For each sample, in order, a text that changes whenever its decoded image may."""
