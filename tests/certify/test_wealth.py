"""K against loops over all pairs, and its bets against 40 digits."""

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from tests.certify.cases import random_ranked
from tests.certify.literal_wealth import Bet, excess, literal_wealth

from multiguard.certify import BETTING_RADII, Rule, Threshold, TopK, certified_radii, wealth
from multiguard.certify.bets import Game
from multiguard.certify.blocks import Block, Claim
from multiguard.certify.draws import Draws, read_draws
from multiguard.certify.wealth import _Bets, _sets_out

# k', |U|, |V|, d
SHAPES = [(1, 1, 1, 1), (1, 2, 2, 2), (2, 1, 3, 2), (2, 2, 2, 3), (3, 3, 4, 3), (3, 2, 3, 4)]


def top_k_draws(rng: np.random.Generator, k_prime: int, d: int, draws: int) -> Draws:
    ranked = random_ranked(rng, labels=d + 5, depth=k_prime, draws=draws, spread=1.5)
    likely = np.argsort(-np.bincount(ranked.ravel(), minlength=d + 5))
    return read_draws(ranked, likely[:d], TopK(3, k_prime), d + 5)


def set_draws(rng: np.random.Generator, draws: int) -> Draws:
    return read_draws(rng.random((draws, 6)) < [0.9, 0.8, 0.7, 0.2, 0.1, 0.05], [0, 1, 2], Threshold(0.4), 6)


def cases():
    """Draws, game and claim of each kind."""
    rng = np.random.default_rng(1)
    for k_prime, out, into, d in SHAPES:
        game = Game(min(k_prime, d), min(k_prime, into), k_prime)
        yield top_k_draws(rng, k_prime, d, 260), game, Claim(out, into, 5.0)
    yield set_draws(rng, 260), Game(3, 0, 3, 0.4), Claim(2, 0, 5.0)
    yield set_draws(rng, 260), Game(0, 3, 3, 0.4), Claim(0, 2, 5.0)


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: f"{case[1]} {case[2]}")
def test_literal(case) -> None:
    """The bound is never above the K of any pair, and often it is near the least."""
    draws, game, claim = case
    seen = 0
    for r in (0.0, 0.1, 0.42, 0.9):
        fast = wealth.wealth(draws, game, [Claim(claim.out, claim.into, 1e-9)], np.array([r]))[0, 0]
        slow = literal_wealth(draws, game, Claim(claim.out, claim.into, 1e-9), r)
        assert fast <= slow + 1e-9
        assert fast >= 0.5 * slow - 3
        seen += fast > 0
    assert seen


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: f"{case[1]} {case[2]}")
def test_mean_payoff(case) -> None:
    """No executed bet has a mean above 1 on any law that leaves the pair broken: in 40 digits, from its payoffs."""
    draws, game, claim = case
    mp.mp.dps = 40
    checked = 0
    for first, r in ((30, 0.02), (100, 0.5), (200, 1.4), (200, 2.6)):
        block = Block(draws, (first, 260), game, [claim])
        bets = _Bets(block, claim, _sets_out(draws.num_true, claim.out), np.array([r]))
        for option in np.flatnonzero(bets.ends > r)[:: max(1, len(bets.ends) // 3)]:
            bet = Bet(bets, int(option), r)
            assert excess(game, bet, r) <= 0
            checked += 1
    assert checked


def test_mean_payoff_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A b0 that is too small by a millionth is caught."""
    draws, game, claim = next(iter(cases()))
    mp.mp.dps = 40
    right = wealth.payoffs
    monkeypatch.setattr(wealth, "payoffs", lambda *given: right(*given) + 1e-6)
    block = Block(draws, (200, 260), game, [claim])
    bets = _Bets(block, claim, _sets_out(draws.num_true, claim.out), np.array([0.1]))
    assert excess(game, Bet(bets, int(np.argmax(bets.ends)), 0.1), 0.1) > 0


@pytest.mark.parametrize("rule", [TopK(3, 2), Threshold(0.4)], ids=["top-k", "threshold"])
def test_prefix(rule: Rule) -> None:
    """What was claimed at a cut stays claimed, whatever draws follow."""
    rng = np.random.default_rng(5)
    votes = rng.random((500, 6)) < [0.9, 0.8, 0.4, 0.2, 0.1, 0.05]
    if isinstance(rule, TopK):
        votes = random_ranked(rng, labels=6, depth=2, draws=500, spread=2.0)
    options = {"sigma": 1.0, "alpha": 0.1, "num_labels": 6, "method": "betting"}
    labels = np.argsort(-np.bincount(votes.ravel(), minlength=6))[:2] if isinstance(rule, TopK) else [0, 1]
    before = certified_radii(votes[:200], labels, rule, **options).row
    garbage = votes.copy()
    garbage[200:] = garbage[200:][:, ::-1] if isinstance(rule, Threshold) else (garbage[200:] + 3) % 6
    after = certified_radii(garbage, labels, rule, **options).row
    assert np.any(before > 0)
    assert np.all(after >= before - 1e-12)


def test_radii_list() -> None:
    """Radii are sigma times values of the list, rounded down."""
    votes = [[0]] * 95 + [[1]] * 5
    radius = certified_radii(votes * 3, [0], TopK(1, 1), sigma=0.3, num_labels=2, method="betting").true[0]
    step = round(float(radius) / 0.3 * 50)
    assert step > 10
    exact = Fraction(0.3) * Fraction(float(BETTING_RADII[step]))
    assert Fraction(float(radius)) <= exact < Fraction(float(np.nextafter(radius, 1)))
