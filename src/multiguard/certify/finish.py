"""One bet on all draws of the last block at once: on how many of them are ties, and that none is lost.

For S and T of one label each a draw is won where it hits S alone, lost where it hits T alone, and a tie otherwise. Let
lost have probability L and lost or tied M. While the pair is broken, down(1 - L) + down(1 - M) <= 1, so for some d from
1/2 to 1 both L >= 1 - up(d) and M >= 1 - up(1 - d). The event that no draw is lost and at most m are ties is the less
likely the larger L and M are. Its level is the most that it has for any such d; 1 / level, paid where it happens, has
mean at most 1. Draw by draw one would have to win against an L and M that change. `docs/theory.md` has the proof.
"""

from functools import lru_cache

import numpy as np
from scipy.special import gammaln, ndtr, xlogy

from multiguard.certify.arrays import Bools, Floats, Ints
from multiguard.certify.blocks import Block, Claim
from multiguard.certify.shifts import Shift

# At most so many ties are allowed.
_MOST_TIES = 64
# The scores of d.
_SCORES = np.concatenate([np.arange(0.0, 1.5, 0.002), np.linspace(1.5, 8.0, 80)])
# An r differs from another by more than this fraction of how uncertain it is.
_NEAR = 1 / 16
# What is needed is exceeded by this much: far more than rounding can take.
_MARGIN = 1e-6
_LEAST_LEVEL = 1e-300


@lru_cache(maxsize=4096)
def log_levels(draws: int, r: float, shift: Shift) -> Floats:
    """(ties,) log of the most that no lost draw and at most 0, 1, ... ties of so many draws can have while broken."""
    lost = 1 - shift.moved(shift.scores(np.append(ndtr(_SCORES[1:]), 1.0)), r)
    bad = 1 - shift.moved(shift.scores(ndtr(-_SCORES)), r)
    lost, bad = np.minimum(lost, bad)[:, None], np.minimum(bad, 1 - 1e-12)[:, None]
    ties = np.arange(min(_MOST_TIES, draws) + 1)
    ways = gammaln(draws + 1) - gammaln(ties + 1) - gammaln(draws - ties + 1)
    each = np.exp(ways + xlogy(ties, bad - lost) + (draws - ties) * np.log1p(-bad))
    levels: Floats = np.log(np.maximum(np.cumsum(each, axis=1).max(axis=0), _LEAST_LEVEL))
    return levels


def finish(
    block: Block, claim: Claim, outs: Ints, radii: Floats, needed: Floats, reached: tuple[Floats, Floats]
) -> tuple[Bools, Floats]:
    """(sets U, radii) where all draws of the block are bet on at once, and what is gained there: -inf or enough.

    It is done where nothing else is expected to be enough, one label in T does about as well as more, no draw was lost
    yet, and ties do not come too often.

    Args:
        block: The last block.
        claim: The claim; it has both U and V.
        outs: (sets U, d) the sets U.
        radii: The r.
        needed: (sets U, radii) what log K still lacks.
        reached: (sets U,) up to which r draw by draw is expected to be enough; the same with one label in T.
    """
    first, draws, shift = block.first, block.last - block.first, block.game.shift
    lost, tied = block.lost_and_tied(claim)
    inside = block.within(outs)[:, : len(lost)]
    chosen = np.where(inside, lost * (first + 1.0) + tied, np.inf).argmin(axis=1)
    expected = (tied[chosen] + 0.5) * draws / first
    least = np.maximum(expected - np.sqrt(expected * (1 + draws / first)), 0.0)
    near, (best, by_one) = _NEAR * shift.spread / np.sqrt(first), reached
    beyond = np.where((lost[chosen] > 0) | (by_one < best - near), np.inf, best + near)
    most, gained = np.full(needed.shape, -1), np.full(needed.shape, -np.inf)
    for at in np.flatnonzero(radii > beyond.min()).tolist():
        levels = log_levels(draws, float(radii[at]), shift)
        if -levels[0] < needed[:, at].min():
            break
        most[:, at] = np.searchsorted(levels, -needed[:, at] - _MARGIN, side="right") - 1
        gained[:, at] = -levels[most[:, at]]
    made = (most >= least[:, None]) & (radii > beyond[:, None]) & (needed > 0)
    for label in np.unique(chosen[made.any(axis=1)]).tolist():
        most_lost, most_bad = block.most_lost_and_bad(claim, label)
        gained[(chosen == label)[:, None] & ((most_lost > 0) | (most_bad > most))] = -np.inf
    return made, gained
