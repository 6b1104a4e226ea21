"""log K, the wealth of bets against every pair (U, V): lower bounds from the draws of one image.

A course says when bets are chosen and by when they should have reached what they need. It is fixed beforehand: it knows
nothing of the votes, so K of the first n draws is the same whatever follows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations, pairwise

import numpy as np

from multiguard.certify.arrays import Floats, Ints
from multiguard.certify.bets import Game, breaking, kelly_stakes, law_of, payoffs, scores_of, smoothed, stakes
from multiguard.certify.blocks import Block, Claim
from multiguard.certify.counts import MOST_SUBSET_LABELS
from multiguard.certify.draws import Draws

# The draws after which the bets of `anytime` are chosen again, from all draws before; those before the first are not
# bet on. They aim at the next of _HORIZONS, and never hurry more than with this fraction of it left.
BETTING_CUTS = (30, 100, 200, 500, *(m * 10**e for e in range(3, 9) for m in (1, 2, 5)))
_HORIZONS, _LEAST_LEFT = tuple(10**e for e in range(3, 10)), 0.3
# The same for a number of draws that is fixed beforehand, as fractions of it.
_FIXED_CUTS, _LEAST_CUT = (0.05, 0.15, 0.4), 20
# Stakes are chosen again so many times from one cut to the next, and aim at so much more than is needed.
_STEPS, _BEYOND = 6, 1e-3
# The most steps in the search for the r that an option reaches, and how near to what is needed ends it.
_REACH_STEPS, _LEAST_PART, _CLOSE = 7, 0.25, 0.02
# That r is uncertain; bets are made for so many r from what is expected to what is likely, and for few r far below.
_FINE = 64
# There is no hope, and no bet, where so many times the growth expected at r = 0 would be too little.
_HOPE = 4.0
# A claim without hope before the first cut has this fraction of the alpha of one with hope.
_HOPELESS = 0.02


@dataclass(frozen=True)
class Course:
    """When bets are chosen, and what for.

    Attributes:
        cuts: The draws after which S, T and the scores are chosen again, from all draws before.
        horizon: From a number of draws to the one by which bets made then should have reached what they need.
        least_left: Bets never hurry more than with this fraction of the horizon left.
        is_eager: Whether draws that promise more than the horizon needs are bet on as they are, to get there sooner.
    """

    cuts: tuple[int, ...]
    horizon: Callable[[int], int]
    least_left: float = 0.0
    is_eager: bool = False

    def blocks(self, draws: int) -> list[tuple[int, int, int]]:
        """The first draw of each block that has begun, the next cut, and where the block ends by now."""
        return [(cut, planned, min(planned, draws)) for cut, planned in pairwise(self.cuts) if cut < draws]


ANYTIME = Course(
    BETTING_CUTS, lambda draws: next(most for most in _HORIZONS if most > draws), _LEAST_LEFT, is_eager=True
)


def fixed_course(draws: int) -> Course:
    """The course for a number of draws that is fixed beforehand."""
    cuts = sorted({min(draws, max(_LEAST_CUT, round(fraction * draws))) for fraction in _FIXED_CUTS})
    return Course((*cuts, draws), lambda _: draws)


def wealth(draws: Draws, game: Game, claims: Sequence[Claim], radii: Floats, course: Course = ANYTIME) -> Floats:
    """(claims, radii) log K of the weakest pair of each claim, the best value that it had at the end of a step.

    `radii` rise.
    """
    ends = course.blocks(draws.count)
    if not ends:
        return np.zeros((len(claims), len(radii)))
    blocks = [Block(draws, (first, last), planned, game, claims) for first, planned, last in ends]
    best = np.zeros((len(claims), len(radii)))
    for row, claim in zip(best, claims, strict=True):
        row[:] = _best_wealth(blocks, claim, radii, course)
        if not row.any():  # so has no stronger claim
            break
    return best


def settle(draws: Draws, game: Game, claims: Sequence[Claim], course: Course) -> list[Claim]:
    """The same claims with alpha divided again: those without hope have a small part of it.

    Only the draws before the first cut decide, and none of these is bet on.
    """
    ends = course.blocks(draws.count)
    if len(claims) < 2 or not ends:
        return list(claims)
    first, planned, last = ends[0]
    block = Block(draws, (first, last), planned, game, claims)
    parts = np.exp([-claim.needed for claim in claims])
    kept = np.full(len(claims), _HOPELESS)
    for row, claim in enumerate(claims):
        if not Bets(block, claim, _sets(block, claim), course).is_hopeful:
            break
        kept[row] = 1.0
    settled = parts * kept * (parts.sum() / (parts * kept).sum())
    return [replace(claim, needed=float(-np.log(part))) for claim, part in zip(claims, settled, strict=True)]


def _best_wealth(blocks: Sequence[Block], claim: Claim, radii: Floats, course: Course) -> Floats:
    """(radii,) the least over U of the best wealth."""
    outs = _sets(blocks[0], claim)
    now = np.zeros((len(outs), len(radii)))
    best = now.copy()
    for block in blocks:
        bets = Bets(block, claim, outs, course)
        grid = bets.grid(radii)
        if len(grid) == 0:
            continue
        at = np.searchsorted(grid, radii)
        made = at < len(grid)
        most, last = bets.gains(grid, at[made], now[:, made])
        best[:, made] = np.maximum(best[:, made], now[:, made] + most)
        now[:, made] += last
    least: Floats = best.min(axis=0)
    return least


class Bets:
    """The bets in one block: for each U the S and v that are expected to reach the largest r."""

    def __init__(self, block: Block, claim: Claim, outs: Ints, course: Course) -> None:
        self.block, self.claim, self.course = block, claim, course
        self.options = block.options(claim)
        self.law = smoothed(self.options.counts, self.options.ladder.possible, self.options.unseen)
        self.scores = scores_of(self.law, block.game.shift)
        self.ends = breaking(self.scores, self.options.ladder.gaps, self.options.ladder.least, block.game.shift)
        self._inside = np.repeat(block.within(outs), len(self.options.sizes), axis=1)
        self._at_zero = self._growth(np.arange(len(self.ends)), np.zeros_like(self.ends))

    @property
    def is_hopeful(self) -> bool:
        """Whether so much growth is expected at r = 0 that the claim may be made."""
        return float(np.where(self._inside, self._at_zero, -np.inf).max(axis=1).min()) >= 1 / _HOPE - 1

    @cached_property
    def _reached(self) -> Floats:
        """(sets U, options) up to which r each option is expected to reach what is needed; negative where none is."""
        reach = np.where(self._at_zero >= 0, _root(self._growth, self._at_zero, self.ends), self._at_zero)
        return np.where(self._inside, reach, -np.inf)

    @property
    def chosen(self) -> Ints:
        """(sets U,) the option of each."""
        chosen: Ints = self._reached.argmax(axis=1)
        return chosen

    @property
    def reach(self) -> float:
        """The r that is expected to be reached, for the weakest U."""
        return float(self._reached.max(axis=1).min())

    def grid(self, radii: Floats) -> Floats:
        """The r that bets are made for, none without hope; a bet made for one r is a bet for every smaller one too."""
        if not self.is_hopeful:
            return radii[:0]
        spread = self.block.game.shift.spread / np.sqrt(self.block.first)
        near = self.reach + spread * np.arange(-_FINE, 2 * _FINE + 1) / _FINE
        below = near[0] - spread * 2.0 ** np.arange(6)
        listed = np.searchsorted(radii, np.concatenate([below[::-1], near]))
        return radii[np.unique(listed[(listed < len(radii))])]

    def gains(self, grid: Floats, at: Ints, before: Floats) -> tuple[Floats, Floats]:
        """(sets U, radii) the most that every pair gains at the end of a step, and what it has gained at the last.

        Args:
            grid: The r of the bets.
            at: (radii,) which of them each r has.
            before: (sets U, radii) the wealth before the block.
        """
        rows = self.chosen[:, None] * len(grid) + at
        pairs, which = np.unique(rows, return_inverse=True)
        which = which.reshape(rows.shape)
        start = np.full(len(pairs), np.inf)
        np.minimum.at(start, which, before)
        option, r = pairs // len(grid), grid[pairs % len(grid)]
        gained = np.array(list(self._steps(option, r, start)))
        return gained.max(axis=0)[which], gained[-1][which]

    def _steps(self, option: Ints, r: Floats, start: Floats) -> Iterator[Floats]:
        """(pairs,) what is gained by the end of each step, for these options and r, from this wealth on."""
        law, x = self._fair(option, r)
        least = kelly_stakes(self.law[option], x) if self.course.is_eager else np.zeros(len(option))
        slots = self._slots(option)
        ends = self.block.steps(_STEPS)
        parts = [slice(*part) for part in pairwise([*np.flatnonzero(np.diff(option, prepend=-1)), len(option)])]
        tallies = [self.block.tally(self.claim, *self._option(int(option[part.start])), ends) for part in parts]
        gained = np.zeros(len(option))
        for step, first in enumerate([self.block.first, *ends[:-1]]):
            rate = (self.claim.needed + _BEYOND - start - gained) / self._left(first)
            stake = np.where(rate > 0, np.maximum(stakes(law, x, rate), least), 0.0)
            along = np.log1p(stake[:, None] * x)
            logs = np.zeros((len(option), self.block.game.slots))
            np.put_along_axis(logs, slots, along, axis=1)
            for part, tally in zip(parts, tallies, strict=True):
                gained[part] = tally.add(step, logs[part])
            yield gained.copy()

    def _left(self, first: int) -> float:
        horizon = self.course.horizon(first)
        return max(horizon - first, self.course.least_left * horizon)

    def _option(self, option: int) -> tuple[int, int]:
        """The index of S, and v."""
        subset, size = divmod(option, len(self.options.sizes))
        return subset, self.options.sizes[size]

    def _slots(self, option: Ints) -> Ints:
        """(pairs, cells) where the cells along the ladders lie in a table of a by b."""
        a, b = self.block.game.cells()
        slots: Ints = (a * (self.block.game.most_out + 1) + b)[self.options.ladder.order[option]]
        return slots

    def _fair(self, option: Ints, r: Floats) -> tuple[Floats, Floats]:
        """(pairs, cells) the law that just breaks at r, and the payoffs that have mean 0 for it."""
        gaps, least = self.options.ladder.gaps[option], self.options.ladder.least[option]
        scores = self.scores[option] - (self.ends[option] - r)[:, None]
        shift = self.block.game.shift
        return law_of(scores, shift), payoffs(scores, gaps, least, r, shift)

    def _growth(self, option: Ints, r: Floats) -> Floats:
        """(pairs,) the growth that is expected of each of these options for its r, above what is needed, over that."""
        needed = self.claim.needed / self.course.horizon(self.block.first)
        law, x = self._fair(option, r)
        log_g = np.log1p(stakes(law, x, np.full(len(option), needed))[:, None] * x)
        expected: Floats = np.einsum("ij,ij->i", self.law[option], log_g) / needed - 1
        return expected


def _root(growth: Callable[[Ints, Floats], Floats], at_zero: Floats, ends: Floats) -> Floats:
    """(rows,) about where each growth, at least 0 at r = 0 and below 0 at the end, is 0; it is nearly linear in r."""
    r, low, high, now = np.zeros_like(ends), np.zeros_like(ends), ends.copy(), at_zero.copy()
    left = np.flatnonzero(at_zero >= 0)
    for _ in range(_REACH_STEPS):
        if len(left) == 0:
            break
        guess = ends - (ends - r) / np.maximum(now / 2 + 1, _LEAST_PART)
        r[left] = np.where((low < guess) & (guess < high), guess, (low + high) / 2)[left]
        now[left] = growth(left, r[left])
        low, high = np.where(now >= 0, r, low), np.where(now >= 0, high, r)
        left = left[np.abs(now[left]) > _CLOSE]
    return r


@cache
def _sets_out(num_true: int, out: int) -> Ints:
    """(sets, d) every U."""
    sets = list(combinations(range(num_true), out))
    marks = np.zeros((len(sets), num_true), np.int64)
    for row, members in enumerate(sets):
        marks[row, list(members)] = 1
    return marks


def _sets(first: Block, claim: Claim) -> Ints:
    """(sets, d) every U; for many labels single ones such that every U contains one, the likeliest before `first`."""
    d = len(first.order)
    if d <= MOST_SUBSET_LABELS or claim.out == 0:
        return _sets_out(d, claim.out)
    return np.eye(d, dtype=np.int64)[first.order[: d - claim.out + 1]]
