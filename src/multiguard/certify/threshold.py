"""Certificates of threshold classifiers: the smoothed one returns every label with p_i >= t."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.arguments import (
    check_count,
    checked_alpha,
    checked_distribution,
    checked_labels,
    checked_sets,
    checked_sigma,
    checked_threshold,
    checked_threshold_method,
    each_image,
)
from multiguard.certify.bounds import Bounds, ClopperPearson, Exact
from multiguard.certify.floor_ceiling import (
    independent_ceilings,
    independent_floors,
    joint_ceilings,
    joint_floors,
    stays_in,
    stays_out,
)
from multiguard.certify.group import Group, batches
from multiguard.certify.layers import scaled
from multiguard.certify.tally import Tally, tally_sets
from multiguard.certify.types import Floats, ThresholdMethod

# Ceilings of `joint` look at every subset of this many labels outside L, the most hit ones.
MOST_SUSPECTS = 6


@dataclass(frozen=True, eq=False)
class ThresholdRadii:
    """What is proved of g_t = {i : p_i >= t} around one image with the labels L, d of c.

    Attributes:
        true: (d,), non-increasing: at least e labels of L are in g_t for every perturbation of l2-norm <= true[e-1].
        false: (c - d,), non-decreasing: at most m labels outside L are in g_t for every perturbation of l2-norm <=
            false[m], m = 0..c-d-1.

    -inf where nothing is proved even at radius 0; radii are never rounded up.
    """

    true: Floats
    false: Floats


def threshold_radii(
    hits: ArrayLike,
    labels: ArrayLike,
    *,
    threshold: float,
    sigma: float,
    alpha: float = 0.001,
    method: ThresholdMethod = "joint",
) -> ThresholdRadii:
    """With probability at least 1 - alpha over the draws, every floor and every ceiling returned holds, all at once.

    The base classifier returns any set of labels for a draw; the smoothed classifier returns g_t = {i : p_i >= t}.
    The floors (how many labels of L stay in) and the ceilings (how many others come in) take half of alpha each. The
    promise is about one choice of `labels`, `threshold`, `sigma` and draws, made without looking at these votes.

    Args:
        hits: Boolean (draws, num_labels); row t marks the labels that the base classifier returned for draw t, any
            number of them. The draws are independent, their noise N(0, sigma^2) in each coordinate.
        labels: The indices of L, the labels that ought to be in; none is allowed.
        threshold: t, in (0, 1), fixed beforehand.
        sigma: The noise's standard deviation, in the unit of the input (pixels in [0, 1]) and of the radii.
        alpha: The error allowed.
        method: "joint" (the default: subsets of labels, draw by draw) or "independent" (each label by itself).
    """
    votes = checked_sets(hits)
    setting = checked_threshold_setting(threshold, alpha, method)
    sigma = checked_sigma(sigma)
    return solved_sets([set_tally(votes, labels, votes.shape[1])], setting, sigma, ClopperPearson())[0]


def threshold_radii_batch(
    hits: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    *,
    num_labels: int,
    threshold: float,
    sigma: float,
    alpha: float = 0.001,
    method: ThresholdMethod = "joint",
) -> list[ThresholdRadii]:
    """For each image the promise of `threshold_radii`, each with its own probability of at least 1 - alpha.

    Images are read one by one, so `hits` may be a generator. Each is boolean (draws, num_labels); images may differ
    in their number of draws. The other arguments are those of `threshold_radii`.
    """
    check_count("num_labels", num_labels, None)
    setting, sigma = checked_threshold_setting(threshold, alpha, method), checked_sigma(sigma)
    tallies = each_image(hits, labels, "hits", lambda votes, true: set_tally(votes, true, num_labels))
    return solved_sets(list(tallies), setting, sigma, ClopperPearson())


def exact_threshold_radii(
    vote_sets: ArrayLike,
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    threshold: float,
    sigma: float,
    method: ThresholdMethod = "joint",
) -> ThresholdRadii:
    """What `threshold_radii` would prove with infinitely many draws: nothing is estimated, nothing can fail.

    Args:
        vote_sets: Boolean (sets, num_labels), the sets that the base classifier can return.
        probabilities: (sets,) how probable each of them is; they sum to 1.
        labels: As in `threshold_radii`.
        threshold: As in `threshold_radii`.
        sigma: As in `threshold_radii`.
        method: As in `threshold_radii`.
    """
    sets = checked_sets(vote_sets)
    setting, sigma = checked_threshold_setting(threshold, 0.5, method), checked_sigma(sigma)
    weights = checked_distribution(probabilities, len(sets))
    return solved_sets([set_tally(sets, labels, sets.shape[1], weights)], setting, sigma, Exact())[0]


def threshold_label_radii(
    hits: ArrayLike, labels: ArrayLike, *, threshold: float, sigma: float, alpha: float = 0.001
) -> Floats:
    """For each label alone, with probability at least 1 - alpha: it stays in (of L) or out (not of L) up to its radius.

    The arguments are those of `threshold_radii`. Several labels' radii together hold with what is left of 1 after
    alpha for each.

    Returns:
        (num_labels,): for a label of L the radius up to which it stays in g_t, for any other the radius up to which it
        stays out; -inf where the draws do not decide it even at radius 0.
    """
    votes = checked_sets(hits)
    threshold, sigma, alpha = checked_threshold(threshold), checked_sigma(sigma), checked_alpha(alpha)
    inside = np.zeros(votes.shape[1], dtype=np.bool_)
    inside[checked_labels(labels, votes.shape[1], allow_none=True)] = True
    mass, draws, bounds = votes.sum(axis=0).astype(np.float64), np.array(float(len(votes))), ClopperPearson()
    kept, barred = bounds.lower(mass, draws, alpha), bounds.upper(mass, draws, alpha)
    return scaled(np.where(inside, stays_in(kept, threshold), stays_out(barred, threshold)), sigma)


@dataclass(frozen=True)
class ThresholdSetting:
    """What a certificate of the threshold rule is about: t, the error allowed, and how it is proved.

    `at` are the only r that matter, where that is known; a radius is then the largest of them that is proved.
    """

    threshold: float
    alpha: float
    method: ThresholdMethod
    at: tuple[float, ...] | None = None


@dataclass(frozen=True, eq=False)
class SetTally:
    """The votes of one image, tallied by its labels L, and by the labels outside L that were hit most."""

    true: Tally
    suspects: Tally


def checked_threshold_setting(threshold: float, alpha: float, method: str) -> ThresholdSetting:
    """t, alpha and the method, each within its range."""
    return ThresholdSetting(checked_threshold(threshold), checked_alpha(alpha), checked_threshold_method(method))


def set_tally(hits: ArrayLike, labels: ArrayLike, num_labels: int, weights: Floats | None = None) -> SetTally:
    """The tally of one image's sets; an image without labels is allowed."""
    votes = checked_sets(hits, num_labels)
    true = tally_sets(votes, checked_labels(labels, num_labels, allow_none=True), weights)
    outside = np.setdiff1d(np.arange(num_labels), true.labels)
    most_hit = outside[np.argsort(-true.label_mass[outside], kind="stable")][:MOST_SUSPECTS]
    return SetTally(true, tally_sets(votes, most_hit, weights))


def solved_sets(
    tallies: Sequence[SetTally], setting: ThresholdSetting, sigma: float, bounds: Bounds
) -> list[ThresholdRadii]:
    """The radii of each image; images with equally many labels are solved together."""
    radii: dict[int, ThresholdRadii] = {}
    for indices in batches([tally.true for tally in tallies], _numbers):
        chosen = [tallies[i] for i in indices]
        for i, true, false in zip(indices, *_floors_and_ceilings(chosen, setting, bounds), strict=True):
            radii[i] = ThresholdRadii(scaled(true, sigma), scaled(false, sigma))
    return [radii[i] for i in range(len(tallies))]


def _floors_and_ceilings(
    tallies: Sequence[SetTally], setting: ThresholdSetting, bounds: Bounds
) -> tuple[Floats, Floats]:
    group = Group([tally.true for tally in tallies])
    t, half, at = setting.threshold, setting.alpha / 2, setting.at
    joint = setting.method == "joint"
    floors = ceilings = np.empty((group.images, 0))
    if group.num_true:
        floors = (joint_floors if joint else independent_floors)(group, t, half, bounds, at)
    if group.num_true < group.num_labels and joint:
        ceilings = joint_ceilings(group, Group([tally.suspects for tally in tallies]), t, half, bounds, at)
    elif group.num_true < group.num_labels:
        ceilings = independent_ceilings(group, t, half, bounds, at)
    return floors, ceilings


def _numbers(num_true: int) -> int:
    """How many numbers the subsets of L and of the suspects take in one evaluation."""
    return int(min(1 << num_true, 4096) * num_true**2 + (1 << MOST_SUSPECTS) * MOST_SUSPECTS**2)
