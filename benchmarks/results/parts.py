"""The blocks of the page, each from the run it is about."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import adaptive
from benchmarks.results.drawing import Panel, curves_figure, study_figures, tradeoff_figure
from benchmarks.results.markdown_tables import RADII, RADIUS_HEADS, family_table, markdown, radius_index, scores_table
from benchmarks.results.runs import Run
from multiguard.evaluate import typical_radius
from multiguard.io.rounding import percent_value, plain, round_down
from multiguard.report import Study
from multiguard.report.families import METHOD_NAMES, methods_family
from multiguard.report.words import config_words

IMAGES = "images/results"
ALL_SCORES = ("precision", "recall", "f1")
# The rows of the paper's figures, and the scores that its findings are about.
ROWS: dict[str, Sequence[str]] = {
    "k_prime": ("recall",),
    "k": ALL_SCORES,
    "noise": ("recall",),
    "n": ("recall",),
    "alpha": ("recall",),
    "training": ("recall",),
}
_WORDS = {
    "methods": "Certified precision, recall and F1 of four methods against the radius",
    "k_prime": "The same for several k'",
    "k": "The same for several k",
    "noise": "The same for several noise levels",
    "n": "The same for several numbers of draws",
    "alpha": "The same for several alpha",
    "training": "The same with and without noise in training",
}


def study_blocks(study: Study, prefix: str, docs: Path) -> dict[str, str]:
    """The methods and every row of the paper's figures whose data is there: a figure and a table each."""
    drawn = study_figures(study, docs / IMAGES, prefix, ["methods", *ROWS])
    tables = {family.key: family_table(family, ROWS.get(family.key, ALL_SCORES)) for family in study.families}
    return {f"{prefix}-{key}": f"{_image(path, _WORDS[key])}\n\n{tables[key]}" for key, path in drawn.items()}


def _image(path: Path, words: str) -> str:
    return f"![{words}]({IMAGES}/{path.name})"


def second_terms(study: Study, prefix: str) -> dict[str, str]:
    """Theorem 1 with and without its second terms, at half, one and two sigma."""
    lines = {name: study.main_curve(name, "mean").scores for name in ("paper", "independent")}
    rows = []
    for half in (1, 2, 3, 4):
        radius = half * typical_radius(study.main.certificates.noise) / 2
        index = radius_index(lines["paper"].radius, radius)
        for name, word in (("paper", "with"), ("independent", "without")):
            values = [percent_value(float(getattr(lines[name], score)[index])) for score in ALL_SCORES]
            rows.append([f"{plain(radius)}", word, *values])
    return {f"{prefix}-second-terms": markdown(["R", "second terms", "precision", "recall", "F1"], rows, words=2)}


def difference(studies: Sequence[Study], docs: Path) -> dict[str, str]:
    """The recall that `joint` certifies beyond the others at every radius of the grid, in points."""
    others = [name for name in studies[0].main.certificates.methods if name not in ("joint", "independent")]
    panels, rows = [], []
    for study in studies:
        joint = study.main_curve("joint", "mean").scores
        gains = {name: 100 * (joint.recall - study.main_curve(name, "mean").scores.recall) for name in others}
        lines = [(f"joint − {METHOD_NAMES[name]}", gain) for name, gain in gains.items()]
        title = ", ".join(list(config_words(study.main).values())[:2])
        panels.append(Panel(title, "points of certified recall", joint.radius, lines))
        rows += [[title, METHOD_NAMES[name], *_gain(joint.radius, gain)] for name, gain in gains.items()]
    words = ", ".join(list(config_words(studies[0].main).values())[2:])
    path = curves_figure(docs / IMAGES, "difference", "Gain of the joint certificate", f"{words}.", panels)
    heads = ["config", "joint minus", *RADIUS_HEADS, "least", "most", "radii below 0"]
    table = markdown(heads, rows, words=2)
    return {"difference": f"{_image(path, 'Certified recall of joint minus that of the others')}\n\n{table}"}


def _gain(radius: np.ndarray, gain: np.ndarray) -> list[str]:
    """In points, rounded to two decimals: a difference of certified numbers, itself not certified."""
    at = [f"{gain[radius_index(radius, one)]:+.2f}" for one in RADII]
    most = int(np.argmax(gain))
    below = int(np.sum(gain < -1e-9))
    return [*at, f"{gain.min():+.2f}", f"{gain[most]:+.2f} at R = {plain(radius[most])}", f"{below} of {len(radius)}"]


def adaptive_block(run: Run, docs: Path) -> dict[str, str]:
    """Certified recall against the number of draws, fixed and adaptive, with a figure."""
    rule, alpha = run.rule, run.study.config.alpha
    draws = [n for n in (100, 200, 500, 1000, 2000, 5000, 7000, 10000) if n <= run.votes.provenance.draws]
    options = argparse.Namespace(
        k=rule.k,
        k_prime=rule.k_prime,
        alpha=alpha,
        radius=0.5,
        draws=draws,
        forecast_margin=[1.0],
        methods=["joint", "betting"],
    )
    loaded = adaptive.load([run.folder / "votes"], rule.k_prime)
    found = [dict(zip(adaptive.COLUMNS, row, strict=True)) for row in adaptive.rows(*loaded, options)]
    words = f"k′ = {rule.k_prime}, k = {rule.k}, α = {plain(alpha)}, R = 0.5"
    tradeoff_figure(found, docs / IMAGES, words)
    table = markdown(["draws", "at most", "on average", "certified recall, %"], _adaptive_rows(found))
    return {"adaptive": f"{_image(Path('tradeoff.svg'), 'Certified recall against the number of draws')}\n\n{table}"}


def _adaptive_rows(found: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [
        [
            str(row["draws"]),
            f"{row['max_draws']:,}",
            f"{row['average_draws']:,.0f}",
            round_down(float(row["certified_recall"]), 1),
        ]
        for row in found
    ]


def headline(study: Study) -> dict[str, str]:
    """The table of README: certified recall of every method on the same votes."""
    names = {"joint": "**joint** (ours, the default)", "paper": "paper (MultiGuard's Theorem 1, corrected)"}
    names |= {"independent": "independent (without its joint terms)", "jia": "jia (each label on its own)"}
    lines = [(names[line.value], line.curves["mean"].scores) for line in methods_family(study).lines]
    return {"headline": scores_table("method", lines)}
