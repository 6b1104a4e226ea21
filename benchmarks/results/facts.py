"""The facts of a run and its cost, for the page."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.results.markdown_tables import RADII, RADIUS_HEADS, markdown, radius_index
from benchmarks.results.runs import Run
from multiguard.io.rounding import percent_value, plain
from multiguard.models.model_folder import ModelCard
from multiguard.report.words import curve_left_out
from multiguard.train.loop import kept_epoch

_GIGABYTE = 2**30


def facts(run: Run, prefix: str, commit: str | None) -> dict[str, str]:
    """Images, seeds, network, device and versions, from the votes."""
    provenance = run.study.main.provenance
    curve = run.study.main_curve(run.study.method, "mean")
    left_out = curve_left_out(run.study, curve)
    versions = ", ".join(f"{name} {version}" for name, version in provenance["versions"].items())
    rows = [
        [
            "images voted on",
            f"{curve.scores.images} of `{provenance['dataset']}`; left out: {left_out or 'none'}",
        ],
        ["labels", str(len(provenance["label_names"]))],
        ["network", f"{provenance['model']}, weights {str(provenance['weights_hash'])[:12]}"],
        ["noise", f"sigma {plain(provenance['sigma'])}, seed {provenance['seed']}, before normalisation"],
        [
            "draws per image",
            f"{provenance['draws']:,}, of which the first {run.study.config.draws:,} certify unless n is varied",
        ],
        ["drawn on", f"{provenance['device']}, {provenance['precision']}"],
        ["versions", versions],
        *([["commit", commit]] if commit else []),
        *_training(run),
    ]
    return {f"{prefix}-facts": markdown(["", "value"], rows, words=2)}


def _training(run: Run) -> list[list[str]]:
    card = run.card
    if card is None:
        return []
    recipe, kept = card.training["recipe"], _kept(card)
    words = (
        f"{recipe['epochs']} epochs, batch {recipe['batch']}, {recipe['loss']}, lr {plain(recipe['lr'])}, "
        f"seed {recipe['seed']}; epoch {kept['epoch']} was kept: mAP {100 * kept['map_noisy']:.1f} on noisy, "
        f"{100 * kept['map_clean']:.1f} on clean images of {card.training['val']['name']}"
    )
    return [["training", words]]


def _kept(card: ModelCard) -> Mapping[str, Any]:
    """The epoch whose weights are in the folder; models from before there was a choice hold the best."""
    return kept_epoch(card.history, card.training["recipe"].get("keep", "best"))


def costs(run: Run, prefix: str) -> dict[str, str]:
    """Each step's device, wall time and peak memory, as the run recorded them; a killed start's time is not known."""
    done = {name: step for name, step in run.record.steps.items() if step.finished and step.seconds is not None}
    if not done:
        return {}
    rows = [
        [
            name,
            step.device or "",
            f"{step.seconds:,.0f}{' and more' * (step.untimed > 0)}",
            _gigabytes(step.memory),
            _gigabytes(step.device_memory),
        ]
        for name, step in done.items()
    ]
    heads = ["step", "device", "seconds", "peak memory, GiB", "peak GPU memory, GiB"]
    return {f"{prefix}-cost": markdown(heads, rows, words=2)}


def _gigabytes(held: int | None) -> str:
    return "" if held is None else f"{math.ceil(100 * held / _GIGABYTE) / 100:.2f}"


def classifiers(runs: Mapping[str, Sequence[Run]]) -> dict[str, str]:
    """Base classifiers by name, each a mean over its runs (seeds); the others are held to the first."""
    measured = {name: np.array([_recalls(run) for run in several]) for name, several in runs.items()}
    base = float(next(iter(measured.values())).mean(axis=0)[RADII.index(0.5)])
    rows = []
    for name, several in runs.items():
        recall, half = measured[name].mean(axis=0), measured[name][:, RADII.index(0.5)]
        seconds = [step.seconds for run in several if (step := run.record.steps.get("train")) and step.seconds]
        rows.append(
            [
                name,
                str(len(several)),
                _mean_map(several),
                *(percent_value(float(value)) for value in recall),
                f"{100 * (float(half.mean()) - base):+.1f}",
                f"{percent_value(float(half.min()))} to {percent_value(float(half.max()))}",
                f"{np.mean(seconds):,.0f}" if seconds else "",
            ]
        )
    heads = ["training", "seeds", "noisy mAP", *RADIUS_HEADS, "points at 0.5", "range at 0.5", "seconds"]
    return {"classifiers": markdown(heads, rows)}


def seed_lines(runs: Mapping[str, Sequence[Run]]) -> str:
    """Base classifiers as further rows of the table of README, each the mean over its runs (seeds)."""
    lines = []
    for name, several in runs.items():
        recall = np.mean([_recalls(run) for run in several], axis=0)
        cells = [f"joint, {name}: mean of {len(several)} seeds", *(percent_value(float(value)) for value in recall)]
        lines.append(f"\n| {' | '.join(cells)} |")
    return "".join(lines)


def _recalls(run: Run) -> list[float]:
    scores = run.study.main_curve("joint", "mean").scores
    return [float(scores.recall[radius_index(scores.radius, radius)]) for radius in RADII]


def _mean_map(runs: Sequence[Run]) -> str:
    cards = [card for run in runs if (card := run.card) is not None]
    found = [_kept(card)["map_noisy"] for card in cards]
    return f"{100 * float(np.mean(found)):.1f}" if found else ""


def named(text: str) -> tuple[str, str]:
    """NAME=FOLDER as its two parts."""
    found = re.fullmatch(r"([^=]+)=(.+)", text)
    if found is None:
        raise ValueError(f"{text}: expected NAME=FOLDER")
    return found[1], found[2]
