"""The part of the page about the embedded digits, from the run folder of `multiguard run digits-figures`."""

from pathlib import Path

from benchmarks.results.markdown_tables import RADII, RADIUS_HEADS, WORDS, cells, csv_link
from multiguard.report import Study
from multiguard.run.arms import read_arms


def digits_blocks(folder: Path, docs: Path, commit: str | None) -> dict[str, str]:
    """The recall of each method, and a file with every row of the paper's figures that the run has."""
    found = read_arms(folder)
    study = Study(found.pop(""), found)
    rows = [
        [family.key, line.value, WORDS[measure], *cells(line.curves["mean"].scores, measure)]
        for family in study.families
        for line in family.lines
        for measure in WORDS
    ]
    (methods,) = (family for family in study.families if family.key == "methods")
    at = [RADII.index(radius) for radius in (0.5, 1.0)]
    recall = [(line.value, cells(line.curves["mean"].scores, "recall")) for line in methods.lines]
    said = "; ".join(f"`{name}` {' and '.join(values[place] for place in at)} %" for name, values in recall)
    link = csv_link(docs, "digits", ["row", "value", "score", *RADIUS_HEADS], rows)
    return {"digits": f"At R = 0.5 and 1: {said}. {_facts(study, commit)} Every row of the paper's figures: {link}."}


def _facts(study: Study, commit: str | None) -> str:
    """Images, network, noise and device, from the votes."""
    known = study.main.provenance
    at = f" at commit {commit}" if commit else ""
    return (
        f"{study.main_curve(study.method, 'mean').scores.images} images of `{known['dataset']}`, network "
        f"{known['model']} (weights {str(known['weights_hash'])[:12]}), {known['noise']}, noise seed "
        f"{known['noise_seed']}, {known['draws']:,} draws on {known['device']}{at}."
    )
