"""The numbers of a study as tables: every family of curves at round radii, the labels, and adaptive draws."""

from pathlib import Path

from multiguard.evaluate.curves import AVERAGINGS
from multiguard.io.files import require_folder
from multiguard.report.attackers import unit_words
from multiguard.report.families import Family
from multiguard.report.study import Study, round_radii
from multiguard.report.table_formats import AtMost, Cell, Column, Table, radius_columns
from multiguard.report.words import config_words, curve_left_out, failure_words, label_method, mean_draws

_HALVES = range(7)
_AVERAGING_NAMES = {"mean": "mean per image", "pooled": "pooled"}
_FAILED = Column("failed", "could not be voted on", printed=False)  # people read it in a note, if there are any


def write_tables(study: Study, folder: Path) -> list[Path]:
    """Every table as CSV (fractions, without loss), Markdown and LaTeX (percent, rounded down).

    Args:
        study: What to tabulate.
        folder: Where to write; created if missing.

    Returns:
        The files, table by table.

    Example:
        >>> study = Study(read_certificates(certificates))  # a folder written by `multiguard certify`
        >>> [path.name for path in write_tables(study, out)][:3]
        ['methods.csv', 'methods.md', 'methods.tex']
    """
    require_folder(folder)
    tables = [*(_family_table(study, family) for family in study.families), _label_table(study)]
    if study.stops:
        tables.append(_draws_table(study))
    return [path for table in tables for path in table.write(folder)]


def _family_table(study: Study, family: Family) -> Table:
    radii = dict(round_radii(family.radius, study.main.certificates.noise, _HALVES))
    rows: list[list[Cell]] = []
    for averaging in AVERAGINGS:
        for line in family.lines:
            curve = line.curves[averaging]
            for measure in family.measures:
                values = [float(measure.values(curve)[index]) for index in radii]
                cells: list[Cell] = [*values] if measure.is_fraction else [AtMost(value) for value in values]
                rows.append([_AVERAGING_NAMES[averaging], line.value, measure.word, *cells, curve.failed])
    scores = "certified precision, recall and F1" if study.labelled else "predicted labels certified to stay"
    caption = f"{family.title}: {scores} at R, in %. {_config_note(study, f'method {study.method} unless named')}"
    columns = [Column("averaging", "average"), Column(family.key, family.symbol), Column("score", "score")]
    columns += [*radius_columns([*radii.values()]), _FAILED]
    return Table(family.key, caption, _notes(study, family), columns, rows)


def _notes(study: Study, family: Family) -> list[str]:
    """What the rows of ceilings mean, the number of images, and the caveats of the family."""
    curve, kind = family.base.curves["mean"], "wrong" if study.labelled else "other"
    ceilings = not all(measure.is_fraction for measure in family.measures)
    left_out = f"; {text} are left out" if (text := curve_left_out(study, curve)) else ""
    meaning = f"The rows of {kind} labels show how many are returned per image at most, on average over all images."
    return [meaning if ceilings else "", f"Over {curve.scores.images} images{left_out}.", family.note]


def _label_table(study: Study) -> Table:
    radii = dict(round_radii(study.grid, study.main.certificates.noise, _HALVES))
    columns = [Column("label", "label"), Column("images", "images"), *radius_columns([*radii.values()]), _FAILED]
    rows: list[list[Cell]] = [
        [label.label, label.images, *(float(label.certified[index]) for index in radii), label.failed]
        for label in study.label_scores
    ]
    images = "that have it" if study.labelled else "for which pilot draws chose it"
    # The radius of a single label is proved in one way, whichever method proves the set.
    named = study.rule == "top-k" or study.exact
    proof = _config_note(study, f"method {label_method(study.main)}" if named else "by the bound of the label itself")
    caption = f"How often each label is certified at R, in % of the images {images}. {proof}"
    alone, together = "The claim about each label holds alone.", "All claims about the labels of an image hold at once."
    joint = study.exact or not study.labelled
    return Table("labels", caption, [together if joint else alone, failure_words(study.main)], columns, rows)


def _draws_table(study: Study) -> Table:
    columns = [Column("draws", "draws"), Column("images", "images"), Column("fraction", "% of the images"), _FAILED]
    total, failed = len(study.main.certificates.ids), len(study.main.certificates.failures)
    rows: list[list[Cell]] = [[draws, images, images / total, failed] for draws, images in study.stops.items()]
    note = _config_note(study, f"method {study.method} unless named")
    caption = f"Images by the number of draws after which they stopped. {note}"
    notes = [f"{mean_draws(study.main)} draws per image on average.", failure_words(study.main)]
    return Table("draws", caption, notes, columns, rows)


def _config_note(study: Study, proof: str) -> str:
    noise = study.main.certificates.noise
    return f"{', '.join(config_words(study.main).values())} unless stated otherwise; {proof}. {unit_words(noise)}."
