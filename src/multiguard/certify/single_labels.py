"""What is proved of each label alone."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.arguments import check_alpha, check_labels, check_sigma, each_image
from multiguard.certify.arrays import Floats
from multiguard.certify.betting import BETTING_METHODS, betting_radii, course_of, floor_radii
from multiguard.certify.bounds import ClopperPearson
from multiguard.certify.counts import VoteCounts, check_votes, count_votes
from multiguard.certify.draws import read_draws
from multiguard.certify.layers import scale_radii
from multiguard.certify.radii import solve
from multiguard.certify.rules import Method, Rule, TopK
from multiguard.errors import InvalidInputError


def label_radii(
    votes: ArrayLike,
    labels: ArrayLike,
    rule: Rule,
    *,
    num_labels: int,
    sigma: float,
    alpha: float = 0.001,
    method: Method = "joint",
) -> Floats:
    """For each label alone, with probability at least 1 - alpha: it is returned up to its radius.

    For `TopK` that is against all other labels. Several labels together hold with what is left of 1 after alpha for
    each. The arguments are those of `certified_radii`; the method is "joint", "coupled" or "betting".

    Returns:
        (d,), in the order of `labels`; -inf where the draws do not decide it even at radius 0.

    >>> from multiguard.certify import Threshold
    >>> sets = np.array([[True, True], [True, False]] * 100)
    >>> label_radii(sets, [1, 0], Threshold(t=0.4), num_labels=2, sigma=0.5).round(3)
    array([-inf, 1.04])
    """
    options: dict[str, Any] = {"num_labels": num_labels, "sigma": sigma, "method": method}
    return label_radii_batch([votes], [labels], rule, alphas=[alpha], **options)[0]


def label_radii_batch(
    votes: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    rule: Rule,
    *,
    num_labels: int,
    sigma: float,
    alphas: Sequence[float],
    method: Method = "joint",
) -> list[Floats]:
    """For each image the promise of `label_radii`, each with an alpha of its own."""
    rule.check(num_labels)
    sigma, alphas = check_sigma(sigma), [check_alpha(alpha) for alpha in alphas]
    if method in BETTING_METHODS:
        levels = iter(alphas)

        def alone(given: ArrayLike, true: ArrayLike) -> Floats:
            return _bet_alone(method, given, true, rule, num_labels, sigma, next(levels))

        return list(each_image(votes, labels, alone))
    if method != "joint":
        raise InvalidInputError(f"the method of single labels must be joint, coupled or betting, got {method!r}")

    def read(given: ArrayLike, true: ArrayLike) -> list[VoteCounts]:
        check_labels(true, num_labels, allow_none=True)
        checked = check_votes(np.atleast_1d(given), rule, num_labels)
        return [count_votes(checked, [label], rule, num_labels) for label in np.asarray(true)]

    images = list(each_image(votes, labels, read))
    radii = [np.empty(0)] * len(images)
    for alpha in dict.fromkeys(alphas):
        same = [i for i, each in enumerate(alphas) if each == alpha]
        counts = [counts for i in same for counts in images[i]]
        solved = iter(solve(counts, rule, ClopperPearson(), sigma, alpha, None))
        for i in same:
            radii[i] = np.array([next(solved).true[0] for _ in images[i]])
    return radii


def _bet_alone(
    method: Method, votes: ArrayLike, labels: ArrayLike, rule: Rule, num_labels: int, sigma: float, alpha: float
) -> Floats:
    """(d,) the radius of each label of one image by a method that bets."""
    r = np.empty(np.size(labels))
    for i, label in enumerate(np.atleast_1d(labels)):
        draws = read_draws(votes, [label], rule, num_labels)
        course = course_of(method, draws)
        if isinstance(rule, TopK):
            r[i] = betting_radii(draws, rule, alpha, course)[0][0]
        else:
            r[i] = floor_radii(draws, rule, alpha, course)[0]
    return scale_radii(r, sigma)
