"""The study's numbers as tables: every family of curves at round radii, and the labels."""

from pathlib import Path

from multiguard.evaluate import Averaging
from multiguard.io.files import require_folder, write_atomically
from multiguard.report.draws import Stop, stops
from multiguard.report.families import families
from multiguard.report.family import AVERAGINGS, Family, Line
from multiguard.report.labels import main_grid, round_radii, study_labels
from multiguard.report.measure import Measure
from multiguard.report.rounding import plain
from multiguard.report.study import Study
from multiguard.report.table import AtMost, Cell, Column, Table
from multiguard.report.words import failed_words, left_out, mean_draws, setting_words

_HALF_SIGMAS = (0, 1, 2, 3, 4, 5, 6)
FORMATS = ("csv", "md", "tex")
_AVERAGED = {"mean": "mean per image", "pooled": "pooled"}
_FAILED = Column("failed", "could not be voted on", printed=False)  # people read it in a note, where there are any


def write_tables(study: Study, folder: Path) -> list[Path]:
    """Every table as CSV (fractions, without loss), Markdown and LaTeX (percent, rounded down).

    Args:
        study: What to tabulate.
        folder: Where to write; made if it is not there.

    Returns:
        The files, table by table.
    """
    require_folder(folder)
    return [path for table in study_tables(study) for path in write_table(table, folder)]


def study_tables(study: Study) -> list[Table]:
    """A table for each family of curves, one of the labels, and of an adaptive run one of the draws."""
    tables = [*(_family_table(study, family) for family in families(study)), _label_table(study)]
    stopped = stops(study.main)
    return [*tables, _draws_table(study, stopped)] if stopped else tables


def write_table(table: Table, folder: Path) -> list[Path]:
    """The table in every format."""
    texts = (table.to_csv(), table.to_markdown(), table.to_latex())
    paths = []
    for kind, text in zip(FORMATS, texts, strict=True):
        path = folder / f"{table.name}.{kind}"
        _write_text(path, text)
        paths.append(path)
    return paths


def _write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))


def _family_table(study: Study, family: Family) -> Table:
    radii = round_radii(family.radius, study.main.certificates.sigma, _HALF_SIGMAS)
    own = [Column("averaging", "average"), Column(family.key, family.symbol), Column("score", "score")]
    rows: list[list[Cell]] = [
        [_AVERAGED[averaging], line.value, measure.word, *_at(line, averaging, measure, radii), line.failed]
        for averaging in AVERAGINGS
        for line in family.lines
        for measure in family.measures
    ]
    caption = f"{family.title}: {_shown(study)} in % at R. {_setting(study)}"
    notes = [_ceiling(study, family), _images(study, family), family.note]
    return Table(family.key, caption, notes, [*own, *_radius_columns(radii), _FAILED], rows)


def _shown(study: Study) -> str:
    return "certified precision, recall and F1" if study.labelled else "predicted labels that provably stay"


def _ceiling(study: Study, family: Family) -> str:
    """What the rows of ceilings count."""
    if all(measure.is_share for measure in family.measures):
        return ""
    kind = "wrong" if study.labelled else "other"
    return f"The rows of {kind} labels count how many an image is given at most, on average."


def _at(line: Line, averaging: Averaging, measure: Measure, radii: list[tuple[int, float]]) -> list[Cell]:
    values = measure.values(line.curves[averaging])
    found = [float(values[place]) for place, _ in radii]
    return [*found] if measure.is_share else [AtMost(value) for value in found]


def _label_table(study: Study) -> Table:
    radii = round_radii(main_grid(study), study.main.certificates.sigma, _HALF_SIGMAS)
    columns = [Column("label", "label"), Column("images", "images"), *_radius_columns(radii), _FAILED]
    ordered = sorted(study_labels(study), key=lambda label: (-label.images, label.label))
    rows: list[list[Cell]] = [
        [label.label, label.images, *(float(label.certified[place]) for place, _ in radii), label.failed]
        for label in ordered
    ]
    having = "that have it" if study.labelled else "for which pilot draws chose it"
    setting = _setting(study, _label_method(study))
    caption = f"How often each label is certified at R, in % of the images {having}. {setting}"
    note = "Each label's claim is made alone." if study.labelled else "All claims about an image's labels hold at once."
    return Table("labels", caption, [note, failed_words(study.main)], columns, rows)


def _draws_table(study: Study, stopped: list[Stop]) -> Table:
    columns = [Column("draws", "draws"), Column("images", "images"), Column("share", "% of the images"), _FAILED]
    total, failed = len(study.main.certificates.ids), len(study.main.certificates.failures)
    rows: list[list[Cell]] = [[stop.draws, stop.images, stop.images / total, failed] for stop in stopped]
    caption = f"Images that stopped at each look. {_setting(study)}"
    notes = [f"On average {mean_draws(study.main)} draws an image.", failed_words(study.main)]
    return Table("draws", caption, notes, columns, rows)


def _radius_columns(radii: list[tuple[int, float]]) -> list[Column]:
    return [Column(f"R={plain(radius)}", f"R = {plain(radius)}") for _, radius in radii]


def _label_method(study: Study) -> str:
    """What proves a label's own radius: the same whatever proves the set."""
    return "method joint" if study.rule == "top-k" else "by the label's own bound"


def _setting(study: Study, proved: str | None = None) -> str:
    asked = ", ".join(setting_words(study.main).values())
    return f"{asked} unless said otherwise; {proved or f'method {study.method} unless named'}."


def _images(study: Study, family: Family) -> str:
    curve = family.base.curves["mean"]
    without = left_out(study, curve)
    return f"Over {curve.scores.images} images" + (f"; {without} are left out." if without else ".")
