"""Scores and bands that are computed some images at a time."""

import numpy as np
import pytest

from multiguard.certify import Radii, Threshold, TopK, certified_size
from multiguard.evaluate import scores, set_scores
from multiguard.evaluate.intervals import mean_bands
from multiguard.evaluate.scores import certified_counts, certified_sizes
from multiguard.io.rows import Rows

RNG = np.random.default_rng(0)
D = RNG.integers(0, 4, 50)
TRUE = [np.sort(np.where(RNG.random(d) < 0.2, -np.inf, RNG.random(d)))[::-1] for d in D]
FALSE = [np.sort(RNG.random(6 - d)) for d in D]
GRID = np.linspace(0, 1, 11)


def counts(rule):
    false = None if isinstance(rule, TopK) else Rows.of(FALSE, float)
    return certified_counts(Rows.of(TRUE, float), false, D, rule, GRID)


def test_sizes():
    """The sizes of all images at once are those of each, also at its radii themselves."""
    grid = np.concatenate([GRID, *TRUE[:5]])
    grid = grid[grid >= 0]
    expected = np.stack([certified_size(each, grid) for each in TRUE], axis=-1)
    assert np.array_equal(certified_sizes(Rows.of(TRUE, float), grid), expected)
    assert np.array_equal(certified_sizes(Rows.of(TRUE, float), grid, slice(7, 20)), expected[:, 7:20])


@pytest.mark.parametrize("averaging", ["mean", "pooled"])
@pytest.mark.parametrize("rule", [TopK(3, 1), Threshold(0.5)])
def test_parts(monkeypatch, rule, averaging):
    """Scores do not depend on how many images are held at a time."""
    false = [None] * len(D) if isinstance(rule, TopK) else FALSE
    radii = [Radii(*each) for each in zip(TRUE, false, strict=True)]
    whole = set_scores(radii, rule, num_true=D.tolist(), radius=GRID, averaging=averaging)
    monkeypatch.setattr(scores, "IMAGES_AT_A_TIME", 7)
    parts = set_scores(radii, rule, num_true=D.tolist(), radius=GRID, averaging=averaging)
    for name in ("precision", "recall", "f1", "true_floor", "false_ceiling"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-12)
    assert (parts.images, parts.without_labels) == (whole.images, whole.without_labels)


def test_bands_of_parts(monkeypatch):
    """Bands do not depend on how many images are held at a time."""
    whole = mean_bands(counts(TopK(3, 1)), 0.9)
    monkeypatch.setattr(scores, "IMAGES_AT_A_TIME", 7)
    parts = mean_bands(counts(TopK(3, 1)), 0.9)
    for name in ("precision", "recall", "f1"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-8)
    assert np.ptp(parts.recall[1] - parts.recall[0]) > 0.02, "they have a width"
