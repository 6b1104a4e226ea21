"""The two tables that fix the default method by the number of draws (docs/theory.md 4): `coupled` less `joint`.

    python -m benchmarks.default_method VOTES

VOTES is a folder of ranked votes under Gaussian noise.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.results.sources import Source, open_votes
from multiguard.certify import TopK
from multiguard.certify.arguments import Floats

FEW = (20, 50, 60, 80, 100, 200, 1000)
MANY = (1000, 5000, 10_000, 20_000, 50_000, 100_000)
RADII = 0.5 * np.arange(6)  # in sigma
RECALL_RULES = (TopK(3, 1), TopK(10, 3), TopK(3, 3), TopK(10, 1))
RADIUS_RULES = (TopK(3, 1), TopK(10, 3), TopK(3, 3), TopK(10, 5))


def points_ahead(source: Source, rule: TopK, draws: int) -> Floats:
    """(radii,) the points of certified recall by which `coupled` is ahead with the first draws."""
    coupled, joint = (
        source.scores(rule, method, draws, radius=RADII * source.sigma).recall for method in ("coupled", "joint")
    )
    return 100 * (coupled - joint)


def radius_ahead(source: Source, rule: TopK, draws: int) -> float:
    """How much larger the mean radius of `coupled` is, in sigma; a size that is not certified has the radius 0."""
    rows = [
        np.concatenate([each.true for each in source.radii(rule, method, draws)]) for method in ("coupled", "joint")
    ]
    proved = np.isfinite(rows[0]) | np.isfinite(rows[1])
    coupled, joint = (np.where(np.isfinite(row), row, 0.0)[proved].mean() for row in rows)
    return float((coupled - joint) / source.sigma)


def resampled(source: Source, draws: int) -> Source:
    """The source with this number of draws of each image, drawn from its votes with replacement."""
    rng = np.random.default_rng(0)
    votes = [each[rng.integers(0, len(each), draws)] for each in source.votes]
    return replace(source, votes=votes, digest=f"{source.digest}, {draws} draws", run=None, seconds={})


def main() -> None:
    """Print both tables."""
    with tempfile.TemporaryDirectory() as kept:
        votes = open_votes(Path(sys.argv[1]), "votes", Path(kept))
        first = votes.subset(range(min(200, len(votes))))
        for rule in RECALL_RULES:
            ahead = [points_ahead(first, rule, n) for n in FEW]
            cells = " | ".join(f"{each.min():.1f} to {each.max():.1f}" for each in ahead)
            print(f"| {rule.k_prime}, {rule.k} | {cells} |", flush=True)
        more = resampled(votes.subset(range(min(120, len(votes)))), max(MANY))
        for rule in RADIUS_RULES:
            print(f"| {rule.k_prime}, {rule.k} |", *(f"{radius_ahead(more, rule, n):.3f} |" for n in MANY), flush=True)


if __name__ == "__main__":
    main()
