"""K against loops over all pairs, its bets against 40 digits and linear programmes, and what bets may depend on."""

from math import exp

import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr
from tests.certify.cases import random_ranked
from tests.certify.literal_wealth import Heard, excess, literal_wealth, overhear

from multiguard.certify import Gaussian, Rule, Threshold, TopK, wealth
from multiguard.certify.bets import Claim, Game, ladders, most_growth, payoffs
from multiguard.certify.betting import betting_radii, ceilings, floors, top_k_sizes
from multiguard.certify.draws import Draws, read_draws
from multiguard.certify.layers import GAUSSIAN_SHIFT, PROBABILITY_SHIFT, Shift
from multiguard.certify.wealth import ANYTIME, Course, fixed_course

GAMES = [Game(2, 3, 3), Game(1, 1, 1), Game(3, 0, 3, 0.3), Game(0, 4, 4, 0.6)]
FAR = np.array([0.0, 0.04, 0.15, 0.3, 0.5])  # the r of noises that move probabilities
RADII = np.array([0.0, 0.1, 0.42, 0.9, 1.6])
DRAWS = 260
COURSES = {"anytime": ANYTIME, "fixed": fixed_course(DRAWS)}
# k', |U|, |V|, d
SHAPES = [(1, 1, 1, 1), (1, 2, 2, 2), (2, 1, 3, 2), (2, 2, 2, 3), (3, 3, 4, 3), (3, 2, 3, 4), (4, 1, 3, 1)]


def top_k_draws(rng: np.random.Generator, k_prime: int, d: int, spread: float = 1.5) -> Draws:
    ranked = random_ranked(rng, labels=d + 5, depth=k_prime, draws=DRAWS, spread=spread)
    likely = np.argsort(-np.bincount(ranked.ravel(), minlength=d + 5))
    return read_draws(ranked, likely[:d], TopK(3, k_prime), d + 5)


class Noisy(Gaussian):
    """A noise with any shift."""

    def __init__(self, shift: Shift) -> None:
        super().__init__(1.0)
        object.__setattr__(self, "shift", shift)


def cases(shift: Shift = GAUSSIAN_SHIFT):
    """Draws, game and claim of each kind."""
    rng = np.random.default_rng(1)
    for k_prime, out, into, d in SHAPES:
        game = Game(min(k_prime, d), min(k_prime, into), k_prime, shift=shift)
        yield top_k_draws(rng, k_prime, d, 1.5 if shift is GAUSSIAN_SHIFT else 4.0), game, Claim(out, into, 3.0)
    sets = read_draws(rng.random((DRAWS, 6)) < [0.9, 0.8, 0.7, 0.2, 0.1, 0.05], [0, 1, 2], Threshold(0.4), 6)
    yield sets, Game(3, 0, 3, 0.4, shift), Claim(2, 0, 3.0)
    yield sets, Game(0, 3, 3, 0.4, shift), Claim(0, 2, 3.0)
    for rule, into in ((Threshold(0.3, 2), 3), (Threshold(0.3, 1), 2)):  # more labels in U and V than a draw can hit
        draws = top_k_draws(rng, rule.k_prime, 3, 4.0)
        (floor, _), (ceiling, _) = (
            floors(draws, rule, 0.1, Noisy(shift)),
            ceilings(draws, rule, 0.1, Noisy(shift), ANYTIME),
        )
        yield draws, floor, Claim(3, 0, 3.0)
        yield draws, ceiling, Claim(0, into, 3.0)


def game_id(game: Game) -> str:
    """The numbers of a game; no address in memory, which differs from process to process."""
    return f"{game.most_in}-{game.most_out}-{game.most_hits}-{game.threshold}"


def case_id(case) -> str:
    return f"{game_id(case[1])} {case[2]} {type(case[1].shift).__name__}"


by_kind = pytest.mark.parametrize("case", list(cases()), ids=case_id)
by_variation = pytest.mark.parametrize("case", list(cases(PROBABILITY_SHIFT)), ids=case_id)


def bets_of(
    patch: pytest.MonkeyPatch, draws: Draws, game: Game, claim: Claim, course: Course = ANYTIME
) -> tuple[np.ndarray, list[Heard], np.ndarray]:
    """log K at each r, the bets of every block, and the sets U."""
    radii = RADII if game.shift is GAUSSIAN_SHIFT else FAR
    blocks = course.blocks(draws, game, [claim])
    with overhear(patch, radii) as heard:
        fast = wealth.wealth(wealth.bets_of(blocks, [claim], course)[0], radii, np.arange(len(radii)))
    return fast, heard, wealth._sets(blocks[0], claim)


@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize("case", [*cases(), *cases(PROBABILITY_SHIFT)], ids=case_id)
def test_literal(case, course: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is never above the K of any pair, in any step and in total, and often it is near the least."""
    draws, game, claim = case
    fast, heard, outs = bets_of(monkeypatch, draws, game, claim, COURSES[course])
    slow = np.array([literal_wealth(draws, claim, heard, outs, at) for at in range(len(fast))])
    assert np.all(fast <= slow + 1e-9)
    assert np.all(fast >= 0.5 * slow - 3)
    assert fast[0] > 0


def test_literal_many_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the labels for which every U is tried, each U holds one of the labels that are bet on."""
    monkeypatch.setattr(wealth, "MOST_SUBSET_LABELS", 2)
    draws, game, claim = top_k_draws(np.random.default_rng(8), 2, 4), Game(1, 2, 2), Claim(3, 2, 2.0)
    fast, heard, outs = bets_of(monkeypatch, draws, game, claim)
    assert len(outs) == 2
    slow = [literal_wealth(draws, claim, heard, outs, at) for at in range(len(RADII))]
    assert np.all(fast <= np.array(slow) + 1e-9)


@by_kind
def test_mean_payoff(case, monkeypatch: pytest.MonkeyPatch) -> None:
    """No executed bet has a mean above 1 on any law that leaves the pair broken: in 40 digits, from its payoffs."""
    draws, game, claim = case
    mp.mp.dps = 40
    checked = 0
    for block in bets_of(monkeypatch, draws, game, claim)[1]:
        for at in range(1, len(RADII)):
            if block.pair[0, at] >= 0:
                table = block.table(len(block.logs) // 2, 0, at)
                if np.any(table):  # nothing is staked where what is needed was reached
                    assert excess(game, len(block.subset(0)), block.v(0), table, float(RADII[at])) <= 0
                    checked += 1
    assert checked


def test_mean_payoff_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A b0 that is too small by a hundred-thousandth is caught."""
    draws, game, claim = next(iter(cases()))
    mp.mp.dps = 40
    monkeypatch.setattr(wealth, "payoffs", lambda *given: payoffs(*given) + 1e-5)
    heard = bets_of(monkeypatch, draws, game, claim)[1]
    block = next(block for block in heard if block.pair[0, 1] >= 0 and block.r[block.pair[0, 1]] == RADII[1])
    assert excess(game, 1, 1, block.table(0, 0, 1), float(RADII[1])) > 0


@pytest.mark.parametrize("course", [ANYTIME, fixed_course(1000)], ids=["anytime", "fixed"])
def test_many_rivals(course: Course) -> None:
    """With more rivals than are counted together, what a step has gained still depends on no later draw."""
    claim, game = Claim(1, 3, 7.0), Game(3, 3, 3)

    def gained(ranked: np.ndarray) -> np.ndarray:
        block = course.blocks(read_draws(ranked, [0, 1, 2], TopK(3, 3), 80), game, [claim])[-1]
        ((bets,),) = wealth.bets_of([block], [claim], course)
        every = np.arange(len(bets.options.ends))
        return np.array(list(bets._steps(every, np.full(len(every), 0.3), np.zeros(len(every)))))

    first, last = course.cuts[course.cuts.index(1000) - 1], 1000
    for seed in (11, 33, 38, 42, 46):  # those that show it if the labels with the most hits of the block are counted
        rng = np.random.default_rng(seed)
        often = np.concatenate([[60.0, 30.0, 30.0], rng.uniform(0.5, 1.5, 77)])
        other = np.concatenate([often[:3], often[:2:-1] ** 3])
        ranked, later = (np.argsort(-np.log(p) - rng.gumbel(size=(1000, 80)))[:, :3] for p in (often, other))
        whole = gained(ranked)
        for step in range(1, len(whole)):
            start = first + (last - first) * step // len(whole) + 1
            same = gained(np.concatenate([ranked[:start], later[start:]]))[:step]
            np.testing.assert_allclose(same, whole[:step], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("course", COURSES)
def test_earlier_draws(course: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bets of a step are the same whatever its own draws and later ones are."""
    rng, game, claim = np.random.default_rng(3), Game(3, 2, 3), Claim(2, 2, 3.0)
    ranked, other = (random_ranked(rng, labels=9, depth=3, draws=DRAWS, spread=1.5) for _ in range(2))
    labels = np.argsort(-np.bincount(ranked.ravel(), minlength=9))[:3]
    draws = read_draws(ranked, labels, TopK(3, 3), 9)
    heard = bets_of(monkeypatch, draws, game, claim, COURSES[course])[1]
    compared = 0
    for i, block in enumerate(heard):
        starts = [block.bets.block.first, *block.bets.block.steps(wealth._STEPS)[:-1]]
        for step in (0, len(starts) - 1):
            mixed = np.concatenate([ranked[: starts[step]], other[starts[step] :]])
            again = bets_of(monkeypatch, read_draws(mixed, labels, TopK(3, 3), 9), game, claim, COURSES[course])[1][i]
            np.testing.assert_array_equal(block.pair, again.pair)
            np.testing.assert_allclose(block.logs[: step + 1], again.logs[: step + 1], rtol=1e-9, atol=1e-12)
            compared += 1
    assert compared >= 4


def most_mean_where_broken(game: Game, u: int, v: int, r: float, rng: np.random.Generator) -> float:
    """The largest mean of h(W) - b0 over random laws that just break (C = 0), for random scores, scaled."""
    ladder = ladders(game, (u,), (v,))
    gaps, least = ladder.gaps[0], float(ladder.least[0])
    scores = -np.sort(-4 * rng.standard_normal((1, len(gaps))), axis=1)
    x = payoffs(scores, ladder.gaps, ladder.least, np.array([r]), GAUSSIAN_SHIFT)[0]
    tails = np.concatenate([scores, -np.sort(-3 * rng.standard_normal((60, len(gaps))), axis=1)])
    low, high = np.full(len(tails), -60.0), np.full(len(tails), 60.0)
    for _ in range(70):
        middle = (low + high) / 2
        broken = least + ndtr(tails + middle[:, None] - r) @ gaps <= 0
        low, high = np.where(broken, middle, low), np.where(broken, high, middle)
    means = x[0] + ndtr(tails + low[:, None]) @ np.diff(x)
    return float(means.max() / np.abs(x).max())


@pytest.mark.parametrize("game", GAMES, ids=game_id)
def test_mean_payoff_of_random_laws(game: Game) -> None:
    """No law that breaks gives a bet a mean payoff above 1."""
    rng = np.random.default_rng(5)
    u, v = max(1, game.most_in) if game.most_in else 0, max(1, game.most_out)
    for r in (0.0, 0.02, 0.7, 2.0, 6.3):
        assert max(most_mean_where_broken(game, u, v, r, rng) for _ in range(8)) <= 0


@pytest.mark.parametrize("shift", [GAUSSIAN_SHIFT, PROBABILITY_SHIFT], ids=["gaussian", "variation"])
@pytest.mark.parametrize("game", GAMES, ids=game_id)
def test_most_growth(game: Game, shift: Shift) -> None:
    """No bet adds more to log K in a draw, whatever its scores."""
    rng, us, vs = np.random.default_rng(6), (min(game.most_in, 2),), (1, 2)
    ladder, far = ladders(game, us, vs), 0.3
    most, found = most_growth(ladder, np.array([far]), shift)[0], []
    for _ in range(200):
        scores = shift.scores(-np.sort(-(rng.random(ladder.gaps.shape) ** rng.choice([0.1, 1, 3])), axis=1))
        x = payoffs(scores, ladder.gaps, ladder.least, np.full(len(scores), far), shift)
        found.append(np.log1p((0.999 / -x[:, :1] * x).max(axis=1)).max())
    assert most / 3 < max(found) <= most


@pytest.mark.parametrize("rule", [TopK(3, 2), Threshold(0.4)], ids=["top-k", "threshold"])
def test_prefix(rule: Rule) -> None:
    """What was claimed at a cut stays claimed, whatever draws follow."""
    rng = np.random.default_rng(5)
    votes = rng.random((500, 6)) < [0.9, 0.8, 0.4, 0.2, 0.1, 0.05]
    if isinstance(rule, TopK):
        votes = random_ranked(rng, labels=6, depth=2, draws=500, spread=2.0)
    labels = np.argsort(-np.bincount(votes.ravel(), minlength=6))[:2] if isinstance(rule, TopK) else [0, 1]

    def claimed(rows: np.ndarray) -> np.ndarray:
        true, false = betting_radii(read_draws(rows, labels, rule, 6), rule, 0.1, Gaussian(1.0))
        return true if false is None else np.concatenate([true, false])

    before = claimed(votes[:200])
    garbage = votes.copy()
    garbage[200:] = garbage[200:][:, ::-1] if isinstance(rule, Threshold) else (garbage[200:] + 3) % 6
    after = claimed(garbage)
    assert np.any(before > 0)
    assert np.all(after >= before - 1e-12)


@pytest.mark.parametrize(("c", "d"), [(2, 1), (6, 3), (5, 0), (30, 13)])
def test_fractions(c: int, d: int) -> None:
    """The claims of one image together spend at most alpha."""
    draws = Draws(
        np.zeros((1, d), dtype=np.bool_), np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), c - d
    )
    threshold = Threshold(0.5)
    for _, claims in (
        top_k_sizes(draws, TopK(3 % c + 1, 2), 0.2, Gaussian(1.0)),
        floors(draws, threshold, 0.2, Gaussian(1.0)),
        ceilings(draws, threshold, 0.2, Gaussian(1.0), ANYTIME),
    ):
        levels = [exp(-claim.needed) for claim in claims]
        assert min(levels, default=1.0) > 0
        assert sum(levels) <= 0.2 * (1 + 1e-12)


@pytest.mark.parametrize("course", COURSES.values(), ids=COURSES)
def test_division_of_alpha(course: Course) -> None:
    """Only draws before the first cut divide alpha among the sizes, and the parts are never more than alpha in all."""
    rng, rule, divisions = np.random.default_rng(4), TopK(5, 3), set()
    first = course.cuts[0]
    for _ in range(12):
        ranked = random_ranked(rng, labels=9, depth=3, draws=DRAWS, spread=2.0)
        later = ranked.copy()
        later[first:] = random_ranked(rng, labels=9, depth=3, draws=DRAWS - first, spread=0.1)
        parts = []
        for votes in (ranked, later):
            draws = read_draws(votes, [0, 1, 2], rule, 9)
            game, claims = top_k_sizes(draws, rule, 0.01, Gaussian(1.0))
            settled = wealth.settle(course.blocks(draws, game, claims), claims, course)
            parts.append(tuple(exp(-claim.needed) for claim in settled))
        assert parts[0] == parts[1]
        assert sum(parts[0]) <= 0.01 * (1 + 1e-12)
        divisions.add(parts[0])
    assert len(divisions) > 1


def most_mean(game: Game, u: int, v: int, logs: np.ndarray, far: float) -> float:
    """The largest mean of the executed payoff over all laws of W with C <= 0 at D: a linear programme.

    Args:
        game: The values of W.
        u: The number of labels in S.
        v: The number of labels in T.
        logs: (a, b) log g as executed.
        far: D.
    """
    a, b = (each.tolist() for each in game.cells())
    worth = {}
    for x, y in zip(a, b, strict=True):
        if x <= u and y <= v:
            t = game.threshold
            value = x / u - y / v if t is None else x / u - t if game.most_in else t - y / v
            worth[round(value, 12)] = np.exp(logs[x, y])
    values = np.array(sorted(worth))
    count = len(values)
    # The law, then for each value but the least what is left of {W >= value}: at least P - D, and at least 0.
    tails = np.triu(np.ones((count, count)))[1:]
    left = np.concatenate([tails, -np.eye(count - 1)], axis=1)
    mean = np.concatenate([np.zeros(count), np.diff(values)])[None]
    solved = linprog(
        -np.concatenate([[worth[w] for w in values], np.zeros(count - 1)]),
        A_ub=np.concatenate([left, mean]),
        b_ub=np.concatenate([np.full(count - 1, far), [-values[0]]]),
        A_eq=np.concatenate([np.ones(count), np.zeros(count - 1)])[None],
        b_eq=[1.0],
    )
    return float(-solved.fun)


def means(case, patch: pytest.MonkeyPatch) -> list[float]:
    """The largest mean of every bet, where the pair is broken at the D that it is made for."""
    draws, game, claim = case
    found = []
    for block in bets_of(patch, draws, game, claim)[1]:
        for at in np.flatnonzero(block.pair[0] >= 0):
            table = block.table(0, 0, at)
            if np.any(table):
                sizes = max(1, len(block.subset(0))), max(1, block.v(0))
                found.append(most_mean(game, *sizes, table, float(FAR[at])))
    return found


@pytest.mark.parametrize("game", GAMES, ids=game_id)
def test_mean_payoff_of_random_scores(game: Game) -> None:
    """A bet on any scores, near D or not, has no mean above 1; the worst law has nearly 1 for many of them."""
    rng, u, v = np.random.default_rng(5), max(1, game.most_in), max(1, game.most_out)
    ladder, (a, b) = ladders(game, (u if game.most_in else 0,), (v,)), game.cells()
    found = []
    for far in (0.0, 0.3, 0.3, 0.8):
        near = rng.choice([far, 1.0], (1, ladder.gaps.shape[1]))
        scores = -np.sort(-1.3 * near * rng.random(near.shape))
        x = payoffs(scores, ladder.gaps, ladder.least, np.array([far]), PROBABILITY_SHIFT)[0]
        logs = np.zeros((game.most_in + 1, game.most_out + 1))
        logs[a[ladder.order[0]], b[ladder.order[0]]] = np.log1p(0.9 / -x[0] * x)
        found.append(most_mean(game, u, v, logs, far))
    assert max(found) <= 1 + 1e-7
    assert max(found) > 1 - 1e-3


@by_variation
def test_mean_payoff_of_variation(case, monkeypatch: pytest.MonkeyPatch) -> None:
    """No executed bet has a mean above 1 on any law that leaves the pair broken; a b0 that is too small is caught."""
    fair = means(case, monkeypatch)
    assert len(fair) > 3
    assert max(fair) <= 1 + 1e-7
    monkeypatch.setattr(wealth, "payoffs", lambda *given: payoffs(*given) + 1e-3)
    assert max(means(case, monkeypatch)) > 1 + 1e-6
