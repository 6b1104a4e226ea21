"""log K, the wealth of bets against every pair (U, V): lower bounds from the draws of one image.

A draw that hits a labels of S and b labels of T loses psi(a, b) = log g(a, 0) - log g(a, b) to T. Let F(T) be the sum
over draws. psi is convex in b, so F is supermodular. It is bounded for every T of v labels by the sum of the v largest
weights, psi(a, B) / B for each hit on the label, B the hits on all labels T can hold; and by counting: exactly for
every T among the few labels that come first, and for other T from the best one with a label less. The order is that of
earlier draws: stakes follow from these bounds, and must not know the draws to come. `docs/theory.md` has the proof.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from itertools import combinations, pairwise, takewhile
from math import comb

import numpy as np

from multiguard.certify.arguments import Bools, Floats, Ints
from multiguard.certify.bets import (
    Claim,
    Game,
    Ladders,
    breaking,
    kelly_stakes,
    ladders,
    law_of,
    most_growth,
    payoffs,
    scores_of,
    smoothed,
    stakes,
)
from multiguard.certify.draws import MOST_SUBSET_LABELS, Draws
from multiguard.certify.layers import Shift

# The draws after which the bets of `anytime` are chosen again, from all draws before; those before the first are not
# bet on. They aim at the next of _HORIZONS, and never hurry more than with this fraction of it left.
BETTING_CUTS = (30, 100, 200, 500, *(m * 10**e for e in range(3, 9) for m in (1, 2, 5)))
_HORIZONS, _LEAST_LEFT = tuple(10**e for e in range(3, 10)), 0.3
# The same for a number of draws that is fixed beforehand, as fractions of it.
_FIXED_CUTS, _LEAST_CUT = (0.05, 0.15, 0.4), 20
# How often stakes are chosen from one cut to the next, and how much more than is needed they aim at.
_STEPS, _BEYOND = 6, 1e-3
# The most steps in the search for the r that an option reaches, and how near to what is needed ends it.
_REACH_STEPS, _LEAST_PART, _CLOSE = 7, 0.25, 0.02
# That r is uncertain; bets are made for this many r from what is expected to what is likely, and for few r far below.
_FINE = 64
# An r that is proved is seldom further above the one expected from most draws.
_ABOVE = 0.3
# There is no hope, and no bet, where this multiple of the growth expected at r = 0 would be too little.
_HOPE = 4.0
# A claim without hope before the first cut has this fraction of the alpha of one with hope.
_HOPELESS = 0.02
# Draws that were never seen are added to those seen, and a v-th of the second number for a T of v labels: the
# fewer labels T has, the more the worst T differs from the others.
_UNSEEN, _UNSEEN_PER_SIZE = 1.4, 1.0
# The sizes v of T that are tried, with |V| itself.
_SIZES = (1, 2, 3, 4, 6, 8, 10, 13, 17, 22, 28, 36, 46, 60, 78, 100)
# Under the threshold rule T has at most this many labels.
MOST_TOGETHER = 6
# The most sets that are counted to bound what any T has lost, and to find a T that is hard to refute; and of how many
# labels at most.
_MOST_SETS, _MOST_HARD, _MOST_COUNTED = 130, 60, 16
_HOPEFUL: dict[tuple[bytes, Game, tuple[Claim, ...]], int] = {}  # what was found of so many images at most
_MOST_HOPEFUL = 20_000


@dataclass(frozen=True)
class Course:
    """When bets are chosen, and what for; fixed beforehand: K of the first n draws is the same whatever follows.

    S, T and the scores are chosen again after the draws `cuts`, from all draws before; bets should have reached what
    they need by `horizon` of the draws then, and never hurry more than with `least_left` of it left. If `is_eager`,
    draws that promise more than that needs are bet on as they are, to get there sooner.
    """

    cuts: tuple[int, ...]
    horizon: Callable[[int], int]
    least_left: float = 0.0
    is_eager: bool = False

    def left(self, first: int) -> float:
        """How many draws are taken to be left after this number of draws."""
        horizon = self.horizon(first)
        return max(horizon - first, self.least_left * horizon)

    def blocks(self, draws: Draws, game: Game, claims: Sequence[Claim]) -> "list[Block]":
        """The blocks of draws that have begun."""
        ends = [(cut, planned) for cut, planned in pairwise(self.cuts) if cut < draws.count]
        return [Block(draws, (cut, min(planned, draws.count)), planned, game, claims) for cut, planned in ends]


ANYTIME = Course(
    BETTING_CUTS, lambda draws: next(most for most in _HORIZONS if most > draws), _LEAST_LEFT, is_eager=True
)


def fixed_course(draws: int) -> Course:
    """The course for a number of draws that is fixed beforehand."""
    cuts = sorted({min(draws, max(_LEAST_CUT, round(fraction * draws))) for fraction in _FIXED_CUTS})
    return Course((*cuts, draws), lambda _: draws)


def settle(blocks: "Sequence[Block]", claims: Sequence[Claim], course: Course) -> list[Claim]:
    """The claims with alpha divided again by the draws before any bet: those without hope have a small part."""
    if len(claims) < 2 or not blocks:
        return list(claims)
    hopeful = _hopeful(blocks[0], tuple(claims), course)
    kept = np.where(np.arange(len(claims)) < hopeful, 1.0, _HOPELESS)
    parts = np.exp([-claim.needed for claim in claims])
    settled = parts * kept * (parts.sum() / (parts * kept).sum())
    return [replace(claim, needed=float(-np.log(part))) for claim, part in zip(claims, settled, strict=True)]


def _hopeful(first: "Block", claims: tuple[Claim, ...], course: Course) -> int:
    """How many claims, from the weakest on, have hope by the draws before the first cut.

    The next decision about an image asks again: what was found is kept.
    """
    key = first.digest(), first.game, claims
    if course is not ANYTIME or key not in _HOPEFUL:
        hopeful = (bets_of([first], [claim], course, far=False)[0][0].is_hopeful for claim in claims)
        found = sum(1 for _ in takewhile(bool, hopeful))
        if course is not ANYTIME:
            return found
        if len(_HOPEFUL) > _MOST_HOPEFUL:
            _HOPEFUL.clear()
        _HOPEFUL[key] = found
    return _HOPEFUL[key]


def reachable_radii(bets: "Sequence[Bets]", radii: Floats) -> int:
    """How many of the radii, which rise, have bets that can suffice at all, however favourable the draws are."""
    if not bets:
        return 0
    growth = most_growth(bets[0].options.ladder, radii, bets[0].block.game.shift)
    return int(np.count_nonzero((bets[-1].block.last - bets[0].block.first) * growth >= bets[0].claim.needed))


def likely_end(bets: "Sequence[Bets]", radii: Floats, start: int) -> int:
    """Where the radii from `start` on that are likely to be proved end."""
    reach = max((each.reach for each in bets if each.is_hopeful), default=-1.0)
    return max(start + 1, int(np.searchsorted(radii, reach + _ABOVE)))


def wealth(bets: "Sequence[Bets]", radii: Floats, wanted: Ints, end: int | None = None) -> Floats:
    """(wanted,) log K of the weakest pair at some of the radii, before `end`: the best at the end of a step."""
    if not bets or not len(wanted):
        return np.zeros(len(wanted))
    grids = [each.grid(radii) for each in bets]
    at = [np.searchsorted(grid, radii[:end]) for grid in grids]
    used = np.zeros(len(at[0]), np.bool_)
    used[wanted] = True
    for grid, places in zip(reversed(grids), reversed(at), strict=True):
        shared = np.zeros(len(grid) + 1, np.bool_)
        shared[places[used]] = True  # radii with the same bet go together: its stakes follow from the least of them
        used |= shared[places] & (places < len(grid))
    now = np.zeros((len(bets[0].outs), int(used.sum())))
    best = now.copy()
    for each, grid, places in zip(bets, grids, at, strict=True):
        made = places[used] < len(grid)
        if made.any():
            most, last = each.gains(grid, places[used][made], now[:, made])
            best[:, made] = np.maximum(best[:, made], now[:, made] + most)
            now[:, made] += last
    least: Floats = best.min(axis=0)[np.searchsorted(np.flatnonzero(used), wanted)]
    return least


@dataclass(frozen=True, eq=False)
class Options:
    """The bets that are tried for one claim in one block: a row for each S and v of `sizes`, S the slower index.

    `counts` is how often each value of W was seen, `law` what is estimated from that, `ends` the r at which it breaks.
    """

    sizes: tuple[int, ...]
    ladder: Ladders
    counts: Floats
    law: Floats
    scores: Floats
    ends: Floats


class Block:
    """The draws from one cut, `first`, to the next, `planned`, or to the `last` one, and what those before say."""

    def __init__(self, draws: Draws, ends: tuple[int, int], planned: int, game: Game, claims: Sequence[Claim]) -> None:
        (self.first, self.last), self.planned = ends, planned
        self.game, self.rivals, self._pattern = game, draws.rivals, draws.pattern[: self.last]
        seen, self._start = np.searchsorted(draws.draw, (self.last, self.first))
        self._draw, self._rival, self._patterns = draws.draw[:seen], draws.rival[:seen], draws.patterns
        counts = np.bincount(draws.rival[: self._start], minlength=draws.rivals)
        self._rivals_seen = int(np.count_nonzero(counts))
        place = np.empty(draws.rivals, np.int64)
        place[np.argsort(-counts, kind="stable")] = np.arange(draws.rivals)
        self._place = place[self._rival]
        self._hits = np.bincount(self._draw, minlength=self.last)
        self._ahead = self._hits_ahead(max(claim.into for claim in claims))
        on_labels = np.bincount(self._pattern[: self.first], minlength=len(draws.patterns)) @ draws.patterns
        self.order = np.argsort(-on_labels, kind="stable")
        self.members = _subsets(self.order, max(claim.out for claim in claims))
        self._overlap = self.members.astype(np.int64) @ draws.patterns.T
        self._overlaps = (self._overlap.T[:, None] == np.arange(game.most_in + 1)[:, None]).astype(np.float64)
        self._sizes = self.members.sum(axis=1)
        self.known: dict[int, Options] = {}

    def options(self, claim: Claim) -> Options:
        """What may be bet on: the counts lie halfway between those of the hardest T and the largest of any T."""
        into = self.into(claim)
        if into not in self.known:
            prepare([(self, into)])
        return self.known[into]

    def digest(self) -> bytes:
        """A hash of the draws before the block, as far as a bet can tell them apart."""
        seen = self._patterns[self._pattern[: self.first]], self._draw[: self._start], self._rival[: self._start]
        shape = f"{self.first} {self.rivals} {len(self.order)}".encode()
        return sha256(b"".join([shape, *(each.tobytes() for each in seen)])).digest()

    def into(self, claim: Claim) -> int:
        """|V|; under the threshold rule, where T is never hit before, all larger V have the same options."""
        return claim.into if self.game.threshold is None else min(claim.into, self._rivals_seen + MOST_TOGETHER)

    def counted(self, into: int, tried: Ints | slice = slice(None)) -> tuple[tuple[int, ...], Ladders, Floats, Floats]:
        """The sizes v that are tried with these S, their ladder, the counts along it, and the draws never seen."""
        sizes, us = _rival_sizes(into, MOST_TOGETHER if self.game.threshold is not None else into), self._sizes[tried]
        ladder, (table, widths) = ladders(self.game, tuple(us.tolist()), sizes), self._table(into, sizes, tried)
        every = np.arange(len(us))
        below = np.empty((sum(widths), ladder.order.shape[1], len(every)))  # of each T and S, up to each value of W
        for u in np.unique(us).tolist():
            same = np.flatnonzero(us == u)
            below[:, :, same] = table[:, same][_places(self.game, u, sizes, widths)]
        for cell in range(1, below.shape[1]):
            below[:, cell] += below[:, cell - 1]
        hardness = below.sum(axis=1)
        counts = np.empty((len(every), len(sizes), below.shape[1]))
        for i, (start, end) in enumerate(pairwise(np.cumsum([0, *widths]))):
            hardest = start + hardness[start:end].argmax(axis=0)
            counts[:, i] = below[start:end].max(axis=0).T + below[hardest, :, every]
        counts[:, :, 1:] -= counts[:, :, :-1].copy()
        counts /= 2
        unseen = np.array([_UNSEEN + (_UNSEEN_PER_SIZE / v if into else 0.0) for v in sizes])
        return sizes, ladder, counts.reshape(ladder.order.shape), np.tile(unseen, len(every))[:, None]

    def _table(self, into: int, sizes: tuple[int, ...], tried: Ints | slice) -> tuple[Floats, tuple[int, ...]]:
        """(b by T by a, S) how often draws before hit a and b labels, and how many T there are of each size."""
        few = [v if into else 0 for v in sizes if v <= _MOST_COUNTED]
        low, rows = into - few[-1], self._pattern[: self.first]
        shape = self._overlap.shape[1], self.game.most_out + 1
        sets, widths = near_sets(tuple((into - v - low, self._near(into, v), v) for v in few))
        hits = hit_bits(self._draw[: self._start], self._place[: self._start] - low, len(sets), self.first)
        seen = [count_sets(rows, hits, sets, shape)]
        for v in sizes[len(few) :]:
            own = self._ahead[: self.first, into] - self._ahead[: self.first, into - v]
            flat = np.bincount(rows * shape[1] + own, minlength=shape[0] * shape[1])
            seen.append(flat.reshape(*shape, 1).astype(np.float64))
        overlaps = self._overlaps[:, :, tried]
        whole = np.concatenate(seen, axis=2).reshape(shape[0], -1).T @ overlaps.reshape(shape[0], -1)
        return whole.reshape(-1, overlaps.shape[2]), (*widths, *(1 for _ in seen[1:]))

    def _near(self, into: int, v: int) -> int:
        """How many labels, from the first that T can hold on, the T of v labels are taken from."""
        if self.game.most_hits == 1 or v == 1 > self.game.most_in or v == 0:  # the first v are the hardest
            return v
        return min(near_labels(v, _MOST_HARD, v), _MOST_COUNTED, self.rivals - into + v)

    def within(self, sets: Ints) -> Bools:
        """(sets given, sets tried) whether each S lies within each U."""
        inside: Bools = sets @ self.members.T == self._sizes
        return inside

    def steps(self, count: int) -> list[int]:
        """Where the steps of the block end: about `count` by the next cut, and now."""
        ends = np.linspace(self.first, self.planned, count + 1).round().astype(np.int64)[1:]
        return [*np.unique(ends[(ends > self.first) & (ends < self.last)]).tolist(), self.last]

    def tally(self, claim: Claim, subset: int, v: int, ends: Sequence[int]) -> "Tally":
        """What a bet on this S and the last v labels of V depends on, in steps that end at `ends`."""
        rows, depth = slice(self.first, self.last), self.game.most_in + 1
        step = np.searchsorted(ends, np.arange(self.first, self.last), side="right")
        row = step * depth + self._overlap[subset][self._pattern[rows]]
        hits_in = np.bincount(row, minlength=len(ends) * depth).reshape(len(ends), depth)
        if claim.into == 0:
            return Tally(hits_in)
        before = claim.into - v
        later = self._place[self._start :] >= before
        draw, place = self._draw[self._start :][later] - self.first, self._place[self._start :][later] - before
        hits = np.minimum(self._hits[rows] - self._ahead[rows, before], v)
        shape = len(ends), depth, self.game.most_out + 1
        return Tally(hits_in, Losses(row, hits, draw, place, self.rivals - before, v, shape))

    def _hits_ahead(self, most: int) -> Ints:
        """(draws, most + 1) how many of the first 0, 1, ..., `most` labels outside L each draw hits."""
        near = self._place < most
        keys = self._draw[near] * (most + 1) + self._place[near] + 1
        return np.cumsum(np.bincount(keys, minlength=self.last * (most + 1)).reshape(self.last, -1), axis=1)


def prepare(wanted: "Sequence[tuple[Block, int]]") -> None:
    """Make the options of these blocks known, for V of these sizes; all at once, since each step costs time."""
    wanted = [(block, into) for block, into in dict.fromkeys(wanted) if into not in block.known]
    if not wanted:
        return
    sizes, every, counts, unseen = zip(*(block.counted(into) for block, into in wanted), strict=True)
    ladder, shift = Ladders.joined(every), wanted[0][0].game.shift
    law = smoothed(np.concatenate(counts), ladder.possible, np.concatenate(unseen))
    scores = scores_of(law, shift)
    ends, start = breaking(scores, ladder.gaps, ladder.least, shift), 0
    for (block, into), own_sizes, own, own_counts in zip(wanted, sizes, every, counts, strict=True):
        rows = slice(start, start + len(own_counts))
        block.known[into] = Options(own_sizes, own, own_counts, law[rows], scores[rows], ends[rows])
        start = rows.stop


def bets_of(
    blocks: "Sequence[Block]", claims: Sequence[Claim], course: Course, *, far: bool = True
) -> "list[list[Bets]]":
    """The bets of each block against each claim; without `far` only whether there is hope."""
    prepare([(block, block.into(claim)) for claim in claims for block in blocks])
    outs = {claim.out: _sets(blocks[0], claim) for claim in claims} if blocks else {}
    found = [[Bets(block, claim, outs[claim.out], course) for block in blocks] for claim in claims]
    if blocks and claims:
        _expect([bets for own in found for bets in own], far)
    return found


def _expect(every: "Sequence[Bets]", far: bool) -> None:
    """Find up to which r each option is expected to reach what is needed, for all bets at once."""
    options, shift = [each.options for each in every], every[0].block.game.shift
    laws, scores, ends = (np.concatenate([getattr(o, name) for o in options]) for name in ("law", "scores", "ends"))
    ladder, lengths = Ladders.joined(o.ladder for o in options), [len(o.ends) for o in options]
    needed = np.repeat([each.claim.needed / each.course.horizon(each.block.first) for each in every], lengths)

    def growth(rows: Ints, r: Floats) -> Floats:
        """(rows,) the growth that is expected for each r, above what is needed, over that."""
        law, x = fair(scores[rows], ends[rows], ladder.gaps[rows], ladder.least[rows], r, shift)
        log_g = np.log1p(stakes(law, x, needed[rows])[:, None] * x)
        expected: Floats = np.vecdot(laws[rows], log_g) / needed[rows] - 1
        return expected

    at_zero = growth(np.arange(len(ends)), np.zeros_like(ends))
    starts = np.cumsum([0, *lengths])
    hopeful = [bool(each.hopes(at_zero[i:j])) for each, (i, j) in zip(every, pairwise(starts), strict=True)]
    reach = at_zero.copy()
    left = np.flatnonzero((at_zero >= 0) & np.repeat(hopeful, lengths)) if far else np.empty(0, np.int64)
    reach[left] = _root(lambda at, r: growth(left[at], r), at_zero[left], ends[left])
    for each, hope, (i, j) in zip(every, hopeful, pairwise(starts), strict=True):
        each.is_hopeful = hope
        each.reached = np.where(each.inside, reach[i:j], -np.inf)


def fair(scores: Floats, ends: Floats, gaps: Floats, least: Floats, r: Floats, shift: Shift) -> tuple[Floats, Floats]:
    """(rows, cells) the laws that just break at r, and the payoffs that have mean 0 for them."""
    moved = scores - (ends - r)[:, None]
    return law_of(moved, shift), payoffs(moved, gaps, least, r, shift)


class Bets:
    """The bets in one block: for each U in `outs`, (sets U, d), the S and v expected to reach the largest r.

    `inside` says whether S lies within U, and `reached` up to which r it is expected to suffice; negative without hope.
    """

    is_hopeful: bool
    reached: Floats

    def __init__(self, block: Block, claim: Claim, outs: Ints, course: Course) -> None:
        self.block, self.claim, self.outs, self.course = block, claim, outs, course
        self.options = block.options(claim)
        self.inside = np.repeat(block.within(outs), len(self.options.sizes), axis=1)

    def hopes(self, at_zero: Floats) -> bool:
        """Whether the growth that is expected at r = 0 leaves hope."""
        return float(np.where(self.inside, at_zero, -np.inf).max(axis=1).min()) >= 1 / _HOPE - 1

    @property
    def chosen(self) -> Ints:
        """(sets U,) the option of each."""
        chosen: Ints = self.reached.argmax(axis=1)
        return chosen

    @property
    def reach(self) -> float:
        """The r that is expected to be reached, for the weakest U."""
        return float(self.reached.max(axis=1).min())

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
        """(sets U, radii) the most that every pair gains by a step's end, and by the last, from `before` on."""
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
        own, game = self.options, self.block.game
        gaps, lowest = own.ladder.gaps[option], own.ladder.least[option]
        law, x = fair(own.scores[option], own.ends[option], gaps, lowest, r, game.shift)
        least = kelly_stakes(own.law[option], x) if self.course.is_eager else np.zeros(len(option))
        a, b = game.cells()
        slots = (a * (game.most_out + 1) + b)[own.ladder.order[option]]
        each_pair = np.arange(len(option))[:, None]
        ends = self.block.steps(_STEPS)
        parts = [slice(*part) for part in pairwise([*np.flatnonzero(np.diff(option, prepend=-1)), len(option)])]
        subset_and_v = (divmod(int(option[part.start]), len(own.sizes)) for part in parts)
        tallies = [self.block.tally(self.claim, subset, own.sizes[v], ends) for subset, v in subset_and_v]
        gained = np.zeros(len(option))
        for step, first in enumerate([self.block.first, *ends[:-1]]):
            rate = (self.claim.needed + _BEYOND - start - gained) / self.course.left(first)
            stake = np.where(rate > 0, np.maximum(stakes(law, x, rate), least), 0.0)
            logs = np.zeros((len(option), game.slots))
            logs[each_pair, slots] = np.log1p(stake[:, None] * x)
            for part, tally in zip(parts, tallies, strict=True):
                gained[part] = tally.add(step, logs[part])
            yield gained.copy()


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
def subsets(labels: int, size: int) -> Ints:
    """(sets, labels) every set of `size` labels, the first labels before all others."""
    sets = list(combinations(range(labels), size))
    marks = np.zeros((len(sets), labels), np.int64)
    for row, members in enumerate(sets):
        marks[row, list(members)] = 1
    return marks


@cache
def near_sets(windows: tuple[tuple[int, int, int], ...]) -> tuple[Floats, tuple[int, ...]]:
    """(labels, sets) every set from each window: its first label, its labels, the size; and how many each has."""
    blocks = []
    for first, near, size in windows:
        block = np.zeros((max(first + near for first, near, _ in windows), comb(near, size)))
        block[first : first + near] = subsets(near, size).T
        blocks.append(block)
    return np.concatenate(blocks, axis=1), tuple(block.shape[1] for block in blocks)


@cache
def _places(game: Game, u: int, sizes: tuple[int, ...], widths: tuple[int, ...]) -> Ints:
    """(T, cells) where each cell is in a table of b by T by a, from the least W up; `widths` T of each size."""
    (a, b), order = game.cells(), np.repeat(ladders(game, (u,), sizes).order, widths, axis=0)
    each = np.arange(len(order))[:, None]
    return np.asarray((b[order] * len(order) + each) * (game.most_in + 1) + a[order])


def _sets(first: Block, claim: Claim) -> Ints:
    """(sets, d) every U; for many labels single ones such that every U contains one, the likeliest before `first`."""
    d = len(first.order)
    if d <= MOST_SUBSET_LABELS or claim.out == 0:
        return subsets(d, claim.out)
    return np.eye(d, dtype=np.int64)[first.order[: d - claim.out + 1]]


def _rival_sizes(into: int, most: int) -> tuple[int, ...]:
    """The sizes v of T that are tried in a V of `into` labels, at most `most`."""
    return tuple(sorted({v for v in (*_SIZES, into) if 1 <= v <= min(into, most)})) or (1,)


def _subsets(order: Ints, most: int) -> Bools:
    """(sets, d) the sets S tried: single labels, pairs, and runs in this order; single labels only where d > 12."""
    d = len(order)
    longest = min(most, d if d <= MOST_SUBSET_LABELS else 1)
    runs = [tuple(range(i, i + size)) for size in range(3, longest + 1) for i in range(d - size + 1)]
    sets = [*((i,) for i in range(d) if longest >= 1), *(combinations(range(d), 2) if longest >= 2 else ()), *runs]
    members = np.zeros((max(1, len(sets)), d), dtype=np.bool_)
    for row, places in enumerate(sets):
        members[row, order[list(places)]] = True
    return members


@cache
def near_labels(v: int, most: int, *sizes: int) -> int:
    """The most labels, from v on, that have at most `most` sets of these sizes."""
    labels = v
    while sum(comb(labels + 1, size) for size in sizes) <= most:
        labels += 1
    return labels


def count_sets(rows: Ints, hits: Ints, sets: Floats, shape: tuple[int, int]) -> Floats:
    """(rows, hits, sets) how many draws of each row hit 0, 1, 2, ... labels of each set; `hits` are bits."""
    labels, columns = sets.shape
    kinds, count = np.unique(rows << labels | hits, return_counts=True)
    own = ((kinds[:, None] >> np.arange(labels) & 1).astype(np.float64) @ sets).astype(np.int64)
    keys = ((kinds >> labels)[:, None] * shape[1] + own) * columns + np.arange(columns)
    counted = np.bincount(keys.ravel(), np.repeat(count, columns), minlength=shape[0] * shape[1] * columns)
    return counted.reshape(*shape, columns).astype(np.float64)


def hit_bits(draw: Ints, place: Ints, labels: int, draws: int) -> Ints:
    """(draws,) which of the first labels each draw hits, one bit each; a hit is a draw and the place of a label."""
    near = (place >= 0) & (place < labels)
    return np.bincount(draw[near], 1 << place[near], minlength=draws).astype(np.int64)


class Tally:
    """The least that a pair with one S and any V gains in a block, step by step.

    `hits_in`, (steps, a), counts the draws that hit a labels of S; `losses` is the most that any T has lost.
    """

    def __init__(self, hits_in: Ints, losses: "Losses | None" = None) -> None:
        self.hits_in, self.losses = hits_in.astype(np.float64), losses
        self._plain = np.zeros(1)

    def add(self, step: int, logs: Floats) -> Floats:
        """(pairs,) what is gained from the first step to this one; logs: (pairs, slots) log g by a and b."""
        by_hits = logs.reshape(len(logs), self.hits_in.shape[1], -1)
        self._plain = self._plain + by_hits[:, :, 0] @ self.hits_in[step]
        return self._plain if self.losses is None else self._plain - self.losses.add(step, by_hits[:, :, :1] - by_hits)


class Losses:
    """The most that any T of v labels has lost, step by step.

    `row` is the step of each draw and its hits on S, step * depth + a; `hits` is B, at most v. `draw` and `place`
    belong to each hit on one of the `labels` that T can hold. `shape` is the number of steps, of a and of B.
    """

    def __init__(
        self, row: Ints, hits: Ints, draw: Ints, place: Ints, labels: int, v: int, shape: tuple[int, int, int]
    ) -> None:
        self.v, (steps, depth, span) = v, shape
        self.is_counted = 1 < v <= _MOST_COUNTED and span > 2  # where T is hit once at most, weights are exact
        self.near = min(near_labels(v, _MOST_SETS, v, v - 1), labels) if self.is_counted else 0
        columns = max(self.near, int(place.max(initial=-1)) + 1)
        slot = row * span + hits
        table = np.bincount(slot[draw] * columns + place, minlength=steps * depth * span * columns)
        table = table.reshape(steps, depth * span, columns)
        self.used = np.flatnonzero(table.any(axis=(0, 2)))
        self.table = table[:, self.used].astype(np.float64)
        if self.is_counted:
            bits = hit_bits(draw, place, self.near, len(row))
            sets, widths = near_sets(((0, self.near, v), (0, self.near, v - 1)))
            self.counts = count_sets(row, bits, sets, (steps * depth, span)).reshape(steps, depth * span, -1)
            self.whole = widths[0]
        self._weights = self._sums = self._first = self._last = np.zeros((1, 1))

    def add(self, step: int, lost: Floats) -> Floats:
        """(pairs,) the most that any T has lost from the first step to this one; lost: (pairs, a, b) psi in it."""
        self._weights = self._weights + self._by_label(step, lost / np.maximum(np.arange(lost.shape[2]), 1))
        most = _largest(self._weights, self.v)
        return np.minimum(most, self._counted(step, lost)) if self.is_counted else most

    def _counted(self, step: int, lost: Floats) -> Floats:
        """(pairs,) the most that any T has lost: exactly among the near labels, else by one label less."""
        self._sums = self._sums + lost.reshape(len(lost), -1) @ self.counts[step]
        most: Floats = self._sums[:, : self.whole].max(axis=1)
        if self.table.shape[2] == self.near:
            return most
        alone = np.broadcast_to(lost[:, :, 1:2], lost.shape)
        self._first = self._first + self._by_label(step, alone)[:, : self.near]
        self._last = self._last + self._by_label(step, np.diff(lost, axis=2, prepend=0.0))[:, self.near :]
        outside = -np.sort(-self._last, axis=1)[:, : self.v]
        instead = np.sort(self._first, axis=1)[:, : outside.shape[1] - 1]
        more = np.cumsum(outside[:, 1:] - instead, axis=1).max(axis=1, initial=0.0)
        other: Floats = self._sums[:, self.whole :].max(axis=1) + outside[:, 0] + more
        return np.maximum(most, other)

    def _by_label(self, step: int, each: Floats) -> Floats:
        """(pairs, labels) the sum of `each`, (pairs, a, B), over the draws of a step that hit the label."""
        total: Floats = each.reshape(len(each), -1)[:, self.used] @ self.table[step]
        return total


def _largest(values: Floats, count: int) -> Floats:
    """(rows,) the sum of the largest values of each row; none is negative."""
    if values.shape[1] > count:
        values = np.partition(values, values.shape[1] - count, axis=1)[:, values.shape[1] - count :]
    total: Floats = values.sum(axis=1)
    return total
