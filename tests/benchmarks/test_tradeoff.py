"""Recall against draws: adaptive draws are replayed on the votes, and the figure shows the points it is given."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.results.sources import Source, open_arrays
from benchmarks.results.tradeoff import Point, mean_draws, replayed, tradeoff_figure

from multiguard.certify import TopK
from multiguard.report.figures import fixed_style


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """Three images of four labels: one that is settled at once, one that has no hope, one that needs more draws."""
    rng = np.random.default_rng(0)
    truth = np.zeros((3, 4), dtype=bool)
    truth[:, 0] = True
    chances = np.array([1.0, 0.0, 0.85])
    votes = np.where(rng.random((3, 400)) < chances[:, None], 0, 1).astype(np.uint8)[:, :, None]
    np.savez(tmp_path / "votes.npz", votes=votes, labels=truth)
    return open_arrays(tmp_path / "votes.npz", "votes", 0.5, tmp_path / "kept")


def test_replayed_draws(source: Source) -> None:
    """An image whose claim is settled or hopeless stops early; the others take draws up to the limit."""
    drawn = replayed(source, TopK(k=1, k_prime=1), 0.25, 400)
    taken = [len(each) for each in drawn.votes]
    assert max(taken[:2]) <= 100 < taken[2]
    pairs = zip(drawn.votes, source.votes, strict=True)
    assert all(np.array_equal(each, every[: len(each)]) for each, every in pairs)
    assert mean_draws(drawn) == np.mean(taken)
    again = replayed(source, TopK(k=1, k_prime=1), 0.25, 400)
    assert [len(each) for each in again.votes] == taken, "the number of draws is read back"
    assert max(len(each) for each in replayed(source, TopK(k=1, k_prime=1), 0.25, 200).votes) <= 200


def test_tradeoff_lines() -> None:
    """There is a line per kind of draws, over the mean number of draws, on an axis that holds every point."""
    points = [Point("fixed", 1000, 1000.0, 0.4), Point("fixed", 100, 100.0, 0.3), Point("adaptive", 1000, 55.5, 0.35)]
    with fixed_style():
        (axes,) = tradeoff_figure(points, "k = 10").axes
    fixed, adaptive = axes.lines
    assert (fixed.get_label(), adaptive.get_label()) == ("fixed", "adaptive")
    assert fixed.get_xydata().tolist() == [[100.0, 30.0], [1000.0, 40.0]]
    assert adaptive.get_xydata().tolist() == [[55.5, 35.0]]
    assert axes.get_xlim()[0] < 55.5
    assert axes.get_ylim()[0] < 30 < 40 < axes.get_ylim()[1]
