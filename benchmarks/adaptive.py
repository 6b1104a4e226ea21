"""Certified recall against the number of draws, fixed and adaptive: `python -m benchmarks.adaptive VOTES`.

VOTES is a votes folder, or one or more .npz files with the arrays `votes` and `labels`, the draws of one network on the
same images. The table is CSV.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.results.tradeoff import draw_tradeoff
from multiguard import TopK, certified_radii_batch, certified_size
from multiguard.certify import betting_outlooks
from multiguard.io.rounding import round_down
from multiguard.smooth import AdaptivePlan
from multiguard.votes import read_votes

Images = tuple[list[NDArray[np.integer]], list[NDArray[np.int64]]]
COLUMNS = ["draws", "forecast_margin", "max_draws", "images", "average_draws", "certified_recall"]


def load(paths: Sequence[Path], k_prime: int) -> tuple[Images, int, float]:
    """The images that have labels, the number of labels there are, and sigma."""
    if paths[0].suffix == ".npz":
        stored = [np.load(path) for path in paths]
        votes, truth = np.concatenate([each["votes"] for each in stored], axis=1), stored[0]["labels"]
        kept = np.flatnonzero(truth.any(axis=1))
        images = [votes[i, :, :k_prime] for i in kept], [np.flatnonzero(truth[i]) for i in kept]
        return images, truth.shape[1], 0.5
    found = read_votes(paths[0])
    kept = [i for i, true in enumerate(found.labels) if len(true)]
    images = [found.ranked(i)[:, :k_prime] for i in kept], [np.asarray(found.labels[i]) for i in kept]
    return images, len(found.provenance.label_names), found.provenance.noise.sigma


def draw_until_settled(images: Images, plan: AdaptivePlan, options: dict[str, Any]) -> list[NDArray[np.integer]]:
    """The votes of each image up to where it stops."""
    votes, labels = images
    taken = [plan.stops[0]] * len(votes)
    for now, following in zip(plan.stops, plan.stops[1:], strict=False):
        live = [i for i, draws in enumerate(taken) if draws == now]
        so_far = [votes[i][:now] for i in live], [labels[i] for i in live]
        for i, outlook in zip(live, betting_outlooks(*so_far, plan.rule, radii=plan.radii, **options), strict=True):
            taken[i] = following if outlook.reachable(plan.max_draws, plan.forecast_margin).any() else now
    return [drawn[:draws] for drawn, draws in zip(votes, taken, strict=True)]


def rows(images: Images, num_labels: int, sigma: float, args: argparse.Namespace) -> Iterator[list[object]]:
    """Every row of the table, fixed numbers of draws first."""
    votes, labels = images
    count = np.array([len(true) for true in labels])
    rule = TopK(k=args.k, k_prime=args.k_prime)
    options = {"num_labels": num_labels, "sigma": sigma, "alpha": args.alpha}
    most = [n for n in args.draws if n <= len(votes[0])]

    def summary(drawn: list[NDArray[np.integer]], method: str) -> list[object]:
        radii = certified_radii_batch(drawn, labels, rule, method=method, **options)
        recall = np.array([certified_size(each.true, args.radius) for each in radii]) / count
        used = float(np.mean([len(votes) for votes in drawn]))
        return ["all", round(used, 1), float(round_down(100 * float(recall.mean()), 2))]

    for method in args.methods:
        for n in most:
            yield [f"fixed, {method}", "", n, *summary([ranked[:n] for ranked in votes], method)]
    for forecast_margin in args.forecast_margin:
        for n in most:
            plan = AdaptivePlan(rule, (args.radius,), n, args.alpha, forecast_margin)
            drawn = draw_until_settled(images, plan, options)
            yield ["adaptive", forecast_margin, n, *summary(drawn, "betting")]


def main() -> None:
    """Print the table, and draw it with --figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("votes", type=Path, nargs="+")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--k-prime", type=int, default=3)
    parser.add_argument("--alpha", type=float, default=0.001)
    parser.add_argument("--radius", type=float, default=0.5)
    parser.add_argument("--draws", type=int, nargs="+", default=[100, 200, 500, 1000, 2000, 5000, 7000, 10000])
    parser.add_argument("--forecast-margin", type=float, nargs="+", default=[1.0])
    parser.add_argument("--methods", nargs="*", default=["joint", "betting"], help="of the fixed numbers of draws")
    parser.add_argument("--figure", type=Path, metavar="FOLDER", help="draw it there as PNG, SVG and PDF")
    args = parser.parse_args()
    table = csv.writer(sys.stdout)
    table.writerow(COLUMNS)
    printed = []
    for row in rows(*load(args.votes, args.k_prime), args):
        table.writerow(row)
        sys.stdout.flush()
        printed.append(dict(zip(COLUMNS, row, strict=True)))
    if args.figure is not None:
        words = f"k′ = {args.k_prime}, k = {args.k}, α = {args.alpha}, R = {args.radius}"
        draw_tradeoff(printed, args.figure, subtitle=words)


if __name__ == "__main__":
    main()
