"""The cost of certifying, against a literal evaluation: `python -m benchmarks.certify`.

The literal evaluation is what the paper's public code does: for each radius of a 301-point grid it evaluates Theorem 1
term by term with SciPy's scalar functions. It is timed on a few images and scaled to all of them.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from numpy.typing import NDArray
from tests.certify import literal
from tests.certify.cases import random_ranked
from tests.shared_data import COCO_VOTES

from benchmarks.results.distance import limit_fractions
from multiguard.certify import Method, TopK, certified_radii_batch

K, K_PRIME, SIGMA, ALPHA, NUM_LABELS = 10, 3, 0.5, 0.001, 80
Votes = tuple[NDArray[np.uint8], list[NDArray[np.int64]]]


def load_votes() -> tuple[str, Votes]:
    """The real COCO votes where they are at hand, else simulated ones of the same shape."""
    if COCO_VOTES.exists():
        with np.load(COCO_VOTES) as stored:
            return "real COCO votes", (stored["votes"], [np.flatnonzero(row) for row in stored["labels"]])
    rng = np.random.default_rng(0)
    votes = np.stack([random_ranked(rng, labels=80, depth=10, draws=1000, spread=3.0) for _ in range(500)])
    return "simulated votes", (votes.astype(np.uint8), [np.arange(1 + i % 5) for i in range(500)])


def seconds(call: Callable[[], object], repeats: int = 5) -> float:
    """The median processor time of a call: both sides of each ratio run on one core."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return median(times)


def certify(votes: Votes, method: Method) -> None:
    """All radii of all images."""
    certified_radii_batch(*votes, TopK(K, K_PRIME), num_labels=NUM_LABELS, sigma=SIGMA, alpha=ALPHA, method=method)


def literal_seconds(votes: Votes, images: int = 16, points: int = 3) -> float:
    """What the literal evaluation of Theorem 1 would take for all images on 301 radii."""
    literal.down, literal.up = literal.down.__wrapped__, literal.up.__wrapped__  # no memory from call to call
    ranked, labels = votes
    chosen = np.linspace(0, len(labels) - 1, images).astype(int)

    def evaluate() -> None:
        for i in chosen:
            counts = np.bincount(ranked[i][:, :K_PRIME].ravel(), minlength=NUM_LABELS).tolist()
            for r in np.linspace(0, 3, points):
                literal.paper_size(
                    counts, labels[i].tolist(), draws=len(ranked[i]), k=K, k_prime=K_PRIME, alpha=ALPHA, r=float(r)
                )

    return seconds(evaluate, repeats=3) / images / points * len(labels) * 301


def peak_megabytes(images: int, draws: int) -> float:
    """The peak memory of a fresh process that certifies simulated images, one set of votes shared by all."""
    code = f"from benchmarks.certify import report_memory; report_memory({images}, {draws})"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def report_memory(images: int, draws: int) -> None:
    """Prints the peak megabytes of this process after certifying images of 1 to 12 labels jointly."""
    one = random_ranked(np.random.default_rng(0), labels=80, depth=10, draws=draws, spread=3.0).astype(np.uint8)
    certify(([one] * images, [np.arange(1 + i % 12) for i in range(images)]), "joint")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    """Prints the table."""
    name, votes = load_votes()
    ranked, labels = votes
    print(f"certify: {name}, {len(labels)} images, c = {NUM_LABELS}, k' = {K_PRIME}, k = {K}, n = {ranked.shape[1]}")
    slow = literal_seconds(votes)
    half = (ranked[: len(labels) // 2], labels[: len(labels) // 2])
    doubled = (np.concatenate([ranked, ranked], axis=1), labels)
    for method in ("paper", "joint"):
        taken = seconds(lambda m=method: certify(votes, m))
        images = taken / seconds(lambda m=method: certify(half, m))
        draws = seconds(lambda m=method: certify(doubled, m)) / taken
        print(f"  {method:6}{taken:7.3f} s; literal ({slow:,.0f} s, scaled) / {method}: {slow / taken:8,.0f} x")
        print(f"         twice the images: {images:4.2f} x the time; twice the draws: {draws:4.2f} x")
    for images, drawn in ((500, 1000), (40, 100_000)):
        peak = peak_megabytes(images, drawn)
        print(f"  peak memory, joint, {images} images of 1 to 12 labels, n = {drawn:,}: {peak:,.0f} MB")
    near = limit_fractions(5, labels=8, k_prime=2, k=3, true=3)
    for method in ("joint", "paper"):
        ratio = float(np.mean([each[method] for each in near]))
        print(f"  {method:6} with exact probabilities reaches {ratio:.1%} of the exact limit (small cases)")


if __name__ == "__main__":
    main()
