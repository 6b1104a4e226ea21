"""Certified recall of coupled, betting, joint and paper on the same votes: `python -m benchmarks.betting [VOTES ...]`.

VOTES is as for `benchmarks.adaptive`, by default the real COCO votes. For each (k', k) a table: certified recall in %
at R / sigma = 0.5 to 2.5, at all draws and at half of them. The last rows are the gains that decide on a default:
coupled over joint at the same draws, and over paper at twice the draws.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.shared_data import COCO_VOTES

from benchmarks.adaptive import Images, load
from multiguard.certify import Method, TopK, certified_radii_batch, certified_size

RADII = (0.5, 1.0, 1.5, 2.0, 2.5)
CONFIGS = ((3, 10), (1, 10), (1, 3), (3, 3), (5, 10), (5, 5))


def recall(images: Images, num_labels: int, rule: TopK, method: Method, draws: int) -> NDArray[np.float64]:
    """The mean certified recall in % at each radius, from the first draws of each image."""
    votes, labels = images
    some = (ranked[:draws] for ranked in votes)
    proved = certified_radii_batch(some, labels, rule, num_labels=num_labels, sigma=1.0, method=method)
    sizes = [certified_size(radii.true, RADII) / len(own) for radii, own in zip(proved, labels, strict=True)]
    return 100 * np.mean(sizes, axis=0)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("votes", type=Path, nargs="*", default=[COCO_VOTES])
    parser.add_argument("--images", type=int)
    parser.add_argument("--draws", type=int, help="all by default")
    args = parser.parse_args()
    (votes, labels), num_labels, _ = load(args.votes, max(k_prime for k_prime, _ in CONFIGS))
    images = votes[: args.images], labels[: args.images]
    draws = args.draws or len(votes[0])
    print(f"{len(images[0])} images, {draws} draws, alpha = 0.001, R / sigma = {RADII}")
    for k_prime, k in CONFIGS:
        print_table(images, num_labels, TopK(k, k_prime), draws)


def print_table(images: Images, num_labels: int, rule: TopK, draws: int) -> None:
    """The table of one (k', k)."""
    half, start = draws // 2, time.process_time()
    methods: tuple[Method, ...] = ("coupled", "betting", "joint", "paper")
    found = {(method, draws): recall(images, num_labels, rule, method, draws) for method in methods}
    taken = time.process_time() - start
    found |= {(method, half): recall(images, num_labels, rule, method, half) for method in ("coupled", "joint")}
    print(f"k' = {rule.k_prime}, k = {rule.k} ({taken:.0f} s)")
    for (method, n), values in found.items():
        print(f"  {method:8} n = {n:5}  {_numbers(values)}")
    for n in (draws, half):
        print(f"  coupled over joint at n = {n}:  {_numbers(found['coupled', n] - found['joint', n])}")
    gain = found["coupled", half] - found["paper", draws]
    print(f"  coupled at n = {half} over paper at {draws}:  {_numbers(gain)}", flush=True)


def _numbers(values: NDArray[np.float64]) -> str:
    return " ".join(f"{value:5.1f}" for value in values)


if __name__ == "__main__":
    main()
