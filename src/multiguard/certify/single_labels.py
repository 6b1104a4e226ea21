"""What is proved of each label alone."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.arguments import check_alpha, check_labels, each_image
from multiguard.certify.arrays import Floats
from multiguard.certify.betting import BETTING_METHODS, betting_radii, floor_radii, read_bets
from multiguard.certify.bounds import ClopperPearson
from multiguard.certify.counts import VoteCounts, check_votes, count_votes
from multiguard.certify.enumerated import enumerated_radii
from multiguard.certify.noise import BandAblation, Noise
from multiguard.certify.noise_arguments import resolve_noise
from multiguard.certify.radii import solve
from multiguard.certify.rules import Method, Rule, TopK, check_method, default_label_method
from multiguard.errors import InvalidInputError

# The methods that prove what is claimed of a single label.
LABEL_METHODS: tuple[Method, ...] = ("joint", "enumerated", *BETTING_METHODS)


def label_radii(
    votes: ArrayLike,
    labels: ArrayLike,
    rule: Rule,
    *,
    num_labels: int,
    sigma: float | None = None,
    noise: Noise | None = None,
    alpha: float = 0.001,
    method: Method | None = None,
) -> Floats:
    """For each label alone, with probability at least 1 - alpha: it is returned up to its radius.

    For `TopK` that is against all other labels. Several labels together hold with what is left of 1 after alpha for
    each. The arguments are those of `certified_radii`; the method is "joint", the default, "coupled" or "betting", or
    "enumerated" for a band.

    Returns:
        (d,), in the order of `labels`; -inf where the draws do not decide it even at radius 0.

    >>> from multiguard.certify import Threshold
    >>> sets = np.random.default_rng(0).permutation([[True, True], [True, False]] * 100)
    >>> label_radii(sets, [1, 0], Threshold(t=0.4), num_labels=2, sigma=0.5).round(3)
    array([-inf, 1.04])
    """
    options: dict[str, Any] = {"num_labels": num_labels, "sigma": sigma, "noise": noise, "method": method}
    return label_radii_batch([votes], [labels], rule, alphas=[alpha], **options)[0]


def label_radii_batch(
    votes: Iterable[ArrayLike],
    labels: Iterable[ArrayLike],
    rule: Rule,
    *,
    num_labels: int,
    alphas: Sequence[float],
    sigma: float | None = None,
    noise: Noise | None = None,
    method: Method | None = None,
) -> list[Floats]:
    """For each image the promise of `label_radii`, each with an alpha of its own."""
    rule.check(num_labels)
    resolved, alphas = resolve_noise(sigma, noise), [check_alpha(alpha) for alpha in alphas]
    method = method or default_label_method(resolved)
    if method not in LABEL_METHODS:
        raise InvalidInputError(
            f"the method of single labels must be joint, coupled, betting or enumerated, got {method!r}"
        )
    by = check_method(method, rule, resolved)
    if by != "joint":
        levels = iter(alphas)

        def alone(given: ArrayLike, true: ArrayLike) -> Floats:
            return _alone(by, given, true, rule, num_labels, resolved, next(levels))

        return list(each_image(votes, labels, alone))

    def read(given: ArrayLike, true: ArrayLike) -> list[VoteCounts]:
        check_labels(true, num_labels, allow_none=True)
        checked = check_votes(np.atleast_1d(given), rule, num_labels)
        return [count_votes(checked, [label], rule, num_labels) for label in np.asarray(true)]

    images = list(each_image(votes, labels, read))
    radii = [np.empty(0)] * len(images)
    for alpha in dict.fromkeys(alphas):
        same = [i for i, each in enumerate(alphas) if each == alpha]
        counts = [counts for i in same for counts in images[i]]
        solved = iter(solve(counts, rule, ClopperPearson(), resolved, alpha, None))
        for i in same:
            radii[i] = np.array([next(solved).true[0] for _ in images[i]])
    return radii


def _alone(
    method: Method, votes: ArrayLike, labels: ArrayLike, rule: Rule, num_labels: int, noise: Noise, alpha: float
) -> Floats:
    """(d,) the radius of each label of one image by a method that bets or enumerates."""
    own = [[label] for label in np.atleast_1d(labels).tolist()]
    if isinstance(noise, BandAblation):
        return np.array([enumerated_radii(votes, label, rule, num_labels, noise)[0][0] for label in own])
    r = np.empty(len(own))
    for i, label in enumerate(own):
        draws, course = read_bets(method, votes, label, rule, num_labels)
        if isinstance(rule, TopK):
            r[i] = betting_radii(draws, rule, alpha, noise, course)[0][0]
        else:
            r[i] = floor_radii(draws, rule, alpha, noise, course)[0]
    return noise.radii(r)
