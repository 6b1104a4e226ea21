"""Certified precision, recall and F1 at a radius, of one image and of a set of them.

At a radius R an image with d true labels has a floor e on the true labels that the smoothed classifier returns, and a
ceiling m on the others: for every perturbation of l2-norm at most R, TP >= e and FP <= m. (The top-k rule returns k
labels, so there m = k - e.) Then for every such perturbation

    precision  TP / (TP + FP)                          >=  e / (e + m)
    recall     TP / d                                  >=  e / d
    F1         2 TP / (2 TP + FP + (d - TP))           >=  2 e / (e + m + d)

since TP / (TP + FP) = 1 / (1 + FP / TP) and 2 TP / (TP + FP + d) = 2 / (1 + (FP + d) / TP) rise with TP and fall with
FP. Where e = 0 all three are 0, also where m = 0: then the smoothed classifier may return nothing at all, which counts
as precision 0. Sums over images have floors and ceilings that are the sums of theirs, so that pooled scores are lower
bounds by the same argument.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiguard.certify import ThresholdRadii, certified_size
from multiguard.errors import InvalidInputError

Floats = NDArray[np.float64]
Averaging = Literal["mean", "pooled"]


@dataclass(frozen=True, eq=False)
class Scores:
    """Certified precision, recall and F1, each in the shape of `radius`.

    Where the labels were chosen from pilot draws, "true" means chosen: recall is then the share of the predicted labels
    that provably stay, and no score says how many of them are right.

    Attributes:
        radius: The l2-norms asked about.
        precision: The least fraction of the returned labels that are true, e / (e + m); 0 where e = 0.
        recall: The least fraction of the true labels that are returned, e / d.
        f1: Their harmonic mean, 2 e / (e + m + d).
        true_floor: e, how many true labels are returned at least, on average over images.
        false_ceiling: m, how many other labels are returned at most, on average over images; k - e for top-k.
        images: How many images the figures are taken over.
        without_labels: How many images were left out because they have no true label.
    """

    radius: Floats
    precision: Floats
    recall: Floats
    f1: Floats
    true_floor: Floats
    false_ceiling: Floats
    images: int
    without_labels: int


@dataclass(frozen=True, eq=False)
class Counts:
    """What is certified at each radius of the images that have labels.

    Attributes:
        floors: (..., images), e of each image, with the shape of the radii first.
        ceilings: (..., images), m of each image.
        true: (images,), d of each image, at least 1.
        without_labels: How many images were left out because they have no true label.
    """

    floors: Floats
    ceilings: Floats
    true: Floats
    without_labels: int

    @property
    def fractions(self) -> tuple[tuple[Floats, Floats], ...]:
        """Numerator and denominator of precision, recall and F1, each (..., images)."""
        returned, d = self.floors + self.ceilings, np.broadcast_to(self.true, self.floors.shape)
        return (self.floors, returned), (self.floors, d), (2 * self.floors, returned + d)


def image_scores(radii: ArrayLike, *, num_true: int, k: int, radius: ArrayLike) -> Scores:
    """No perturbation of l2-norm at most `radius` takes the image's scores below these, wherever its radii hold.

    Args:
        radii: The image's radii, (min(d, k),), as `certified_radii` returns them.
        num_true: d, how many true labels the image has; at least 1.
        k: How many labels the smoothed classifier returns.
        radius: A number or an array of any shape.
    """
    _check_has_labels(num_true)
    return set_scores([radii], num_true=[num_true], k=k, radius=radius)


def threshold_image_scores(radii: ThresholdRadii, *, radius: ArrayLike) -> Scores:
    """No perturbation of l2-norm at most `radius` takes the image's scores below these, wherever its radii hold.

    A perturbed prediction that is empty has precision 0. The head of this module has the proof.

    Args:
        radii: The image's floors and ceilings, as `threshold_radii` returns them; at least one label is true.
        radius: A number or an array of any shape.
    """
    _check_has_labels(len(np.asarray(radii.true)))
    return threshold_set_scores([radii], radius=radius)


def set_scores(
    radii: Sequence[ArrayLike], *, num_true: Sequence[int], k: int, radius: ArrayLike, averaging: Averaging = "mean"
) -> Scores:
    """The average of the images' certified scores; each image's part is right with its own probability 1 - alpha.

    Args:
        radii: For each image its radii, as `certified_radii_batch` returns them.
        num_true: For each image its d; images with none are left out and counted in `without_labels`.
        k: How many labels the smoothed classifier returns.
        radius: A number or an array of any shape.
        averaging: "mean", the mean over images of each one's scores (the paper's text); or "pooled", the scores
            of all labels thrown together (what its public script prints).
    """
    asked = np.asarray(radius, dtype=np.float64)
    return averaged_scores(top_k_counts(radii, num_true, k, asked), asked, averaging)


def threshold_set_scores(
    radii: Sequence[ThresholdRadii], *, radius: ArrayLike, averaging: Averaging = "mean"
) -> Scores:
    """The average of the images' certified scores; each image's part is right with its own probability 1 - alpha.

    Args:
        radii: For each image its floors and ceilings, as `threshold_radii_batch` returns them; images without
            floors have no true label, and are left out and counted in `without_labels`.
        radius: A number or an array of any shape.
        averaging: As in `set_scores`.
    """
    asked = np.asarray(radius, dtype=np.float64)
    return averaged_scores(threshold_counts(radii, asked), asked, averaging)


def top_k_counts(radii: Sequence[ArrayLike], num_true: Sequence[int], k: int, radius: Floats) -> Counts:
    """What these radii of the top-k rule certify; of k labels returned, those that are not true are false."""
    if len(radii) != len(num_true):
        raise InvalidInputError(
            f"radii and num_true must have one entry per image, got {len(radii)} and {len(num_true)}"
        )
    _check_lengths(radii, num_true, k)
    floors = [certified_size(proved, radius) for proved in radii]
    return _counts(floors, [k - floor for floor in floors], num_true)


def threshold_counts(radii: Sequence[ThresholdRadii], radius: Floats) -> Counts:
    """What these floors and ceilings of the threshold rule certify; with nothing proved, all others may come in."""
    floors = [certified_size(proved.true, radius) for proved in radii]
    ceilings = [_ceiling(np.asarray(proved.false), radius) for proved in radii]
    return _counts(floors, ceilings, [len(np.asarray(proved.true)) for proved in radii])


def averaged_scores(counts: Counts, radius: Floats, averaging: Averaging) -> Scores:
    """Precision, recall and F1: the mean of the images' own, or those of all labels thrown together."""
    if averaging not in ("mean", "pooled"):
        raise InvalidInputError(f"unknown averaging {averaging!r}: choose 'mean' (per image) or 'pooled'")
    precision, recall, f1 = (_average(*fraction, averaging) for fraction in counts.fractions)
    return Scores(
        radius,
        precision,
        recall,
        f1,
        true_floor=np.asarray(counts.floors.mean(axis=-1)),
        false_ceiling=np.asarray(counts.ceilings.mean(axis=-1)),
        images=len(counts.true),
        without_labels=counts.without_labels,
    )


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """The quotient, and 0 wherever the numerator is: no true label is certified, whatever may be returned beside."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=numerator > 0)


def _average(numerator: Floats, denominator: Floats, averaging: Averaging) -> Floats:
    if averaging == "pooled":
        return ratio(np.asarray(numerator.sum(axis=-1)), np.asarray(denominator.sum(axis=-1)))
    return np.asarray(ratio(numerator, denominator).mean(axis=-1))


def _counts(floors: Sequence[ArrayLike], ceilings: Sequence[ArrayLike], num_true: Sequence[int]) -> Counts:
    """The counts of the images that have labels; at least one must."""
    kept = [i for i, count in enumerate(num_true) if count > 0]
    if not kept:
        raise InvalidInputError(f"none of the {len(num_true)} images has a true label, so there is nothing to average")
    at_least, at_most = (
        np.stack([np.asarray(each[i], np.float64) for i in kept], axis=-1) for each in (floors, ceilings)
    )
    true = np.array([num_true[i] for i in kept], dtype=np.float64)
    return Counts(at_least, at_most, true, len(num_true) - len(kept))


def _ceiling(false: Floats, radius: Floats) -> NDArray[np.int64]:
    """The least m with false[m] >= radius, for each radius; all of them where there is none."""
    return len(false) - certified_size(false[::-1], radius)


def _check_has_labels(num_true: int) -> None:
    if num_true < 1:
        raise InvalidInputError("num_true is 0: an image without labels has no recall; leave it out and count it")


def _check_lengths(radii: Sequence[ArrayLike], num_true: Sequence[int], k: int) -> None:
    for index, (proved, count) in enumerate(zip(radii, num_true, strict=True)):
        if len(np.asarray(proved)) != min(count, k):
            raise InvalidInputError(
                f"image {index} has {count} true labels and k = {k}, so {min(count, k)} radii, "
                f"but {len(np.asarray(proved))} were given; are these the radii of another k or image?"
            )
