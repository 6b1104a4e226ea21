"""The cost of certifying: `python -m benchmarks.certify`.

Times are of one core, but for the last line of the default method: all CPUs. The literal evaluation is what the paper's
public code does: for each radius of a 301-point grid it evaluates Theorem 1 term by term with SciPy's scalar functions.
It is timed on a few images and scaled to all of them.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray
from tests.certify import literal
from tests.certify.cases import random_ranked
from tests.shared_data import COCO_VOTES

from benchmarks.results.distance import limit_fractions
from multiguard.certify import (
    Method,
    Rule,
    Threshold,
    TopK,
    certified_radii_batch,
    hits_from_ranked,
    settled_by_betting,
)

K, K_PRIME, SIGMA, ALPHA, NUM_LABELS = 10, 3, 0.5, 0.001, 80
TOP_K = TopK(K, K_PRIME)
Votes = tuple[Sequence[NDArray[np.generic]], list[NDArray[np.int64]]]


def load_votes() -> tuple[str, Votes]:
    """The real COCO votes where they are at hand, else simulated ones of the same shape."""
    if COCO_VOTES.exists():
        with np.load(COCO_VOTES) as stored:
            return "real COCO votes", (stored["votes"], [np.flatnonzero(row) for row in stored["labels"]])
    rng = np.random.default_rng(0)
    votes = np.stack([random_ranked(rng, labels=80, depth=10, draws=1000, spread=3.0) for _ in range(500)])
    return "simulated votes", (votes.astype(np.uint8), [np.arange(1 + i % 5) for i in range(500)])


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """The median processor time of a call in this process: both sides of each ratio run on one core."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return median(times)


def certify(votes: Votes, method: Method | None, rule: Rule = TOP_K) -> None:
    """All radii of all images, few enough at a time to be read by this process alone."""
    options = {"num_labels": NUM_LABELS, "sigma": SIGMA, "alpha": ALPHA, "method": method}
    for start in range(0, len(votes[1]), 25):
        certified_radii_batch(*(each[start : start + 25] for each in votes), rule, **options)  # type: ignore[arg-type]


def paper_size(counts: NDArray[np.int64], labels: NDArray[np.int64], draws: int, r: float) -> int:
    """Theorem 1 term by term."""
    level = ALPHA / len(counts)
    a = sorted((literal.lower.__wrapped__(counts[i], draws, level) for i in labels), reverse=True)
    others = np.delete(np.arange(len(counts)), labels)
    b = sorted((literal.upper.__wrapped__(counts[j], draws, level) for j in others), reverse=True)
    down, up = literal.down.__wrapped__, literal.up.__wrapped__  # no memory from call to call
    for e in range(min(len(a), K), 0, -1):
        s, cap = K - e + 1, K_PRIME - sum(a)
        left = [K_PRIME / u * down(sum(a[e - 1 : e - 1 + u]) / K_PRIME, r) for u in range(1, len(a) - e + 2)]
        right = [K_PRIME / v * up(min(sum(b[s - v : s]), cap) / K_PRIME, r) for v in range(1, s + 1)]
        if max(down(a[e - 1], r), *left) > min(up(b[s - 1], r), *right):
            return e
    return 0


def literal_seconds(votes: Votes, images: int = 12, points: int = 3) -> float:
    """What the literal evaluation of Theorem 1 would take for all images on 301 radii."""
    ranked, labels = votes
    chosen = np.linspace(0, len(labels) - 1, images).astype(int)

    def evaluate() -> None:
        for i in chosen:
            counts = np.bincount(ranked[i][:, :K_PRIME].ravel(), minlength=NUM_LABELS)
            for r in np.linspace(0, 3, points):
                paper_size(counts, labels[i], len(ranked[i]), float(r))

    return seconds(evaluate, repeats=1) / images / points * len(labels) * 301


def decision_seconds(votes: Votes, draws: int, rule: Rule = TOP_K) -> float:
    """What it takes to decide whether one image, with this number of draws, may stop."""
    so_far = [each[:draws] for each in votes[0]], votes[1]
    options = {"num_labels": NUM_LABELS, "sigma": SIGMA, "alpha": ALPHA, "radii": (0.25, 0.5)}
    options |= {"draws": 10_000, "forecast_margin": 1.0}
    # Once: what the first draws say of an image is known at its next decision, as in a run.
    return seconds(lambda: settled_by_betting(*so_far, rule, **options), 1) / len(votes[1])  # type: ignore[arg-type]


def report_memory(images: int, draws: int) -> None:
    """Prints the peak megabytes of this process after certifying images of 1 to 12 labels jointly."""
    one = random_ranked(np.random.default_rng(0), labels=80, depth=10, draws=draws, spread=3.0).astype(np.uint8)
    certify(([one] * images, [np.arange(1 + i % 12) for i in range(images)]), "joint")
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    """Prints the table."""
    name, votes = load_votes()
    ranked, labels = votes
    print(f"certify: {name}, {len(labels)} images, c = {NUM_LABELS}, k' = {K_PRIME}, k = {K}, n = {len(ranked[0])}")
    slow = literal_seconds(votes)
    few: Votes = ranked[::10], labels[::10]
    for method in ("paper", "joint"):
        taken = seconds(lambda m=method: certify(votes, m))
        print(
            f"  {method:12}{1000 * taken / len(labels):7.2f} ms per image; literal / {method}: {slow / taken:8,.0f} x"
        )
    sets: Votes = [hits_from_ranked(each, k_prime=K_PRIME, num_labels=NUM_LABELS) for each in few[0]], few[1]
    for method, rule, some in (
        ("coupled", TOP_K, few),
        ("betting", TOP_K, few),
        ("joint", Threshold(0.3), sets),
        ("coupled", Threshold(0.3), sets),
        ("joint", Threshold(0.3, K_PRIME), few),
        ("coupled", Threshold(0.3, K_PRIME), few),
    ):
        taken = seconds(lambda m=method, rule=rule, some=some: certify(some, m, rule))
        print(f"  {method:12}{1000 * taken / len(some[1]):7.2f} ms per image, {rule}")
    for drawn in (50, 100, 200, 500, 1000):
        print(f"  a decision of adaptive draws at {drawn} draws: {1000 * decision_seconds(few, drawn):.2f} ms")
    start = time.perf_counter()
    certified_radii_batch([*ranked, *ranked], labels + labels, TOP_K, num_labels=NUM_LABELS, sigma=SIGMA, alpha=ALPHA)
    print(f"  the default method, {2 * len(labels)} images, all CPUs: {time.perf_counter() - start:.1f} s")
    for images, drawn in ((500, 1000), (40, 100_000)):
        code = f"from benchmarks.certify import report_memory; report_memory({images}, {drawn})"
        peak = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        print(f"  peak memory, joint, {images} images of 1 to 12 labels, n = {drawn:,}: {float(peak):,.0f} MB")
    near = limit_fractions(5, labels=8, k_prime=2, k=3, true=3)
    for method in ("joint", "paper"):
        ratio = float(np.mean([each[method] for each in near]))
        print(f"  {method:6} with exact probabilities reaches {ratio:.1%} of the exact limit (small cases)")


if __name__ == "__main__":
    main()
