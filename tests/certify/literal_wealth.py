"""K by hand: pair by pair, U by U and V by V, draw by draw. Only the bets are read from the fast code."""

from itertools import combinations

import mpmath as mp
import numpy as np

from multiguard.certify.bets import Game
from multiguard.certify.blocks import Block, Claim
from multiguard.certify.draws import Draws
from multiguard.certify.wealth import BETTING_CUTS, _Bets, _sets_out


class Bet:
    """One bet: S, v and the payoff of every number of hits, as executed."""

    def __init__(self, bets: _Bets, option: int, r: float) -> None:
        sizes = bets.options.sizes
        self.subset = set(np.flatnonzero(bets.block.members[option // len(sizes)]).tolist())
        self.v = sizes[option % len(sizes)]
        self.logs = bets._logs(np.array([option]), np.array([r]))[:, :, 0]


def hits_of(draws: Draws) -> tuple[list[set[int]], list[set[int]]]:
    """For each draw the labels of L that it hit, and the others."""
    inside = [set(np.flatnonzero(draws.patterns[i]).tolist()) for i in draws.pattern]
    outside: list[set[int]] = [set() for _ in inside]
    for draw, rival in zip(draws.draw.tolist(), draws.rival.tolist(), strict=True):
        outside[draw].add(rival)
    return inside, outside


def literal_wealth(draws: Draws, game: Game, claim: Claim, r: float) -> float:
    """The least over all pairs of the best log K at the end of a block."""
    inside, outside = hits_of(draws)
    cuts = [cut for cut in BETTING_CUTS if cut < draws.count]
    ends = list(zip(cuts, [*cuts[1:], draws.count], strict=True))
    blocks = [Block(draws, each, game, [claim]) for each in ends]
    sets = list(combinations(range(draws.num_true), claim.out))
    outs = _sets_out(draws.num_true, claim.out)
    chosen = [_Bets(block, claim, outs, np.array([(np.floor(r / 0.1 + 1e-9) + 0.5) * 0.1])) for block in blocks]
    least = np.inf
    for u, U in enumerate(sets):
        bets = [Bet(each, int(each.chosen[u, 0]), r) for each in chosen]
        assert all(bet.subset <= set(U) for bet in bets)
        for V in combinations(range(draws.rivals), claim.into):
            least = min(least, _best_wealth(bets, V, ends, inside, outside, draws.rivals))
    return least


def _best_wealth(bets, V, ends, inside, outside, rivals) -> float:
    total = best = 0.0
    for bet, (first, last) in zip(bets, ends, strict=True):
        seen = [sum(j in hits for hits in outside[:first]) for j in range(rivals)]
        T = set(sorted(V, key=lambda j: (-seen[j], j))[len(V) - bet.v :]) if V else set()
        for i in range(first, last):
            total += bet.logs[len(inside[i] & bet.subset), len(outside[i] & T)]
        best = max(best, total)
    return best


def excess(game: Game, bet: Bet, r: float) -> mp.mpf:
    """How far the mean of the executed payoff can exceed 1 while the pair is broken; at most 0 for a valid bet.

    For every mu >= 0 and every law that is broken, E[g] <= E[g] - mu C. The right side falls apart into one maximum
    over q in [0, 1] for each value of W: of slope q - mu down(q). The least over mu is an upper bound.
    """
    a, b = game.cells()
    u, v = max(1, len(bet.subset)), bet.v
    worth = {}
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        if x <= u and y <= v:
            w = mp.mpf(x) / u - mp.mpf(y) / v if game.threshold is None else None
            if w is None:
                t = mp.mpf(game.threshold)
                w = mp.mpf(x) / u - t if game.most_in else t - mp.mpf(y) / v
            worth[w] = mp.e ** mp.mpf(float(bet.logs[x, y]))
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
