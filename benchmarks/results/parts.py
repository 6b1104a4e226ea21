"""The blocks of a run folder: the methods and every row of the paper's figures that it has."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.results.drawing import IMAGES, study_figures
from benchmarks.results.markdown_tables import family_table
from multiguard.report import Study

_ALL_SCORES = ("precision", "recall", "f1")
# The rows of the paper's figures, and the scores that its findings are about.
_ROWS: dict[str, Sequence[str]] = {
    "k_prime": ("recall",),
    "k": _ALL_SCORES,
    "sigma": ("recall",),
    "n": ("recall",),
    "alpha": ("recall",),
    "training": ("recall",),
}
_WORDS = {
    "methods": "Certified precision, recall and F1 of each method against the radius",
    "k_prime": "The same for several k'",
    "k": "The same for several k",
    "sigma": "The same for several sigma",
    "n": "The same for several numbers of draws",
    "alpha": "The same for several alpha",
    "training": "The same with and without noise in training",
}


def study_blocks(study: Study, prefix: str, docs: Path) -> dict[str, str]:
    """The methods and every row of the paper's figures whose data is there: a figure and a table each."""
    drawn = study_figures(study, docs / IMAGES, prefix, ["methods", *_ROWS])
    tables = {family.key: family_table(family, _ROWS.get(family.key, _ALL_SCORES)) for family in study.families}
    images = {key: f"![{_WORDS[key]}]({IMAGES}/{path.name})" for key, path in drawn.items()}
    return {f"{prefix}-{key}": f"{image}\n\n{tables[key]}" for key, image in images.items()}
