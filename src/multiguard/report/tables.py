"""The study's numbers as tables: every family of curves at round radii, and the labels."""

from pathlib import Path

from multiguard.evaluate import Averaging
from multiguard.files import require_folder, write_atomically
from multiguard.report.families import AVERAGINGS, Family, Line, families
from multiguard.report.labels import main_grid, round_radii, study_labels
from multiguard.report.rounding import plain
from multiguard.report.study import Study
from multiguard.report.table import Cell, Column, Table

_HALF_SIGMAS = (0, 1, 2, 3, 4, 5, 6)
_SCORES = (("precision", "precision"), ("recall", "recall"), ("f1", "F1"))
_AVERAGED = {"mean": "mean per picture", "pooled": "pooled"}


def write_tables(study: Study, folder: Path) -> list[Path]:
    """Every table as CSV (fractions, without loss), Markdown and LaTeX (percent, rounded down).

    Args:
        study: What to tabulate.
        folder: Where to write; made if it is not there.

    Returns:
        The files, table by table.
    """
    require_folder(folder)
    return [path for table in study_tables(study) for path in _write(table, folder)]


def study_tables(study: Study) -> list[Table]:
    """A table for each family of curves and one of the labels."""
    tables = [_family_table(study, family) for family in families(study)]
    return [*tables, _label_table(study)]


def _write(table: Table, folder: Path) -> list[Path]:
    texts = {"csv": table.to_csv(), "md": table.to_markdown(), "tex": table.to_latex()}
    paths = []
    for kind, text in texts.items():
        path = folder / f"{table.name}.{kind}"
        _write_text(path, text)
        paths.append(path)
    return paths


def _write_text(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))


def _family_table(study: Study, family: Family) -> Table:
    grid = family.lines[0].curves["mean"].scores.radius
    radii = round_radii(grid, study.main.certificates.sigma, _HALF_SIGMAS)
    own = [Column("averaging", "average"), Column(family.key, family.symbol), Column("score", "score")]
    rows = [
        [_AVERAGED[averaging], line.value, word, *_at(line, averaging, score, radii)]
        for averaging in AVERAGINGS
        for line in family.lines
        for score, word in _SCORES
    ]
    caption = f"{family.title}: certified precision, recall and F1 in % at R. {_setting_words(study)}"
    return Table(family.key, caption, [_pictures(family), family.note], [*own, *_radius_columns(radii)], rows)


def _at(line: Line, averaging: Averaging, score: str, radii: list[tuple[int, float]]) -> list[Cell]:
    values = getattr(line.curves[averaging].scores, score)
    return [float(values[place]) for place, _ in radii]


def _label_table(study: Study) -> Table:
    radii = round_radii(main_grid(study), study.main.certificates.sigma, _HALF_SIGMAS)
    columns = [Column("label", "label"), Column("images", "pictures"), *_radius_columns(radii)]
    ordered = sorted(study_labels(study), key=lambda label: (-label.images, label.label))
    rows: list[list[Cell]] = [
        [label.label, label.images, *(float(label.certified[place]) for place, _ in radii)] for label in ordered
    ]
    caption = f"How often each label is certified at R, in % of the pictures that have it. {_setting_words(study)}"
    return Table("labels", caption, ["Each label's claim is made alone."], columns, rows)


def _radius_columns(radii: list[tuple[int, float]]) -> list[Column]:
    return [Column(f"R={plain(radius)}", f"R = {plain(radius)}") for _, radius in radii]


def _setting_words(study: Study) -> str:
    setting, sigma = study.setting, study.main.certificates.sigma
    return (
        f"k′ = {setting.k_prime}, k = {setting.k}, n = {setting.draws}, α = {plain(setting.alpha)}, "
        f"σ = {plain(sigma)} unless said otherwise; method {study.method} unless named."
    )


def _pictures(family: Family) -> str:
    scores = family.lines[0].curves["mean"].scores
    left_out = scores.without_labels
    return f"Over {scores.images} pictures" + (f"; {left_out} without labels are left out." if left_out else ".")
