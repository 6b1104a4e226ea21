"""log K of every single pair (U, V), written down word for word, against the bounds that `wealth` works with.

The bets themselves (S, v, scores and stakes) are read from the implementation. Which labels T has, what W and its
values are, h, b0, the payoff of each draw and the product K are computed here again, one pair at a time.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise, product
from math import exp, log
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from multiguard.certify import Threshold, TopK, certified_radii
from multiguard.certify import wealth as module
from multiguard.certify.bets import Game, ladders, payoffs
from multiguard.certify.betting import ceilings, floors, top_k_sizes
from multiguard.certify.blocks import Block, Claim
from multiguard.certify.draws import Draws

_RADII = np.array([0.0, 0.24, 0.6, 1.1, 2.0])


@dataclass(frozen=True)
class Bet:
    """What is bet in one block at one r against the pairs of one U: the stake is on W itself, not on its multiple."""

    first: int
    last: int
    inside: frozenset[int]
    v: int
    scores: dict[Fraction, float]
    stake: float


@dataclass(frozen=True)
class Case:
    """Random draws of few labels; the labels of L are 0..d-1, those outside L are d..c-1."""

    hits: np.ndarray
    d: int
    k_prime: int
    t: Fraction | None = None

    def draws(self) -> Draws:
        """As the implementation wants them."""
        draw, rival = np.nonzero(self.hits[:, self.d :])
        patterns, pattern = np.unique(self.hits[:, : self.d], axis=0, return_inverse=True)
        return Draws(patterns, pattern, draw, rival, self.hits.shape[1] - self.d)

    def game(self, claim: Claim) -> Game:
        """The game of this rule and claim."""
        if self.t is None:
            return Game(min(self.k_prime, self.d), min(self.k_prime, claim.into), self.k_prime)
        return Game(self.d, 0, self.d, float(self.t)) if claim.out else Game(0, claim.into, claim.into, float(self.t))

    def worth(self, u: int, v: int, a: int, b: int) -> Fraction:
        """W of a draw that hits a labels of S and b of T."""
        if self.t is None:
            return Fraction(a, u) - Fraction(b, v)
        return Fraction(a, u) - self.t if u else self.t - Fraction(b, v)

    def possible(self, u: int, v: int) -> set[Fraction]:
        """Every value that W can have: a draw hits k' labels of all (any number for the threshold rule)."""
        cells = product(range(u + 1), range(v + 1))
        return {self.worth(u, v, a, b) for a, b in cells if self.t is not None or a + b <= self.k_prime}


def top_k_case(seed: int, c: int, d: int, k_prime: int, n: int = 230) -> Case:
    """Draws of k' labels each; the labels of L are hit more often."""
    rng = np.random.default_rng(seed)
    strength = rng.random(c) + 1.4 * (np.arange(c) < d)
    order = np.argsort(-(strength + rng.gumbel(0, 0.35, (n, c))), axis=1)[:, :k_prime]
    hits = np.zeros((n, c), dtype=np.bool_)
    np.put_along_axis(hits, order, True, axis=1)
    return Case(hits, d, k_prime)


def threshold_case(seed: int, c: int, d: int, t: Fraction, n: int = 230) -> Case:
    """Draws of any number of labels that depend on each other; those of L mostly hit, the others mostly not."""
    rng = np.random.default_rng(seed)
    chance = np.where(np.arange(c) < d, 0.93, 0.07) + 0.05 * rng.random(c)
    level = 0.5 * rng.standard_normal((n, 1)) + 0.87 * rng.standard_normal((n, c))
    return Case(level < ndtri(chance), d, c, t)


def claim_wealth(case: Case, claim: Claim) -> "module._ClaimWealth":
    """The implementation's bets of one claim, as `wealth` makes them."""
    draws, game = case.draws(), case.game(claim)
    cuts = [cut for cut in module.BETTING_CUTS if cut < draws.count]
    ends = zip(cuts, [*cuts[1:], draws.count], strict=True)
    blocks = [Block(draws, each, game, [claim]) for each in ends]
    return module._ClaimWealth(blocks, claim, _RADII)


def sets_out(made: "module._ClaimWealth") -> np.ndarray:
    """(sets, d) the sets U, or for many labels the labels of which every U has one."""
    return module._sets(made.blocks[0], made.claim)


def read_bet(bets: "module._Bets", case: Case, row: int, at: int, group: int, patch: pytest.MonkeyPatch) -> Bet:
    """The bet against the U of this row at _RADII[at]."""
    option = int(bets.chosen[row, group])
    along, stake = scores_and_stake(bets, option, at, patch)
    subset, size = divmod(option, len(bets.options.sizes))
    inside, v = frozenset(np.flatnonzero(bets.block.members[subset]).tolist()), bets.options.sizes[size]
    u = len(inside)
    cells = [case.worth(u, v, min(int(a), u), min(int(b), v)) for a, b in zip(*bets.block.game.cells(), strict=True)]
    scores = {w: float(along[sum(x < w for x in cells) - 1]) for w in set(cells) - {min(cells)}}
    multiple = u * v if case.t is None else u or v
    return Bet(bets.block.first, bets.block.last, inside, v, scores, multiple * stake)


def scores_and_stake(bets: "module._Bets", option: int, at: int, patch: pytest.MonkeyPatch) -> tuple[np.ndarray, float]:
    """The scores along the ladder and the stake of one option."""
    calls: dict[str, list[Any]] = {"payoffs": [], "best_stakes": []}
    with patch.context() as spying:
        for name, heard in calls.items():
            spying.setattr(module, name, spied(getattr(module, name), heard))
        bets._logs(np.array([option]), _RADII[[at]])
    return calls["payoffs"][0][0][0][0], float(calls["best_stakes"][-1][1][0][0])


def spied(function: Callable[..., Any], heard: list[Any]) -> Callable[..., Any]:
    """The function; the arguments and the value of each call are added to `heard`."""

    def call(*args: Any) -> Any:
        value = function(*args)
        heard.append((args, value))
        return value

    return call


def literal_payoffs(case: Case, bet: Bet, r: float) -> dict[Fraction, float]:
    """G of each value of W: 1 + lambda (h(W) - b0), from scores between -5 and 5."""
    values = sorted(case.possible(len(bet.inside), bet.v))
    h, b0 = {values[0]: 0.0}, -float(values[0])
    for below, w in pairwise(values):
        z, gap = min(5.0, max(-5.0, bet.scores[w])), float(w - below)
        slope = exp(z * r - r * r / 2)
        h[w] = h[below] + gap * slope
        b0 += gap * (slope * float(ndtr(z)) - float(ndtr(z - r)))
    return {w: 1 + bet.stake * (h[w] - b0) for w in values}


def last_of(case: Case, bet: Bet, into: tuple[int, ...]) -> list[int]:
    """T: the v labels of V that came last in the draws before the block; of equals the later index comes later."""
    if not into:
        return []
    counts = case.hits[: bet.first].sum(axis=0)
    return sorted(into, key=lambda label: (-int(counts[label]), label))[len(into) - bet.v :]


def literal_gain(case: Case, bet: Bet, into: tuple[int, ...], r: float) -> float:
    """What log K of the pair gains in the block, draw by draw."""
    g = literal_payoffs(case, bet, r)
    draws = case.hits[bet.first : bet.last]
    hits_in, hits_out = draws[:, sorted(bet.inside)].sum(axis=1), draws[:, last_of(case, bet, into)].sum(axis=1)
    seen = zip(hits_in.tolist(), hits_out.tolist(), strict=True)
    return sum(times * log(g[case.worth(len(bet.inside), bet.v, a, b)]) for (a, b), times in Counter(seen).items())


def check_every_pair(case: Case, claim: Claim, patch: pytest.MonkeyPatch) -> int:
    """Compares each block's bound with each pair, and the claim's wealth with the weakest pair; counts comparisons."""
    made = claim_wealth(case, claim)
    bounds = np.stack([bets.gains(_RADII, made.group) for bets in made.bets])
    rivals = list(combinations(range(case.d, case.hits.shape[1]), claim.into))
    weakest, compared = np.full(len(_RADII), np.inf), 0
    for (row, out), (at, r) in product(enumerate(sets_out(made)), enumerate(_RADII.tolist())):
        gains = np.zeros((len(made.bets), len(rivals)))
        for i, bets in enumerate(made.bets):
            bet = read_bet(bets, case, row, at, int(made.group[at]), patch)
            assert bet.inside <= set(np.flatnonzero(out).tolist())
            gains[i] = [literal_gain(case, bet, into, r) for into in rivals]
            compared += len(rivals)
            assert bounds[i, at, row] <= gains[i].min() + 1e-9
        weakest[at] = min(weakest[at], np.cumsum(gains, axis=0).max(axis=0).min())
    result = module.wealth(case.draws(), case.game(claim), [claim], _RADII)[0]
    assert np.all(result <= np.maximum(weakest, 0) + 1e-9)
    return compared


@pytest.mark.parametrize(
    ("seed", "c", "d", "k_prime", "k"),
    [
        (0, 5, 2, 1, 2),
        (1, 6, 2, 2, 3),
        (2, 6, 3, 3, 3),
        (3, 7, 2, 4, 4),
        (4, 5, 1, 4, 3),
        (5, 6, 3, 2, 1),
        (6, 4, 2, 2, 2),
    ],
)
def test_top_k_pairs(seed: int, c: int, d: int, k_prime: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pair of the top-k rule has less than the bound for all of them, in any block and in total."""
    case, compared = top_k_case(seed, c, d, k_prime), 0
    for e in range(max(1, k - (c - d) + 1), min(d, k) + 1):
        compared += check_every_pair(case, Claim(d - e + 1, k - e + 1, 2.0), monkeypatch)
    assert compared > 0


@pytest.mark.parametrize(("seed", "t"), [(0, Fraction(1, 2)), (1, Fraction(1, 4)), (2, Fraction(7, 8))])
def test_threshold_pairs(seed: int, t: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the floors and the ceilings of the threshold rule."""
    case = threshold_case(seed, 6, 3, t)
    claims = [Claim(out, 0, 2.0) for out in (1, 2, 3)] + [Claim(0, into, 2.0) for into in (1, 2, 3)]
    assert sum(check_every_pair(case, claim, monkeypatch) for claim in claims) > 0


def test_many_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the labels for which every U is tried, each U holds one of the labels that are bet on."""
    for room in ("wealth", "blocks", "betting"):
        monkeypatch.setattr(f"multiguard.certify.{room}.MOST_SUBSET_LABELS", 2)
    case, claim = top_k_case(8, 7, 4, 2), Claim(3, 2, 2.0)
    assert check_every_pair(case, claim, monkeypatch) > 0
    labels = {int(np.flatnonzero(row)[0]) for row in sets_out(claim_wealth(case, claim))}
    assert all(labels & set(out) for out in combinations(range(4), 3))


def most_mean_where_broken(game: Game, u: int, v: int, r: float, rng: np.random.Generator) -> float:
    """The largest mean of h(W) - b0 over random laws that just break (C = 0), for random scores, scaled."""
    ladder = ladders(game, (u,), (v,))
    gaps, least = ladder.gaps[0], float(ladder.least[0])
    scores = -np.sort(-4 * rng.standard_normal((1, len(gaps))), axis=1)
    x = payoffs(scores, ladder.gaps, ladder.least, np.array([r]))[0]
    tails = np.concatenate([scores, -np.sort(-3 * rng.standard_normal((60, len(gaps))), axis=1)])
    low, high = np.full(len(tails), -60.0), np.full(len(tails), 60.0)
    for _ in range(70):
        middle = (low + high) / 2
        broken = least + ndtr(tails + middle[:, None] - r) @ gaps <= 0
        low, high = np.where(broken, middle, low), np.where(broken, high, middle)
    means = x[0] + ndtr(tails + low[:, None]) @ np.diff(x)
    return float(means.max() / np.abs(x).max())


@pytest.mark.parametrize("game", [Game(2, 3, 3), Game(1, 1, 1), Game(3, 0, 3, 0.3), Game(0, 4, 4, 0.6)])
def test_mean_payoff(game: Game) -> None:
    """No law that breaks gives a bet a mean payoff above 1."""
    rng = np.random.default_rng(5)
    u, v = max(1, game.most_in) if game.most_in else 0, max(1, game.most_out)
    for r in (0.0, 0.02, 0.7, 2.0, 5.0, 6.3):
        assert max(most_mean_where_broken(game, u, v, r, rng) for _ in range(20)) <= 0


@pytest.mark.parametrize(("u", "v", "k_prime"), [(1, 1, 1), (2, 5, 3), (3, 2, 4)])
def test_least_value(u: int, v: int, k_prime: int) -> None:
    """w_0 is the least possible W, whatever was seen: -min(k', v) / v."""
    ladder = ladders(Game(min(k_prime, u), min(k_prime, v), k_prime), (u,), (v,))
    assert ladder.least[0] / (u * v) == -min(k_prime, v) / v


def test_bets_from_earlier_draws() -> None:
    """The bets of a block are the same whatever its own draws and later ones are."""
    case, claim = top_k_case(3, 9, 5, 3, n=500), Claim(4, 2, 2.0)
    made = claim_wealth(case, claim)
    for i, bets in enumerate(made.bets):
        first = bets.block.first
        other = claim_wealth(Case(np.concatenate([case.hits[:first], case.hits[first:, ::-1]]), 5, 3), claim).bets[i]
        np.testing.assert_array_equal(bets.block.order, other.block.order)
        np.testing.assert_array_equal(bets.block.members, other.block.members)
        np.testing.assert_array_equal(bets.chosen, other.chosen)
        option = np.unique(bets.chosen)
        for r in _RADII:
            logs = [each._logs(option, np.full(len(option), r)) for each in (bets, other)]
            np.testing.assert_allclose(logs[0], logs[1], rtol=1e-12)


def test_later_draws() -> None:
    """K at the end of a block is the same whatever comes after it, and nothing before the first cut is bet on."""
    case, claim = top_k_case(3, 7, 2, 3, n=700), Claim(1, 2, 2.0)
    for last in (100, 200, 500):
        short = Case(case.hits[:last], 2, 3)
        made = claim_wealth(short, claim)
        again = claim_wealth(Case(np.concatenate([case.hits[:last], case.hits[last:, ::-1]]), 2, 3), claim)
        for early, late in zip(made.bets, again.bets, strict=False):
            gains = early.gains(_RADII, made.group), late.gains(_RADII, made.group)
            np.testing.assert_allclose(*gains, rtol=1e-12, atol=1e-12)
    assert np.all(module.wealth(Case(case.hits[:30], 2, 3).draws(), case.game(claim), [claim], _RADII) == 0)


@pytest.mark.parametrize(("c", "d"), [(2, 1), (6, 3), (5, 0), (30, 13)])
def test_fractions(c: int, d: int) -> None:
    """The claims of one image together spend at most alpha, and so do as many as there are radii."""
    draws = Case(np.zeros((1, c), dtype=np.bool_), d, 1).draws()
    threshold = Threshold(0.5)
    for staircase in (top_k_sizes(draws, TopK(3 % c + 1, 2)), floors(draws, threshold), ceilings(draws, threshold)):
        levels = [exp(-claim.needed) for claim in staircase.claims(0.2)]
        assert min(levels, default=1.0) > 0
        assert sum(levels) <= 0.2 * (1 + 1e-12)
        for radii in range(1, len(levels)):
            assert all(radii * exp(-claim.needed) <= 0.2 * (1 + 1e-12) for claim in staircase.claims(0.2, radii))


def test_label_order() -> None:
    """Renaming the labels changes nothing where none of them are tied."""
    case = top_k_case(9, 6, 2, 2)
    ranked, names = np.argsort(~case.hits, axis=1, kind="stable")[:, :2], np.array([4, 1, 0, 5, 3, 2])

    def radii(votes: np.ndarray, labels: list[int]) -> list[float]:
        rule = TopK(k=3, k_prime=2)
        return list(certified_radii(votes, labels, rule, num_labels=6, sigma=1.0, alpha=0.1, method="betting").true)

    for labels in ([0, 1], [1]):
        assert radii(ranked, labels) == radii(names[ranked], names[labels].tolist())
