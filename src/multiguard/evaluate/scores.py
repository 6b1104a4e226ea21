"""Certified precision, recall and F1 at a radius, of one image and of a set of them.

At a radius R an image with d true labels has a floor e on the true labels that the smoothed classifier returns, and a
ceiling m on the others: for every perturbation that the noise's attacker can make with R, TP >= e and FP <= m. (The
top-k rule returns k labels, so there m = k - e.) Then for every such perturbation

    precision  TP / (TP + FP)                          >=  e / (e + m)
    recall     TP / d                                  >=  e / d
    F1         2 TP / (2 TP + FP + (d - TP))           >=  2 e / (e + m + d)

since TP / (TP + FP) = 1 / (1 + FP / TP) and 2 TP / (TP + FP + d) = 2 / (1 + (FP + d) / TP) rise with TP and fall with
FP. Where e = 0 all three are 0, also where m = 0: then the smoothed classifier may return nothing at all, which counts
as precision 0. Sums over images have floors and ceilings that are the sums of theirs, so that pooled scores are lower
bounds by the same argument.

An image without true labels has no recall, so it has no part in means of scores. All that it returns is wrong: it
counts in the mean number of wrong labels and in pooled scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify import Radii, Rule
from multiguard.certify.arguments import Bools, Floats, Ints, check_radii
from multiguard.certify.noise import Noise
from multiguard.errors import InvalidInputError
from multiguard.io.names import short_repr
from multiguard.io.records import Rows
from multiguard.io.rounding import plain

if TYPE_CHECKING:
    from multiguard.evaluate.certificates import Certificates

Averaging = Literal["mean", "pooled"]
IMAGES_AT_A_TIME = 1 << 15  # whose scores are held at once, and whose claims are a row group of the file


@dataclass(frozen=True, eq=False)
class Scores:
    """Certified precision, recall and F1, each in the shape of `radius`.

    Where the labels were chosen from pilot draws, "true" means chosen: recall is then the fraction of the predicted
    labels that provably stay, and no score says how many of them are right.
    """

    radius: Floats  # in the unit of the noise's attacker: norms, numbers of pixels, or sides of patches
    precision: Floats  # the least fraction of the returned labels that are true, e / (e + m); 0 where e = 0
    recall: Floats  # the least fraction of the true labels that are returned, e / d
    f1: Floats  # their harmonic mean, 2 e / (e + m + d)
    true_floor: Floats  # e, how many true labels are returned at least, on average over images with labels
    false_ceiling: Floats  # m, how many other labels are returned at most, on average over all images; k - e for top-k
    images: int  # how many images have a true label
    without_labels: int  # how many have none; they count in `false_ceiling` and in pooled scores, and in no mean score

    __repr__ = short_repr


class Counts(NamedTuple):
    """What is certified at each radius of some images."""

    floors: Floats  # (..., images), e of each image, with the shape of the radii first
    ceilings: Floats  # (..., images), m of each image
    true: Floats  # (images,), d of each image

    @property
    def labelled(self) -> Bools:
        """(images,) whether each image has labels."""
        return self.true > 0

    def fractions(self, averaging: Averaging) -> tuple[tuple[Floats, Floats], ...]:
        """Numerator and denominator of precision, recall and F1, each (..., images), of the images that count."""
        counted = self.labelled if averaging == "mean" else np.ones_like(self.labelled)
        floors, ceilings = self.floors[..., counted], self.ceilings[..., counted]
        returned, d = floors + ceilings, np.broadcast_to(self.true[counted], floors.shape)
        return (floors, returned), (floors, d), (2 * floors, returned + d)


def set_scores(
    radii: Sequence[Radii],
    rule: Rule,
    *,
    num_true: Sequence[int],
    radius: ArrayLike,
    averaging: Averaging = "mean",
) -> Scores:
    """The average of the certified scores of images, each of them right with its own probability 1 - alpha.

    No perturbation up to the radius takes the scores of an image below its own, wherever its radii hold: the head of
    this module has the proof.

    Args:
        radii: For each image its radii, as `certified_radii_batch` returns them.
        rule: The smoothed classifier that they are about.
        num_true: For each image its d; images with none are counted in `without_labels`, which says where they belong.
        radius: A number or an array of any shape.
        averaging: "mean", over images of their scores; or "pooled", the scores of all labels thrown together.

    >>> from multiguard.certify import TopK
    >>> radii = [Radii(np.array([0.5]), None), Radii(np.array([0.2]), None)]
    >>> set_scores(radii, TopK(k=1, k_prime=1), num_true=[1, 1], radius=[0.1, 0.3]).precision
    array([1. , 0.5])
    """
    requested = np.asarray(radius, dtype=np.float64)
    expected = [(rule.sizes(count), rule.has_ceilings) for count in num_true]
    if [(len(proved.true), proved.false is not None) for proved in radii] != expected:
        raise InvalidInputError(
            f"radii and num_true must have one entry per image, with as many radii as {rule} has for its labels, as "
            "certified_radii returns them; are these the radii of another rule or of other images?"
        )
    true = Rows.of((proved.true for proved in radii), np.float64)
    false = Rows.of((proved.false for proved in radii), np.float64) if rule.has_ceilings else None
    counts = certified_counts(true, false, np.array(num_true, np.int64), rule, requested)
    return average_scores(counts, requested, averaging)


def prediction_scores(
    labels: Sequence[Sequence[int]],
    predicted: Sequence[Sequence[int]],
    averaging: Averaging = "mean",
    *,
    k: int | None = None,
) -> Scores:
    """Precision, recall and F1 of predictions as they are, at R = 0: an observation, not a certificate.

    `labels` are the true ones of each image. `k` is how many labels the classifier returns, if that is a fixed number
    of which some are not known.

    >>> prediction_scores([(0, 1), (2,)], [(0, 3), (2, 1)]).recall
    array(0.75)
    """
    pairs = zip(labels, predicted, strict=True)
    each = ((len({*own} & {*answer}), len({*answer}) if k is None else k, len(own)) for own, answer in pairs)
    found, returned, true = np.fromiter(each, np.dtype((np.float64, 3)), len(labels)).T
    return average_scores([Counts(found, returned - found, true)], np.asarray(0.0), averaging)


def certified_counts(
    true: Rows[Floats], false: Rows[Floats] | None, num_true: Ints, rule: Rule, radius: Floats
) -> Iterator[Counts]:
    """What radii certify at each of some radii, some images at a time: memory does not grow with them."""
    for start in range(0, len(num_true), IMAGES_AT_A_TIME):
        part = slice(start, start + IMAGES_AT_A_TIME)
        floors = certified_sizes(true, radius, part)
        if false is None:
            assert rule.k is not None
            ceilings = rule.k - floors
        else:
            ceilings = false.lengths[part] - certified_sizes(false, radius, part)
        yield Counts(floors, ceilings, num_true[part].astype(np.float64))


def certified_sizes(rows: Rows[Floats], radius: Floats, part: slice = slice(None)) -> Floats:
    """(..., images) how many radii of each image reach each radius: `certified_size` of all images at once."""
    images = range(len(rows))[part]
    offsets = rows.offsets[images.start : images.stop + 1]
    values = rows.values[offsets[0] : offsets[-1]]
    if np.isnan(values).any() or not np.all(np.asarray(radius) >= 0):
        raise InvalidInputError(f"radii must be numbers, and a radius not negative, got {radius!r}")
    sizes = np.empty((np.size(radius), len(images)))
    reached = np.zeros(len(values) + 1, np.int64)
    for row, requested in zip(sizes, np.ravel(radius), strict=True):
        np.cumsum(values >= requested, out=reached[1:])
        row[:] = np.diff(reached[offsets - offsets[0]])
    return sizes.reshape(*np.shape(radius), len(images))


def average_scores(parts: Iterable[Counts], radius: Floats, averaging: Averaging) -> Scores:
    """Precision, recall and F1: the mean of the images' own, or of all labels pooled."""
    if averaging not in ("mean", "pooled"):
        raise InvalidInputError(f"unknown averaging {averaging!r}: choose 'mean' (per image) or 'pooled'")
    sums: list[Floats] = []
    images = without = 0
    for counts in parts:
        fractions = counts.fractions(averaging)
        if averaging == "mean":
            new = [ratio(*fraction).sum(axis=-1) for fraction in fractions]
        else:
            new = [each.sum(axis=-1) for fraction in fractions for each in fraction]
        new += [counts.floors[..., counts.labelled].sum(axis=-1), counts.ceilings.sum(axis=-1)]
        sums = [old + one for old, one in zip(sums, new, strict=True)] if sums else [np.asarray(one) for one in new]
        images, without = images + int(counts.labelled.sum()), without + int((~counts.labelled).sum())
    if not images:
        raise InvalidInputError(f"none of the {without} images has a true label, so there is nothing to average")
    *scores, floors, ceilings = sums
    if averaging == "mean":
        precision, recall, f1 = (np.asarray(each / images) for each in scores)
    else:
        precision, recall, f1 = (ratio(*scores[i : i + 2]) for i in (0, 2, 4))
    return Scores(
        radius,
        precision,
        recall,
        f1,
        true_floor=np.asarray(floors / images),
        false_ceiling=np.asarray(ceilings / (images + without)),
        images=images,
        without_labels=without,
    )


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """The quotient, and 0 wherever the numerator is: no true label is certified, whatever else may be returned."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=numerator > 0)


@dataclass(frozen=True, eq=False)
class LabelScores:
    """In which fraction of the images that have a label it is proved to be returned.

    Where pilot draws chose the labels, an image has those that were chosen.
    """

    label: str  # the name of the label
    images: int  # how many images have it; at least 1
    radius: Floats  # (radii,), as in `Scores`
    certified: Floats  # (radii,), the fraction of these images in which the label alone is certified at each radius
    failed: int  # how many images of the set could not be voted on; they count for no label

    __repr__ = short_repr


def label_scores(certificates: Certificates, radius: ArrayLike) -> list[LabelScores]:
    """For each label that some image has, in index order, how often its own radius reaches that far.

    >>> from multiguard import CertifyConfig, certify_votes, read_votes
    >>> proved = certify_votes(CertifyConfig(k=10, k_prime=3), read_votes(folder)).certificates  # votes of 5 images
    >>> [(scores.label, scores.images) for scores in label_scores(proved, [0.0, 0.25])]
    [('label 0', 3), ('label 1', 1)]
    """
    requested = check_radius(radius, certificates.noise)
    labels, radii = certificates.labels.values, certificates.label_radii.values
    order = np.argsort(labels, kind="stable")
    names, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    return [
        LabelScores(
            certificates.label_names[label],
            int(count),
            requested,
            np.array([np.mean(radii[order[start : start + count]] >= one) for one in requested]),
            len(certificates.failures),
        )
        for label, start, count in zip(names.tolist(), starts, counts, strict=True)
    ]


def check_radius(radius: ArrayLike, noise: Noise) -> Floats:
    """The radii as one row, if there is at least one, none is negative, and all are whole where they count pixels."""
    requested = check_radii(np.atleast_1d(np.asarray(radius, dtype=np.float64)), "radius")
    parts = requested[requested != np.floor(requested)]
    if noise.whole and len(parts):
        raise InvalidInputError(
            f"radius is {plain(parts[0])}, but counts pixels ({noise.attacker}); give whole numbers"
        )
    return requested


def failed_words(failed: int, total: int) -> str:
    """How many images could not be voted on, as a sentence without its full stop; empty where all could."""
    if not failed:
        return ""
    return f"{failed} of {total} images could not be voted on and {'is' if failed == 1 else 'are'} left out"
