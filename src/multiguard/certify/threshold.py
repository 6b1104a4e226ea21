"""Certificates of threshold classifiers: the smoothed one returns every label with p_i >= t."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

from multiguard.certify.types import Floats

ThresholdMethod = Literal["joint", "independent"]


@dataclass(frozen=True, eq=False)
class ThresholdRadii:
    """What is proved of g_t = {i : p_i >= t} around one picture with the labels L, d of c.

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
    raise NotImplementedError


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
    """For each picture the promise of `threshold_radii`, each with its own probability of at least 1 - alpha.

    Pictures are read one by one, so `hits` may be a generator. Each is boolean (draws, num_labels); pictures may differ
    in their number of draws. The other arguments are those of `threshold_radii`.
    """
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError
