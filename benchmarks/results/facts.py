"""The facts of a run and its cost, for the page."""

import math
from collections.abc import Mapping
from typing import Any

from benchmarks.results.markdown_tables import markdown
from benchmarks.results.runs import Run
from multiguard.io.rounding import plain
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
        ["noise", f"{provenance['noise']}, seed {provenance['seed']}, before normalisation"],
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
