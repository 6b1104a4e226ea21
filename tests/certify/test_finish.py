"""The bet on all draws of the last block at once: its level, its counts over all V, and how often it is wrong."""

from itertools import combinations

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binomtest
from tests.certify.cases import random_ranked
from tests.certify.literal_wealth import hits_of

from multiguard.certify import TopK, finish, wealth
from multiguard.certify.bets import Game
from multiguard.certify.blocks import Block, Claim
from multiguard.certify.draws import Draws, read_draws
from multiguard.certify.shifts import GAUSSIAN_SHIFT, PROBABILITY_SHIFT
from multiguard.certify.wealth import ANYTIME, fixed_course


def chance(draws: int, lost: mp.mpf, bad: mp.mpf, ties: int) -> mp.mpf:
    """That no draw is lost and at most so many are ties."""
    return mp.fsum(mp.binomial(draws, t) * (bad - lost) ** t * (1 - bad) ** (draws - t) for t in range(ties + 1))


@pytest.mark.parametrize(("draws", "r"), [(300, 2.0), (600, 2.5), (60, 1.2), (5, 0.0), (40, 0.3)])
def test_level_gaussian(draws: int, r: float) -> None:
    """No pair that just breaks has a larger probability, in 40 digits, and some pair has nearly as large a one.

    Rounding may take a thousandth of the margin that is demanded.
    """
    mp.mp.dps = 40
    levels = finish.log_levels(draws, r, GAUSSIAN_SHIFT)
    for ties in (0, 1, 4, 12):
        if ties < len(levels):
            scores = [mp.mpf(s) / 37 for s in range(150)]
            most = max(chance(draws, mp.ncdf(-r - s), mp.ncdf(-r + s), ties) for s in scores)
            assert mp.log(most) <= float(levels[ties]) + finish._MARGIN / 1000
            assert mp.log(most) > float(levels[ties]) - 0.15


@pytest.mark.parametrize(("shift", "r"), [(PROBABILITY_SHIFT, 0.05), (PROBABILITY_SHIFT, 0.3), (GAUSSIAN_SHIFT, 1.7)])
def test_level_of_random_laws(shift, r: float) -> None:
    """No law that leaves the pair broken has a larger probability."""
    rng, draws, ties = np.random.default_rng(1), 50, 3
    level = np.exp(finish.log_levels(draws, r, shift)[ties])
    lost, bad = np.sort(rng.random((2, 20_000)) ** 4, axis=0)
    down = [shift.moved(shift.scores(1 - each), -r) for each in (lost, bad)]
    broken = down[0] + down[1] <= 1
    each = [float(chance(draws, *map(mp.mpf, law), ties)) for law in np.stack([lost, bad], axis=1)[broken][:3000]]
    assert len(each) > 1000
    assert max(each) <= level


def last_block(rng: np.random.Generator, k_prime: int, d: int, into: int) -> tuple[Draws, np.ndarray, Claim, Game]:
    ranked = random_ranked(rng, labels=d + 5, depth=k_prime, draws=120, spread=4.0)
    likely = np.argsort(-np.bincount(ranked.ravel(), minlength=d + 5))
    claim, game = Claim(min(d, 2), into, 3.0), Game(min(k_prime, d), min(k_prime, into), k_prime)
    return read_draws(ranked, likely[:d], TopK(3, k_prime), d + 5), ranked, claim, game


def finished(draws: Draws, claim: Claim, game: Game, needed: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    block = Block(draws, (60, 120), 120, game, [claim])
    outs, radii = wealth._sets(block, claim), np.array([0.2, 0.5, 1.0])
    made, gained = finish.finish(
        block, claim, outs, radii, np.full((len(outs), 3), needed), (np.full(len(outs), -9.0),) * 2
    )
    return made, gained, outs


@pytest.mark.parametrize(("k_prime", "d", "into"), [(2, 1, 1), (2, 2, 2), (3, 2, 3), (2, 3, 1)])
def test_literal(k_prime: int, d: int, into: int) -> None:
    """It is won where no pair has a lost draw or too many ties, counted pair by pair, and nowhere else."""
    rng, won, failed = np.random.default_rng(2), 0, 0
    for _ in range(25):
        draws, _, claim, game = last_block(rng, k_prime, d, into)
        made, gained, outs = finished(draws, claim, game, 1.5)
        inside, outside = hits_of(draws)
        seen = [sum(j in each for each in outside[:60]) for j in range(draws.rivals)]
        for u, at in zip(*np.nonzero(made), strict=True):
            levels = finish.log_levels(60, [0.2, 0.5, 1.0][at], GAUSSIAN_SHIFT)
            most = int(np.flatnonzero(-levels >= 1.5)[-1])
            won_by = set()
            for label in np.flatnonzero(outs[u]).tolist():
                wins = True
                for V in combinations(range(draws.rivals), into):
                    last = max(V, key=lambda j: (-seen[j], j))
                    pairs = [(label in inside[i], last in outside[i]) for i in range(60, 120)]
                    ties = sum(own == other for own, other in pairs)
                    wins &= (False, True) not in pairs and ties <= most
                if wins:
                    won_by.add(label)
            if np.isfinite(gained[u, at]):
                assert won_by
                assert gained[u, at] == -levels[most]
                won += 1
            else:
                assert won_by != set(np.flatnonzero(outs[u]).tolist())
                failed += 1
    assert won > 5
    assert failed > 5


def test_earlier_draws() -> None:
    """Where it is done depends on earlier draws alone."""
    rng, compared = np.random.default_rng(4), 0
    for _ in range(10):
        _, ranked, claim, game = last_block(rng, 2, 2, 2)
        labels = np.argsort(-np.bincount(ranked.ravel(), minlength=7))[:2]
        other = ranked.copy()
        other[60:] = random_ranked(rng, labels=7, depth=2, draws=60, spread=0.2)
        made = [finished(read_draws(each, labels, TopK(3, 2), 7), claim, game, 1.5)[0] for each in (ranked, other)]
        np.testing.assert_array_equal(*made)
        compared += made[0].any()
    assert compared > 3


R, DRAWS, FIRST, LABELS = 1.0, 60, 20, 200


def two_sided(rng: np.random.Generator, draws: int, lost: float, bad: float) -> Draws:
    """L = {0} against label 1, k = 1 and k' = 2: draws that are lost, tied and won; many other labels fill up."""
    votes = np.array([[1, 2], [0, 1], [0, 2]])[np.searchsorted([lost, bad], rng.random(draws))]
    votes[votes == 2] = rng.integers(2, LABELS, (votes == 2).sum())
    return read_draws(votes, [0], TopK(1, 2), LABELS)


def wrong_claims(alpha: float, images: int, patch: pytest.MonkeyPatch) -> int:
    """How often a claim that is broken at R is made, for the law along which the event is the likeliest."""
    claim, rng, wrong = Claim(1, 1, float(-np.log(alpha))), np.random.default_rng(round(alpha * 100)), 0
    ties = int(np.flatnonzero(-finish.log_levels(DRAWS - FIRST, R, GAUSSIAN_SHIFT) >= claim.needed)[-1])
    laws = [(ndtr(-R - s), ndtr(-R + s)) for s in np.linspace(0, 3, 60)]
    lost, bad = max(laws, key=lambda law: chance(DRAWS - FIRST, *map(mp.mpf, law), ties))
    # Tried whatever was lost before: what earlier draws say is a matter of power alone.
    patch.setattr(Block, "lost_and_tied", lambda self, claim: (np.zeros(1), np.zeros(1)))
    for _ in range(images):
        block = Block(two_sided(rng, DRAWS, lost, bad), (FIRST, DRAWS), DRAWS, Game(1, 1, 2), [claim])
        made, gained = finish.finish(
            block, claim, np.ones((1, 1), int), np.array([R]), np.full((1, 1), claim.needed), (np.zeros(1),) * 2
        )
        assert made.all()
        wrong += bool(gained[0, 0] >= claim.needed)
    return wrong


@pytest.mark.parametrize("alpha", [0.1, 0.4])
def test_false_claims(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the pair is just broken it is won as rarely as promised, and the promise is used up."""
    wrong = wrong_claims(alpha, 1500, monkeypatch)
    assert binomtest(wrong, 1500, alpha, alternative="greater").pvalue > 1e-4
    assert wrong > 0.5 * alpha * 1500


def test_false_claims_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels for a radius that is a little larger are caught."""
    levels = finish.log_levels
    with monkeypatch.context() as patch:
        patch.setattr(finish, "log_levels", lambda draws, r, shift: levels(draws, r - 0.2, shift))
        wrong = wrong_claims(0.1, 1500, patch)
    assert binomtest(wrong, 1500, 0.1, alternative="greater").pvalue < 1e-6


def test_wealth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is done nothing else counts in the last block, and it is done for a fixed number of draws alone."""
    draws, claim, game = two_sided(np.random.default_rng(3), 500, 0.0, 0.02), Claim(1, 1, 6.9), Game(1, 1, 2)
    radii, asked = np.arange(1.7, 2.3, 0.02), []
    original = finish.finish

    def heard(block, claim, outs, radii, needed, reached):
        made, gained = original(block, claim, outs, radii, needed, reached)
        asked.append((needed, made, gained))
        return made, gained

    monkeypatch.setattr(wealth, "finish", heard)
    log_k = wealth.wealth(draws, game, [claim], radii, fixed_course(500))[0]
    (needed, made, gained), *others = asked
    assert not others
    assert made.any()
    assert np.isfinite(gained[made]).any()
    assert np.isneginf(gained[made]).any() or made.sum() < len(radii)
    won = made[0] & np.isfinite(gained[0])
    np.testing.assert_allclose(log_k[won], (claim.needed - needed + gained)[0, won])
    assert np.all(log_k[made[0] & ~won] < claim.needed)
    wealth.wealth(draws, game, [claim], radii, ANYTIME)
    assert len(asked) == 1
