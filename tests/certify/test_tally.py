"""What every T loses at most, against a loop over all T."""

from itertools import combinations

import numpy as np
import pytest

from multiguard.certify.wealth import Losses

STEPS, DEPTH, SPAN = 2, 3, 4


def random_hits(rng: np.random.Generator, labels: int, v: int, draws: int = 40) -> tuple[tuple, np.ndarray]:
    """The hits of random draws as `Losses` takes them, and the same as (draws, labels); few labels are likely."""
    likely = rng.random(labels) ** 3
    hit = np.zeros((draws, labels), dtype=bool)
    for row in hit:
        row[rng.choice(labels, rng.integers(0, SPAN), replace=False, p=likely / likely.sum())] = True
    row = np.repeat(np.arange(STEPS), draws // STEPS) * DEPTH + rng.integers(0, DEPTH, draws)
    draw, label = np.nonzero(hit)
    return (row, np.minimum(hit.sum(axis=1), v), draw, label, labels, v), hit


def convex_losses(rng: np.random.Generator, pairs: int = 3) -> np.ndarray:
    """(steps, pairs, a, b) random losses, convex in b and 0 at 0."""
    slopes = np.cumsum(rng.random((STEPS, pairs, DEPTH, SPAN - 1)) ** 2, axis=3)
    return np.concatenate([np.zeros((STEPS, pairs, DEPTH, 1)), np.cumsum(slopes, axis=3)], axis=3)


def literal_most(rivals: tuple, hit: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """(steps, pairs) the most that any T of v labels has lost by the end of each step."""
    (row, *_, labels, v), best = rivals, np.zeros(lost.shape[:2])
    step, a = np.divmod(row, DEPTH)
    for members in combinations(range(labels), v):
        b = hit[:, list(members)].sum(axis=1)
        own = np.stack([lost[s][:, a[step == s], b[step == s]].sum(axis=1) for s in range(STEPS)])
        best = np.maximum(best, np.cumsum(own, axis=0))
    return best


@pytest.mark.parametrize(("labels", "v"), [(3, 1), (4, 2), (5, 3), (9, 2), (9, 3), (8, 5), (6, 6)])
@pytest.mark.parametrize("most", [1, 20, 130], ids=lambda most: f"at most {most} sets")
def test_most_lost(labels: int, v: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No T loses more, whatever part of the sets is counted; with all sets counted it is the most that one loses."""
    monkeypatch.setattr("multiguard.certify.wealth._MOST_SETS", most)
    rng, exact = np.random.default_rng(labels * 10 + v), 0
    for _ in range(15):
        (rivals, hit), lost = random_hits(rng, labels, v), convex_losses(rng)
        losses, slow = Losses(*rivals, (STEPS, DEPTH, SPAN)), literal_most(rivals, hit, lost)
        fast = np.array([losses.add(step, lost[step]) for step in range(STEPS)])
        assert np.all(fast >= slow - 1e-12)
        assert np.all(fast <= 3 * slow + 1e-12)
        exact += bool(np.allclose(fast, slow, rtol=1e-12))
    if v == 1 or most == 130:
        assert exact >= 13
