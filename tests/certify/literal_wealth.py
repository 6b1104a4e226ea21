"""K by hand: pair by pair, U by U and V by V, draw by draw. Only the bets are overheard from the fast code."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations

import mpmath as mp
import numpy as np
import pytest

from multiguard.certify import wealth
from multiguard.certify.bets import Claim, Game
from multiguard.certify.draws import Draws
from multiguard.certify.wealth import Tally


@dataclass
class Heard:
    """What was bet in one block.

    Attributes:
        bets: The bets, with their block.
        pair: (sets U, radii) which pair of option and r each U has at each r, -1 where there is no bet.
        r: (pairs,) the r that each pair was made for.
        logs: (steps, pairs, slots) log g as executed.
        gained: (steps, pairs) what the fast code says is gained at least.
    """

    bets: wealth.Bets
    pair: np.ndarray
    r: np.ndarray
    logs: np.ndarray
    gained: np.ndarray

    def subset(self, u: int) -> set[int]:
        """S against this U."""
        option = int(self.bets.chosen[u])
        return set(np.flatnonzero(self.bets.block.members[option // len(self.bets.options.sizes)]).tolist())

    def v(self, u: int) -> int:
        """The number of labels in T against this U."""
        return self.bets.options.sizes[int(self.bets.chosen[u]) % len(self.bets.options.sizes)]

    def table(self, step: int, u: int, at: int) -> np.ndarray:
        """(a, b) log g in this step against this U at this r."""
        return self.logs[step, self.pair[u, at]].reshape(self.bets.block.game.most_in + 1, -1)


@contextmanager
def overhear(patch: pytest.MonkeyPatch, radii: np.ndarray) -> Iterator[list[Heard]]:
    """Notes every bet that is executed."""
    heard: list[Heard] = []
    added: list[tuple[int, np.ndarray, np.ndarray]] = []
    gains, add = wealth.Bets.gains, Tally.add

    def heard_add(self, step, logs):
        gained = add(self, step, logs)
        added.append((step, logs.copy(), gained.copy()))
        return gained

    def heard_gains(self, grid, at, before):
        added.clear()
        result = gains(self, grid, at, before)
        rows = self.chosen[:, None] * len(grid) + at
        pairs, which = np.unique(rows, return_inverse=True)
        pair = np.full((len(self.chosen), len(radii)), -1)
        pair[:, : len(at)] = which.reshape(rows.shape)
        steps = range(added[-1][0] + 1)
        logs, gained = (np.array([np.concatenate([a[i] for a in added if a[0] == s]) for s in steps]) for i in (1, 2))
        heard.append(Heard(self, pair, grid[pairs % len(grid)], logs, gained))
        return result

    with patch.context() as spying:
        spying.setattr(wealth.Bets, "gains", heard_gains)
        spying.setattr(Tally, "add", heard_add)
        yield heard


def hits_of(draws: Draws) -> tuple[list[set[int]], list[set[int]]]:
    """For each draw the labels of L that it hit, and the others."""
    inside = [set(np.flatnonzero(draws.patterns[i]).tolist()) for i in draws.pattern]
    outside: list[set[int]] = [set() for _ in inside]
    for draw, rival in zip(draws.draw.tolist(), draws.rival.tolist(), strict=True):
        outside[draw].add(rival)
    return inside, outside


def literal_wealth(draws: Draws, claim: Claim, heard: list[Heard], outs: np.ndarray, at: int) -> float:
    """The least over all pairs of the best log K at the end of a step; no bound of a block is above any pair."""
    hits = hits_of(draws)
    least = np.inf
    for u, out in enumerate(outs):
        for into in combinations(range(draws.rivals), claim.into):
            total = best = 0.0
            for block in heard:
                if block.pair[u, at] < 0:
                    continue
                assert block.subset(u) <= set(np.flatnonzero(out).tolist())
                gains = list(_literal_gains(block, u, at, into, hits, draws.rivals))
                assert np.all(block.gained[:, block.pair[u, at]] <= np.array(gains) + 1e-9)
                best, total = max(best, total + max(gains)), total + gains[-1]
            least = min(least, best)
    return least


def _literal_gains(block: Heard, u: int, at: int, into, hits, rivals: int) -> Iterator[float]:
    """What this pair has gained by the end of each step of the block."""
    inside, outside = hits
    first = block.bets.block.first
    seen = [sum(j in each for each in outside[:first]) for j in range(rivals)]
    last = set(sorted(into, key=lambda j: (-seen[j], j))[len(into) - block.v(u) :]) if into else set()
    total = 0.0
    for step, end in enumerate(block.bets.block.steps(wealth._STEPS)):
        table = block.table(step, u, at)
        for i in range(first, end):
            total += table[len(inside[i] & block.subset(u)), len(outside[i] & last)]
        first = end
        yield total


def excess(game: Game, subset: int, v: int, logs: np.ndarray, r: float) -> mp.mpf:
    """How far the mean of the executed payoff can exceed 1 while the pair is broken; at most 0 for a valid bet.

    For every mu >= 0 and every law that is broken, E[g] <= E[g] - mu C. The right side falls apart into one maximum
    over q in [0, 1] for each value of W: of slope q - mu down(q). The least over mu is an upper bound.

    Args:
        game: The values of W.
        subset: The number of labels in S.
        v: The number of labels in T.
        logs: (a, b) log g as executed.
        r: The distance at which the pair is broken.
    """
    a, b = game.cells()
    u, v = max(1, subset), max(1, v)
    worth = {}
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        if x <= u and y <= v:
            w = mp.mpf(x) / u - mp.mpf(y) / v if game.threshold is None else None
            if w is None:
                t = mp.mpf(game.threshold)
                w = mp.mpf(x) / u - t if game.most_in else t - mp.mpf(y) / v
            worth[w] = mp.e ** mp.mpf(float(logs[x, y]))
    values = sorted(worth)
    g = [worth[w] for w in values]

    def bound(mu: mp.mpf) -> mp.mpf:
        total = g[0] - 1 - mu * values[0]
        for low, high, one, two in zip(values, values[1:], g, g[1:], strict=False):
            slope = (two - one) / (high - low)
            z = (mp.log(slope / mu) + mp.mpf(r) ** 2 / 2) / r
            total += (high - low) * (slope * mp.ncdf(z) - mu * mp.ncdf(z - r))
        return total

    # The minimum over mu is flat; C = 0 there. Golden section on log mu.
    low, high = mp.log(min(g[-1] - g[0], 1) * mp.mpf("1e-6")), mp.log(g[-1] + 1) + 5
    ratio = (mp.sqrt(5) - 1) / 2
    for _ in range(120):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if bound(mp.e**left) < bound(mp.e**right):
            high = right
        else:
            low = left
    return bound(mp.e ** ((low + high) / 2))
