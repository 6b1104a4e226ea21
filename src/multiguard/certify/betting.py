"""The betting certificate: one number per draw, valid at every number of draws.

If fewer than e labels of L survive, some pair (U, V) is broken: U in L with |U| = d - e + 1 is out, V outside L with
|V| = k - e + 1 is in. Each draw is a bet against the pair, chosen from earlier draws, whose payoff has mean at most 1
while the pair is broken at r. So K, the product of the payoffs, ever reaches 1/a with probability at most a (Ville).
Size e is claimed at r once K has reached E / alpha for every pair, at r and at every smaller r of a list fixed
beforehand; E is the number of sizes. `docs/theory.md` has the proof.
"""

from collections.abc import Callable

import numpy as np

from multiguard.certify.arrays import Bools, Floats
from multiguard.certify.bets import Game
from multiguard.certify.blocks import Claim
from multiguard.certify.counts import MOST_SUBSET_LABELS
from multiguard.certify.draws import Draws
from multiguard.certify.layers import At
from multiguard.certify.rules import Rule, Threshold, TopK
from multiguard.certify.wealth import wealth

# The r = R / sigma at which claims are made; between two of them the smaller one counts.
BETTING_RADII: Floats = np.arange(251) / 50
# T has at most so many labels where a draw may hit any number of them.
_MOST_TOGETHER = 6
# log K must exceed what is needed by this much, and by so much more per draw: far more than rounding can add.
_SLACK, _SLACK_PER_DRAW = 1e-8, 1e-12


def betting_radii(draws: Draws, rule: Rule, alpha: float, at: At = None) -> tuple[Floats, Floats | None]:
    """The r, (sizes,), up to which each size is claimed, and for `Threshold` (c - d,) those of the ceilings.

    With `at`, the only r that matter, a radius is the largest of them that is claimed.
    """
    if isinstance(rule, TopK):
        return _sizes(draws, rule, alpha, at), None
    return floor_radii(draws, rule, alpha / 2, at), ceiling_radii(draws, rule, alpha / 2, at)


def floor_radii(draws: Draws, rule: Threshold, alpha: float, at: At = None) -> Floats:
    """(d,) the r up to which at least 1, 2, ..., d labels of L are claimed to stay in."""
    d = draws.num_true
    return _staircase(draws, Game(min(d, _most_subset(d)), 0, d, rule.t), [(d - e, 0) for e in range(d)], alpha, at)


def ceiling_radii(draws: Draws, rule: Threshold, alpha: float, at: At = None) -> Floats:
    """(c - d,) the r up to which at most 0, 1, ... labels outside L are claimed to come in."""
    most = min(draws.rivals, _MOST_TOGETHER)
    pairs = [(0, m + 1) for m in range(draws.rivals)]
    return _staircase(draws, Game(0, most, most, rule.t), pairs[::-1], alpha, at, _earlier_more)[::-1]


def _sizes(draws: Draws, rule: TopK, alpha: float, at: At) -> Floats:
    """(min(d, k),) the r of each size; +inf where the labels outside L are too few to push it out."""
    d, sizes = draws.num_true, min(draws.num_true, rule.k)
    certain = min(sizes, max(0, rule.k - draws.rivals))
    pairs = [(d - e + 1, rule.k - e + 1) for e in range(certain + 1, sizes + 1)]
    most_in = min(rule.k_prime, _most_subset(d))
    game = Game(most_in, min(rule.k_prime, max((into for _, into in pairs), default=1)), rule.k_prime)
    return np.concatenate([np.full(certain, np.inf), _staircase(draws, game, pairs, alpha, at)])


def _equal(claims: int) -> Floats:
    return np.full(claims, 1 / claims)


def _earlier_more(claims: int) -> Floats:
    """Fractions for claims in falling order of |V|: like 1/2, 1/6, 1/12, ... for |V| = 1, 2, 3, ..."""
    sizes = np.arange(claims, 0, -1)
    return (1 + 1 / claims) / (sizes * (sizes + 1)) * (1 - 1e-12)


def _staircase(
    draws: Draws,
    game: Game,
    pairs: list[tuple[int, int]],
    alpha: float,
    at: At,
    fractions: Callable[[int], Floats] = _equal,
) -> Floats:
    """The r of each claim, given (|U|, |V|) of the claims from the weakest to the strongest; they never rise.

    All claims hold at once: each has its fraction of alpha. Where fewer r matter than there are claims, each has alpha
    divided by the number of these r instead, and a claim needs all weaker ones.
    """
    if not pairs:
        return np.empty(0)
    radii = BETTING_RADII if at is None else np.unique(np.array(at, dtype=np.float64))
    nested = len(radii) < len(pairs)
    parts = np.full(len(pairs), 1 / len(radii)) if nested else fractions(len(pairs))
    claims = [Claim(out, into, float(-np.log(alpha * part))) for (out, into), part in zip(pairs, parts, strict=True)]
    proved = is_proved(wealth(draws, game, claims, radii), claims, draws.count)
    held: Bools = np.logical_and.accumulate(proved, axis=1)
    if nested:
        held = np.logical_and.accumulate(held, axis=0)
    r = np.append(-np.inf, radii)[held.sum(axis=1)]
    return np.maximum.accumulate(r[::-1])[::-1]


def is_proved(log_k: Floats, claims: list[Claim], draws: int) -> Bools:
    """(claims, radii) whether the wealth of the weakest pair suffices."""
    needed = np.array([claim.needed for claim in claims])
    return log_k >= needed[:, None] + _SLACK + _SLACK_PER_DRAW * draws


def _most_subset(num_true: int) -> int:
    """The most labels that a set S can have."""
    return num_true if num_true <= MOST_SUBSET_LABELS else 1
