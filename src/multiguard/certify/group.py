"""Images with equally many true labels, stacked so that one evaluation serves them all."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from multiguard.certify.tally import Tally
from multiguard.certify.types import Floats, Ints

# Images certified in one evaluation hold about this many numbers at a time, a few tens of megabytes.
_NUMBERS_AT_A_TIME = 1 << 21


@dataclass(frozen=True)
class Setting:
    """What a certificate is about: the k labels returned by g, the k' returned by f, and the error allowed.

    `at` are the only r that matter, where that is known; a radius is then the largest of them that is proved.
    """

    k: int
    k_prime: int
    alpha: float
    at: tuple[float, ...] | None = None


@dataclass(frozen=True, eq=False)
class Group:
    """The tallies of images that have the same number of true labels, d = `num_true`."""

    tallies: Sequence[Tally]

    @property
    def images(self) -> int:
        """How many images there are."""
        return len(self.tallies)

    @property
    def num_true(self) -> int:
        """d, the number of labels in each image's L."""
        return len(self.tallies[0].labels)

    @property
    def num_labels(self) -> int:
        """c, the number of labels there are."""
        return len(self.tallies[0].label_mass)

    @cached_property
    def draws(self) -> Floats:
        """(images,) the number of draws of each image."""
        return np.array([tally.draws for tally in self.tallies], dtype=np.float64)

    @cached_property
    def labels(self) -> Ints:
        """(images, d) the labels of each L."""
        return np.stack([tally.labels for tally in self.tallies])

    @cached_property
    def label_mass(self) -> Floats:
        """(images, c) the mass of each label."""
        return np.stack([tally.label_mass for tally in self.tallies])

    @cached_property
    def mass_on_labels(self) -> Floats:
        """(images, d) the mass of each label of L."""
        return np.take_along_axis(self.label_mass, self.labels, axis=1)

    def rivals(self, most: int) -> Floats:
        """(images, <= most) the largest masses outside L, downwards."""
        return self._largest(self.labels, most)

    def rivals_of(self, position: int, most: int) -> Floats:
        """(images, <= most) the largest masses of all labels but the one at this position of L, downwards."""
        return self._largest(self.labels[:, position : position + 1], most)

    def sizes(self, k: int) -> int:
        """The largest certified size there can be."""
        return min(self.num_true, k)

    def uncertain_sizes(self, k: int) -> range:
        """The sizes e that have to be proved; smaller ones are certain, as k - e + 1 > c - d leaves too few rivals."""
        certain = max(0, k - (self.num_labels - self.num_true))
        return range(certain + 1, self.sizes(k) + 1)

    def with_certain_sizes(self, proved: Sequence[Floats], k: int) -> Floats:
        """(images, sizes) from the radii of the uncertain sizes: +inf before them, and never rising in e."""
        certain = [np.full(self.images, np.inf)] * (self.sizes(k) - len(proved))
        return np.minimum.accumulate(np.stack([*certain, *proved], axis=1), axis=1)

    def _largest(self, without: Ints, most: int) -> Floats:
        others = self.label_mass.copy()
        np.put_along_axis(others, without, -1.0, axis=1)
        count = min(most, self.num_labels - without.shape[1])
        return -np.sort(-others, axis=1)[:, :count]


def batches(tallies: Sequence[Tally], numbers: Callable[[int], int]) -> Iterator[list[int]]:
    """Indices of images with equally many labels in L, few enough at a time for one evaluation.

    Args:
        tallies: All images.
        numbers: How many numbers an image with d labels needs.
    """
    order = sorted(range(len(tallies)), key=lambda i: len(tallies[i].labels))
    for num_true, same in groupby(order, key=lambda i: len(tallies[i].labels)):
        indices, step = list(same), max(1, _NUMBERS_AT_A_TIME // max(1, numbers(num_true)))
        yield from (indices[start : start + step] for start in range(0, len(indices), step))
