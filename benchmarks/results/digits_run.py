"""The part of the page about the embedded digits, from the run folder of `multiguard run digits-figures`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results.drawing import IMAGES, study_figures
from benchmarks.results.markdown_tables import family_table, markdown
from multiguard.io.rounding import plain
from multiguard.models.card import ModelCard, read_card
from multiguard.models.spec import CARD_FILE
from multiguard.report import Study
from multiguard.report.words import curve_left_out
from multiguard.run.arms import read_arms
from multiguard.train.loop import kept_epoch

_ALL_SCORES = ("precision", "recall", "f1")
# The rows of the paper's figures, and the scores that its findings are about.
_ROWS: dict[str, Sequence[str]] = {
    "k_prime": ("recall",),
    "k": _ALL_SCORES,
    "noise": ("recall",),
    "n": ("recall",),
    "alpha": ("recall",),
    "training": ("recall",),
}
_WORDS = {
    "methods": "Certified precision, recall and F1 of each method against the radius",
    "k_prime": "The same for several k'",
    "k": "The same for several k",
    "noise": "The same for several sigma",
    "n": "The same for several numbers of draws",
    "alpha": "The same for several alpha",
    "training": "The same with and without noise in training",
}


def digits_blocks(folder: Path, docs: Path, commit: str | None) -> dict[str, str]:
    """The facts of a run, its methods, and every row of the paper's figures that it has."""
    found = read_arms(folder)
    study = Study(found.pop(""), found)
    home = folder / "model"
    card = read_card(home) if (home / CARD_FILE).is_file() else None
    made = {"facts": _facts(study, card, commit), **_study(study, docs)}
    return {f"digits-{name}": text for name, text in made.items()}


def _study(study: Study, docs: Path) -> dict[str, str]:
    """The methods and every row whose data is there: a figure and a table each."""
    drawn = study_figures(study, docs / IMAGES, "digits", ["methods", *_ROWS])
    tables = {family.key: family_table(family, _ROWS.get(family.key, _ALL_SCORES)) for family in study.families}
    images = {key: f"![{_WORDS[key]}]({IMAGES}/{path.name})" for key, path in drawn.items()}
    return {key: f"{image}\n\n{tables[key]}" for key, image in images.items()}


def _facts(study: Study, card: ModelCard | None, commit: str | None) -> str:
    """Images, seeds, network, device and versions, from the votes."""
    provenance = study.main.provenance
    curve = study.main_curve(study.method, "mean")
    left_out = curve_left_out(study.main, curve)
    versions = ", ".join(f"{name} {version}" for name, version in provenance["versions"].items())
    rows = [
        [
            "images voted on",
            f"{curve.scores.images} of `{provenance['dataset']}`; left out: {left_out or 'none'}",
        ],
        ["labels", str(len(provenance["label_names"]))],
        ["network", f"{provenance['model']}, weights {str(provenance['weights_hash'])[:12]}"],
        ["noise", f"{provenance['noise']}, seed {provenance['noise_seed']}, before normalisation"],
        [
            "draws per image",
            f"{provenance['draws']:,}, of which the first {study.config.draws:,} certify unless n is varied",
        ],
        ["drawn on", f"{provenance['device']}, {provenance['precision']}"],
        ["versions", versions],
        *([["commit", commit]] if commit else []),
        *_training(card),
    ]
    return markdown(["", "value"], rows, words=2)


def _training(card: ModelCard | None) -> list[list[str]]:
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
