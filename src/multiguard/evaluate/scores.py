"""Certified precision, recall and F1 at a radius, of one picture and of a set of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiguard.certify import certified_size
from multiguard.errors import InvalidInputError

Floats = NDArray[np.float64]
Averaging = Literal["mean", "pooled"]


@dataclass(frozen=True, eq=False)
class Scores:
    """Certified precision, recall and F1, each in the shape of `radius`.

    Attributes:
        radius: The l2-norms asked about.
        precision: The least fraction of the k returned labels that are true.
        recall: The least fraction of the true labels that are among the k returned.
        f1: Their harmonic mean, 2 e / (d + k).
        images: How many pictures the figures are taken over.
        without_labels: How many pictures were left out because they have no true label.
    """

    radius: Floats
    precision: Floats
    recall: Floats
    f1: Floats
    images: int
    without_labels: int


def image_scores(radii: ArrayLike, *, num_true: int, k: int, radius: ArrayLike) -> Scores:
    """No perturbation of l2-norm at most `radius` takes the picture's scores below these, wherever its radii hold.

    Args:
        radii: The picture's radii, (min(d, k),), as `certified_radii` returns them.
        num_true: d, how many true labels the picture has; at least 1.
        k: How many labels the smoothed classifier returns.
        radius: A number or an array of any shape.
    """
    _check_lengths([radii], [num_true], k)
    if num_true < 1:
        raise InvalidInputError("num_true is 0: a picture without labels has no recall; leave it out and count it")
    size = certified_size(radii, radius)
    asked = np.asarray(radius, dtype=np.float64)
    return Scores(asked, size / k, size / num_true, 2 * size / (num_true + k), images=1, without_labels=0)


def set_scores(
    radii: Sequence[ArrayLike], *, num_true: Sequence[int], k: int, radius: ArrayLike, averaging: Averaging = "mean"
) -> Scores:
    """The average of the pictures' certified scores; each picture's part is right with its own probability 1 - alpha.

    Args:
        radii: For each picture its radii, as `certified_radii_batch` returns them.
        num_true: For each picture its d; pictures with none are left out and counted in `without_labels`.
        k: How many labels the smoothed classifier returns.
        radius: A number or an array of any shape.
        averaging: "mean", the mean over pictures of each one's scores (the paper's text); or "pooled", the scores
            of all labels thrown together (what its public script prints).
    """
    if averaging not in ("mean", "pooled"):
        raise InvalidInputError(f"unknown averaging {averaging!r}: choose 'mean' (per picture) or 'pooled'")
    asked = np.asarray(radius, dtype=np.float64)
    sizes, parts = certified_parts(radii, num_true, k, asked)
    precision, recall, f1 = (_average(sizes, part, averaging) for part in parts)
    images = sizes.shape[-1]
    return Scores(asked, precision, recall, f1, images=images, without_labels=len(num_true) - images)


def certified_parts(
    radii: Sequence[ArrayLike], num_true: Sequence[int], k: int, radius: Floats
) -> tuple[NDArray[np.int64], tuple[Floats, Floats, Floats]]:
    """The certified sizes of the pictures that have labels, and what precision, recall and F1 divide them by.

    Returns:
        The sizes, (..., images) with the shape of `radius` first; and for each of the three scores (images,).
    """
    if len(radii) != len(num_true):
        raise InvalidInputError(
            f"radii and num_true must have one entry per picture, got {len(radii)} and {len(num_true)}"
        )
    _check_lengths(radii, num_true, k)
    kept = [i for i, count in enumerate(num_true) if count > 0]
    if not kept:
        raise InvalidInputError(
            f"none of the {len(num_true)} pictures has a true label, so there is nothing to average"
        )
    sizes = np.stack([certified_size(radii[i], radius) for i in kept], axis=-1)
    true = np.array([num_true[i] for i in kept], dtype=np.float64)
    return sizes, (np.full_like(true, k), true, (true + k) / 2)


def _average(sizes: NDArray[np.int64], part: Floats, averaging: Averaging) -> Floats:
    """The sizes (..., images) over their part: fraction by fraction, or the sums."""
    if averaging == "pooled":
        return np.asarray(sizes.sum(axis=-1) / part.sum())
    return np.asarray((sizes / part).mean(axis=-1))


def _check_lengths(radii: Sequence[ArrayLike], num_true: Sequence[int], k: int) -> None:
    for index, (proved, count) in enumerate(zip(radii, num_true, strict=True)):
        if len(np.asarray(proved)) != min(count, k):
            raise InvalidInputError(
                f"picture {index} has {count} true labels and k = {k}, so {min(count, k)} radii, "
                f"but {len(np.asarray(proved))} were given; are these the radii of another k or picture?"
            )
