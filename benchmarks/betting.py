"""Certified recall of betting, joint and paper on the same votes: `python -m benchmarks.betting [images]`.

For each (k', k) a table: certified recall in % at R / sigma = 0.5 to 2.5, at all draws and at half of them. The last
rows are the gains that decide on a default: betting over joint at the same draws, and over paper at twice the draws.
"""

import sys
import time

import numpy as np
from numpy.typing import NDArray

from benchmarks.certify import load_votes
from multiguard.certify import Method, TopK, certified_radii_batch, certified_size

RADII = (0.5, 1.0, 1.5, 2.0, 2.5)
CONFIGS = ((3, 10), (1, 10), (1, 3), (3, 3), (5, 10), (5, 5))


def recall(
    votes: NDArray[np.uint8], labels: list[NDArray[np.int64]], rule: TopK, method: Method
) -> NDArray[np.float64]:
    """The mean certified recall in % at each radius."""
    proved = certified_radii_batch(votes, labels, rule, num_labels=80, sigma=1.0, method=method)
    sizes = [certified_size(radii.true, RADII) / len(own) for radii, own in zip(proved, labels, strict=True)]
    return 100 * np.mean(sizes, axis=0)


def main() -> None:
    """Prints the tables."""
    name, (votes, labels) = load_votes()
    count = int(sys.argv[1]) if len(sys.argv) > 1 else len(labels)
    votes, labels = votes[:count], labels[:count]
    draws = votes.shape[1]
    print(f"betting: {name}, {count} images, {draws} draws, alpha = 0.001, R / sigma = {RADII}")
    for k_prime, k in CONFIGS:
        rule, start = TopK(k, k_prime), time.process_time()
        found = {(method, draws): recall(votes, labels, rule, method) for method in ("betting", "joint", "paper")}
        taken = time.process_time() - start
        half = draws // 2
        found |= {(method, half): recall(votes[:, :half], labels, rule, method) for method in ("betting", "joint")}
        print(f"k' = {k_prime}, k = {k} ({taken:.0f} s)")
        for (method, n), values in found.items():
            print(f"  {method:8} n = {n:5}  {_numbers(values)}")
        print(
            f"  over joint at n = {draws}, {half}:  {_numbers(found['betting', draws] - found['joint', draws])}"
            f"   {_numbers(found['betting', half] - found['joint', half])}"
        )
        print(
            f"  at n = {half} over paper at {draws}:  {_numbers(found['betting', half] - found['paper', draws])}",
            flush=True,
        )


def _numbers(values: NDArray[np.float64]) -> str:
    return " ".join(f"{value:5.1f}" for value in values)


if __name__ == "__main__":
    main()
