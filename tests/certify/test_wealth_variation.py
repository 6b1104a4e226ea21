"""Bets where a perturbation moves probabilities by D: K against loops over all pairs, and no bet has a mean above 1."""

import numpy as np
import pytest
from scipy.optimize import linprog
from tests.certify.cases import random_ranked
from tests.certify.literal_wealth import Heard, literal_wealth, overhear

from multiguard.certify import Threshold, TopK, wealth
from multiguard.certify.bets import Game, ladders, payoffs
from multiguard.certify.blocks import Block, Claim
from multiguard.certify.draws import Draws, read_draws
from multiguard.certify.layers import PROBABILITY_SHIFT
from multiguard.certify.wealth import ANYTIME

FAR = np.array([0.0, 0.04, 0.15, 0.3, 0.5])


def cases():
    """Draws, game and claim of each kind."""
    rng = np.random.default_rng(1)
    for k_prime, out, into, d in [(1, 1, 1, 1), (2, 2, 2, 3), (3, 2, 3, 4)]:
        ranked = random_ranked(rng, labels=d + 4, depth=k_prime, draws=220, spread=4.0)
        likely = np.argsort(-np.bincount(ranked.ravel(), minlength=d + 4))
        game = Game(min(k_prime, d), min(k_prime, into), k_prime, shift=PROBABILITY_SHIFT)
        yield read_draws(ranked, likely[:d], TopK(3, k_prime), d + 4), game, Claim(out, into, 3.0)
    sets = read_draws(rng.random((220, 6)) < [0.9, 0.8, 0.7, 0.1, 0.1, 0.05], [0, 1, 2], Threshold(0.4), 6)
    yield sets, Game(3, 0, 3, 0.4, PROBABILITY_SHIFT), Claim(2, 0, 3.0)
    yield sets, Game(0, 3, 3, 0.4, PROBABILITY_SHIFT), Claim(0, 2, 3.0)


def bets_of(patch: pytest.MonkeyPatch, draws: Draws, game: Game, claim: Claim) -> tuple[np.ndarray, list[Heard]]:
    """log K at FAR, and the bets of every block."""
    with overhear(patch, FAR) as heard:
        fast = wealth.wealth(draws, game, [claim], FAR)[0]
    return fast, heard


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: f"{case[1]} {case[2]}")
def test_literal(case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is never above the K of any pair, and often it is near the least."""
    draws, game, claim = case
    fast, heard = bets_of(monkeypatch, draws, game, claim)
    first, planned, last = ANYTIME.blocks(draws.count)[0]
    outs = wealth._sets(Block(draws, (first, last), planned, game, [claim]), claim)
    slow = np.array([literal_wealth(draws, claim, heard, outs, at) for at in range(len(FAR))])
    assert np.all(fast <= slow + 1e-9)
    assert np.all(fast >= 0.5 * slow - 3)
    assert fast[0] > 0


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


GAMES = [Game(2, 3, 3), Game(1, 1, 1), Game(3, 0, 3, 0.3), Game(0, 4, 4, 0.6)]


@pytest.mark.parametrize("game", GAMES, ids=str)
def test_mean_payoff_of_random_scores(game: Game) -> None:
    """A bet on any scores, near D or not, has no mean above 1; the worst law has nearly 1 for many of them."""
    rng, u, v = np.random.default_rng(5), max(1, game.most_in), max(1, game.most_out)
    ladder, (a, b) = ladders(game, (u if game.most_in else 0,), (v,)), game.cells()
    found = []
    for far in (0.0, 0.02, 0.3, 0.3, 0.3, 0.8):
        near = rng.choice([far, 1.0], (1, ladder.gaps.shape[1]))
        scores = -np.sort(-1.3 * near * rng.random(near.shape))
        x = payoffs(scores, ladder.gaps, ladder.least, np.array([far]), PROBABILITY_SHIFT)[0]
        logs = np.zeros((game.most_in + 1, game.most_out + 1))
        logs[a[ladder.order[0]], b[ladder.order[0]]] = np.log1p(0.9 / -x[0] * x)
        found.append(most_mean(game, u, v, logs, far))
    assert max(found) <= 1 + 1e-7
    assert max(found) > 1 - 1e-3


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: f"{case[1]} {case[2]}")
def test_mean_payoff(case, monkeypatch: pytest.MonkeyPatch) -> None:
    """No executed bet has a mean above 1 on any law that leaves the pair broken; a b0 that is too small is caught."""
    fair = means(case, monkeypatch)
    assert len(fair) > 3
    assert max(fair) <= 1 + 1e-7
    monkeypatch.setattr(wealth, "payoffs", lambda *given: payoffs(*given) + 1e-3)
    assert max(means(case, monkeypatch)) > 1 + 1e-6
