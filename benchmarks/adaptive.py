"""Certified recall against the number of draws, fixed and adaptive: `python -m benchmarks.adaptive VOTES`.

VOTES is a votes folder, or an .npz file with the arrays `votes` and `labels`. The table is CSV. `chosen` is a seeded
half of the images, `held out` the other: of 500 COCO images with 10,000 draws, the looks and fractions of the
default plan were chosen on the first; the second had no part in it.
"""

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.results.tradeoff import draw_tradeoff
from multiguard import Looks, TopK, certified_radii_batch, certified_size, look_plan
from multiguard.certify import StoppingRule
from multiguard.io.rounding import round_down
from multiguard.votes import read_votes

Images = tuple[list[NDArray[np.integer]], list[NDArray[np.int64]]]
COLUMNS = ["draws", "forecast_margin", "looks", "max_draws", "images", "average_draws", "certified_recall"]


def load(path: Path, k_prime: int) -> tuple[Images, int, float]:
    """The images that have labels, the number of labels there are, and sigma."""
    if path.suffix == ".npz":
        with np.load(path) as stored:
            votes, truth = stored["votes"], stored["labels"]
        kept = np.flatnonzero(truth.any(axis=1))
        images = [votes[i, :, :k_prime] for i in kept], [np.flatnonzero(truth[i]) for i in kept]
        return images, truth.shape[1], 0.5
    found = read_votes(path)
    kept = [i for i, true in enumerate(found.labels) if len(true)]
    images = [found.ranked(i)[:, :k_prime] for i in kept], [np.asarray(found.labels[i]) for i in kept]
    return images, len(found.provenance.label_names), found.provenance.sigma


def draw_until_decided(images: Images, looks: Looks, stopping: StoppingRule) -> list[NDArray[np.integer]]:
    """The votes of each image up to the look at which it stops."""
    votes, labels = images
    taken = [looks.draws[0]] * len(votes)
    for now, following in zip(looks.draws, looks.draws[1:], strict=False):
        live = [i for i, draws in enumerate(taken) if draws == now]
        stops = stopping.decided([votes[i][:now] for i in live], [labels[i] for i in live])
        for i, stop in zip(live, stops, strict=True):
            taken[i] = now if stop else following
    return [drawn[:draws] for drawn, draws in zip(votes, taken, strict=True)]


def rows(images: Images, num_labels: int, sigma: float, args: argparse.Namespace) -> Iterator[list[object]]:
    """Every row of the table, fixed numbers of draws first."""
    votes, labels = images
    count = np.array([len(true) for true in labels])
    mixed = np.random.default_rng(0).permutation(len(votes))
    parts = {"all": mixed, "chosen": mixed[: len(mixed) // 2], "held out": mixed[len(mixed) // 2 :]}
    rule = TopK(k=args.k, k_prime=args.k_prime)
    options = {"num_labels": num_labels, "sigma": sigma, "alpha": args.alpha}
    most = [n for n in args.draws if n <= len(votes[0])]

    def summary(radii, drawn) -> Iterator[list[object]]:
        recall = np.array([certified_size(each.true, args.radius) for each in radii]) / count
        used = np.array([len(votes) for votes in drawn])
        for name, part in parts.items():
            yield [name, round(float(used[part].mean()), 1), float(round_down(100 * float(recall[part].mean()), 2))]

    for n in most:
        drawn = [ranked[:n] for ranked in votes]
        for row in summary(certified_radii_batch(drawn, labels, rule, **options), drawn):
            yield ["fixed", "", 1, n, *row]
    for forecast_margin in args.forecast_margin:
        for n in most:
            looks = look_plan(n)
            stopping = StoppingRule(rule, looks, radii=[args.radius], forecast_margin=forecast_margin, **options)
            drawn = draw_until_decided(images, looks, stopping)
            for row in summary(certified_radii_batch(drawn, labels, rule, looks=looks, **options), drawn):
                yield ["adaptive", forecast_margin, len(looks.draws), n, *row]


def main() -> None:
    """Print the table, and draw it with --figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("votes", type=Path)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--k-prime", type=int, default=3)
    parser.add_argument("--alpha", type=float, default=0.001)
    parser.add_argument("--radius", type=float, default=0.5)
    parser.add_argument("--draws", type=int, nargs="+", default=[100, 200, 500, 1000, 2000, 5000, 7000, 10000])
    parser.add_argument("--forecast-margin", type=float, nargs="+", default=[2.0, 1.0])
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
        words = f"k′ = {args.k_prime}, k = {args.k}, α = {args.alpha}, R = {args.radius}, method joint"
        draw_tradeoff(printed, args.figure, subtitle=words)


if __name__ == "__main__":
    main()
