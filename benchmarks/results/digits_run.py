"""The part of the page about the embedded digits, from the run folder of `multiguard run digits-figures`."""

from pathlib import Path

from benchmarks.results.markdown_tables import RADIUS_HEADS, WORDS, cells, csv_link, scores_table
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
    table = scores_table("method", [(line.value, line.curves["mean"].scores) for line in methods.lines])
    link = csv_link(docs, "digits", ["row", "value", "score", *RADIUS_HEADS], rows)
    return {"digits": f"{table}\n\n{_facts(study, commit)} Every row of the paper's figures: {link}."}


def _facts(study: Study, commit: str | None) -> str:
    """Images, network, noise and device, from the votes."""
    known = study.main.provenance
    at = f" at commit {commit}" if commit else ""
    return (
        f"{study.main_curve(study.method, 'mean').scores.images} images of `{known['dataset']}`, network "
        f"{known['model']} (weights {str(known['weights_hash'])[:12]}), {known['noise']}, noise seed "
        f"{known['noise_seed']}, {known['draws']:,} draws on {known['device']}{at}."
    )
