"""The votes of the threshold rule: a set of labels for each draw, one bit a label."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multiguard.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class LabelSets:
    """The set of labels that each draw returned; no array, so that nothing can take it for ranked votes.

    Attributes:
        packed: (draws, ceil(c / 8)) uint8: label i is bit i % 8, lowest first, of byte i // 8; bits beyond c are 0.
        num_labels: c, the number of labels there are.
    """

    packed: NDArray[np.uint8]
    num_labels: int

    def __post_init__(self) -> None:
        width = packed_width(self.num_labels)
        if self.packed.dtype != np.uint8 or self.packed.ndim != 2 or self.packed.shape[1] != width:
            raise InvalidInputError(
                f"sets in {self.packed.dtype} of shape {self.packed.shape}, where {self.num_labels} labels take "
                f"uint8 of shape (draws, {width})."
            )
        if np.any(self.packed[:, -1] >> np.uint8((self.num_labels - 1) % 8) > 1):
            raise InvalidInputError(f"sets with a label beyond the {self.num_labels} there are.")

    def __len__(self) -> int:
        return len(self.packed)

    def hits(self) -> NDArray[np.bool_]:
        """(draws, c): whether each label is in the set of each draw."""
        return np.unpackbits(self.packed, axis=1, count=self.num_labels, bitorder="little").astype(np.bool_)

    @classmethod
    def from_hits(cls, hits: NDArray[np.bool_]) -> "LabelSets":
        """The sets that boolean hits (draws, c) mark."""
        return cls(np.packbits(hits, axis=1, bitorder="little"), hits.shape[1])


def packed_width(num_labels: int) -> int:
    """The bytes of one set: ceil(c / 8)."""
    return -(-num_labels // 8)
