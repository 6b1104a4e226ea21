"""From votes to certified radii: the front door of this room."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.arguments import (
    check_rows,
    checked_distribution,
    checked_hits,
    checked_labels,
    checked_method,
    checked_setting,
    checked_sigma,
    each_image,
)
from multiguard.certify.bounds import Bounds, ClopperPearson, Exact
from multiguard.certify.group import Group, Setting, batches
from multiguard.certify.joint import joint_radii
from multiguard.certify.layers import scaled
from multiguard.certify.tally import Tally, checked_ranked, tally_hits, tally_ranked
from multiguard.certify.theorem1 import jia_radii, paper_radii
from multiguard.certify.types import Floats, Method
from multiguard.errors import InvalidInputError

_SOLVERS: dict[Method, Callable[[Group, Setting, Bounds], Floats]] = {
    "joint": joint_radii,
    "paper": paper_radii,
    "independent": partial(paper_radii, second_terms=False),
    "jia": jia_radii,
    "cohen": paper_radii,
}


def certified_radii(
    hits: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    k_prime: int,
    sigma: float,
    alpha: float = 0.001,
    method: Method = "joint",
) -> Floats:
    """With probability at least 1 - alpha over the draws, size e survives every perturbation of l2-norm <= radii[e-1].

    "Size e survives" means that at least e labels of L are among the k labels that the smoothed classifier returns.
    For `joint`, `paper`, `independent` and `cohen` the promise covers all sizes and radii at once; for `jia`, each
    size (or the certified size at each fixed radius) alone. It is about one choice of `labels`, `k`, `k_prime`,
    `sigma` and draws, made without looking at these votes; `labels` picked from the votes void it.

    Args:
        hits: Boolean (draws, num_labels); row t marks the k' labels that the base classifier returned for draw t.
            The draws are independent, their noise N(0, sigma^2) in each coordinate.
        labels: The indices of L, the labels to protect (the ground truth), d of them.
        k: How many labels the smoothed classifier returns.
        k_prime: How many labels the base classifier returns, k'.
        sigma: The noise's standard deviation, in the unit of the input (pixels in [0, 1]) and of the radii.
        alpha: The error allowed.
        method: "joint" (the default), "paper" (Theorem 1, corrected), "independent" (Theorem 1 without its joint
            terms), "jia" (each label on its own) or "cohen" (k = k' = d = 1).

    Returns:
        float64 (min(d, k),), non-increasing: entry e-1 is the largest radius proved for size e, never rounded up;
        -inf where e is not proved even at radius 0, +inf where it cannot fail.
    """
    votes = checked_hits(hits)
    setting = checked_setting(k, k_prime, alpha, votes.shape[1])
    sigma, method = checked_sigma(sigma), checked_method(method)
    check_rows(votes, k_prime)
    tally = tally_hits(votes, checked_labels(labels, votes.shape[1]), k_prime)
    return solved_ranked([tally], setting, sigma, method, ClopperPearson())[0]


def certified_radii_batch(
    ranked: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    *,
    num_labels: int,
    k: int,
    k_prime: int,
    sigma: float,
    alpha: float = 0.001,
    method: Method = "joint",
) -> list[Floats]:
    """For each image the promise of `certified_radii`, each with its own probability of at least 1 - alpha.

    Images are read one by one, so `ranked` may be a generator over votes that do not fit in memory.

    Args:
        ranked: For each image its ranked votes (draws, K') of integers, from the highest score down; the first k'
            of each row are used. Images may differ in their number of draws.
        labels: For each image the indices of its true labels; none is allowed.
        num_labels: c, the number of labels there are.
        k: As in `certified_radii`.
        k_prime: As in `certified_radii`.
        sigma: As in `certified_radii`.
        alpha: As in `certified_radii`.
        method: As in `certified_radii`.

    Returns:
        For each image its radii, (min(d, k),); an image without labels has an empty array, a claim about nothing.
    """
    setting = checked_setting(k, k_prime, alpha, num_labels)
    sigma, method = checked_sigma(sigma), checked_method(method)
    tallies = each_image(
        ranked, labels, "ranked", lambda votes, true: ranked_tally(votes, true, setting.k_prime, num_labels)
    )
    return solved_ranked(list(tallies), setting, sigma, method, ClopperPearson())


def exact_radii(
    vote_sets: ArrayLike,
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    k: int,
    k_prime: int,
    sigma: float,
    method: Method = "joint",
) -> Floats:
    """Size e survives every perturbation of l2-norm <= radii[e-1], given the exact distribution of the votes.

    What `certified_radii` would prove with infinitely many draws: nothing is estimated, nothing can fail.

    Args:
        vote_sets: Boolean (sets, num_labels), the sets of k' labels that the base classifier can return.
        probabilities: (sets,) how probable each of them is; they sum to 1.
        labels: As in `certified_radii`.
        k: As in `certified_radii`.
        k_prime: As in `certified_radii`.
        sigma: As in `certified_radii`.
        method: As in `certified_radii`.

    Returns:
        float64 (min(d, k),), as `certified_radii` returns it.
    """
    sets = checked_hits(vote_sets)
    setting = checked_setting(k, k_prime, 0.5, sets.shape[1])
    sigma, method = checked_sigma(sigma), checked_method(method)
    check_rows(sets, k_prime)
    weights = checked_distribution(probabilities, len(sets))
    tally = tally_hits(sets, checked_labels(labels, sets.shape[1]), k_prime, weights)
    return solved_ranked([tally], setting, sigma, method, Exact())[0]


def ranked_tally(votes: ArrayLike, labels: ArrayLike, k_prime: int, num_labels: int) -> Tally:
    """The tally of one image's ranked votes; an image without labels is allowed."""
    chosen = checked_ranked(votes, k_prime=k_prime, num_labels=num_labels)
    return tally_ranked(chosen, checked_labels(labels, num_labels, allow_none=True), k_prime, num_labels)


def solved_ranked(
    tallies: Sequence[Tally], setting: Setting, sigma: float, method: Method, bounds: Bounds
) -> list[Floats]:
    """The radii of each image; images with equally many labels are solved together."""

    def numbers(num_true: int) -> int:
        return (min(1 << num_true, 4096) + setting.k) * setting.k_prime * min(num_true, setting.k)

    radii: list[Floats] = [np.empty(0)] * len(tallies)
    for indices in batches(tallies, numbers):
        num_true = len(tallies[indices[0]].labels)
        if num_true == 0:
            continue
        if method == "cohen" and not setting.k == setting.k_prime == num_true == 1:
            raise InvalidInputError(
                f"method 'cohen' is the case k = k_prime = 1 with one true label, got k = {setting.k}, "
                f"k_prime = {setting.k_prime} and {num_true} labels; use 'joint' or 'paper'"
            )
        solved = _SOLVERS[method](Group([tallies[i] for i in indices]), setting, bounds)
        for i, r in zip(indices, solved, strict=True):
            radii[i] = scaled(r, sigma)
    return radii
