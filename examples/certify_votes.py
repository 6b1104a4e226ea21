"""Certify votes that this script draws itself: what multiguard does once a classifier has been sampled.

A linear tagger looks at a point in R^40 and returns its 3 best labels out of 20. Each of 200 points is voted on by
1,000 noisy copies; every method then says how many of the point's true labels survive an attack of a given size.
"""

import numpy as np
from rich.console import Console
from rich.table import Table

from multiguard import METHODS, certified_radii_batch, set_scores

NUM_LABELS, DIMENSIONS, POINTS, DRAWS = 20, 40, 200, 1000
K, K_PRIME, SIGMA, ALPHA = 5, 3, 0.5, 0.001
RADII = np.array([0.0, 0.25, 0.5, 0.75, 1.0])


def main() -> None:
    """Draws the votes, certifies them with every method and prints certified recall."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((DIMENSIONS, NUM_LABELS)) / np.sqrt(DIMENSIONS)
    ranked, labels = [], []
    for _ in range(POINTS):
        point = rng.standard_normal(DIMENSIONS)
        labels.append(np.argsort(-(point @ directions))[: rng.integers(1, 5)])
        noisy = point + SIGMA * rng.standard_normal((DRAWS, DIMENSIONS))
        ranked.append(np.argsort(-(noisy @ directions), axis=1)[:, :K_PRIME])

    table = Table(title=f"certified recall of {POINTS} points (k' = {K_PRIME}, k = {K}, n = {DRAWS})")
    for heading in ("method", *(f"R = {radius:g}" for radius in RADII)):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for method in METHODS:
        if method == "cohen":
            continue  # one label and one prediction only
        radii = certified_radii_batch(
            ranked, labels, num_labels=NUM_LABELS, k=K, k_prime=K_PRIME, sigma=SIGMA, alpha=ALPHA, method=method
        )
        scores = set_scores(radii, num_true=[len(true) for true in labels], k=K, radius=RADII)
        table.add_row(method, *(f"{recall:.1%}" for recall in scores.recall))
    Console().print(table)


if __name__ == "__main__":
    main()
