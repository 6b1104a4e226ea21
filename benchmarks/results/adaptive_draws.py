"""Certified recall against the number of draws, fixed and adaptive, from votes that hold more draws than needed."""

import argparse
from pathlib import Path

import numpy as np

from benchmarks import adaptive
from benchmarks.results.drawing import IMAGES, tradeoff_figure
from benchmarks.results.markdown_tables import markdown
from benchmarks.results.sources import ALPHA, MAIN, Source, kept_rows
from multiguard.certify.arrays import Floats
from multiguard.io.rounding import plain, round_down

_RADIUS, _MOST_IMAGES = 0.5, 100  # each decision of an adaptive run takes a processor tens of milliseconds
_FIXED = ("joint", "coupled")
_DRAWS, _ONE_PLAN = (100, 200, 500, 1000, 2000, 5000), 1000
_HEADS = ["draws", "at most", "on average", "certified recall, %"]


def tradeoff_block(source: Source, docs: Path) -> dict[str, str]:
    """The table and the figure; an adaptive run has the first draws of a fixed one, so these show where it stops."""
    draws = [*(n for n in _DRAWS if n < source.draws), source.draws]
    most = [n for n in draws if n in (_ONE_PLAN, source.draws)]
    plans = [*((f"fixed, {method}", n) for method in _FIXED for n in draws), *(("adaptive, betting", n) for n in most)]
    values, _ = kept_rows(source.path("draws", repr(MAIN), str(draws)), lambda: _measure(source, draws, most))
    found = [
        {
            "draws": words,
            "forecast_margin": "",
            "images": str(min(len(source), _MOST_IMAGES)),
            "max_draws": n,
            "average_draws": row[0],
            "certified_recall": row[1],
        }
        for (words, n), row in zip(plans, values, strict=True)
    ]
    words = f"k′ = {MAIN.k_prime}, k = {MAIN.k}, α = {plain(ALPHA)}, σ = {plain(source.sigma)}, R = {plain(_RADIUS)}"
    path = tradeoff_figure(found, docs / IMAGES, words)
    rows = [
        [words, f"{n:,}", f"{row[0]:,.0f}", round_down(float(row[1]), 1)]
        for (words, n), row in zip(plans, values, strict=True)
    ]
    image = f"![Certified recall against the number of draws]({IMAGES}/{path.name})"
    which = f"The first {min(len(source), _MOST_IMAGES)} images of {source.words()}:"
    return {"tradeoff": f"{which}\n\n{image}\n\n{markdown(_HEADS, rows)}"}


def _measure(source: Source, draws: list[int], most: list[int]) -> list[Floats]:
    """For each plan the mean number of draws and the certified recall in percent."""
    votes, labels = source.votes[:_MOST_IMAGES], source.labels[:_MOST_IMAGES]
    images = [each[:, : MAIN.k_prime] for each in votes], [np.array(true) for true in labels]
    config = {"k": MAIN.k, "k_prime": MAIN.k_prime, "alpha": ALPHA, "radius": _RADIUS}
    fixed = argparse.Namespace(**config, draws=draws, forecast_margin=[], methods=list(_FIXED))
    plans = argparse.Namespace(**config, draws=most, forecast_margin=[1.0], methods=[])
    rows = [row for each in (fixed, plans) for row in adaptive.rows(images, source.num_labels, source.sigma, each)]
    return [np.array([float(row[4]), float(row[5])]) for row in rows]  # type: ignore[arg-type]
