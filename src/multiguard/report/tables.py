"""The numbers of a study as tables: every family of curves at round radii, and the labels; and tables of attacks.

Each table is CSV without loss, and LaTeX rounded so that no number claims too much.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING
from itertools import product
from operator import methodcaller
from pathlib import Path

from multiguard.evaluate import AttackCurve, Attacks, attack_curves
from multiguard.evaluate.curves import AVERAGINGS
from multiguard.io.files import require_folder, write_atomically
from multiguard.io.names import as_cell
from multiguard.io.rounding import percent_value, plain, round_up
from multiguard.report.study import Family, Study, round_radii
from multiguard.report.words import (
    ATTACK_NAMES,
    attack_words,
    config_words,
    curve_left_out,
    failure_words,
    label_images,
    label_method,
    sentence,
    verdict,
)

Cell = str | int | float | tuple[float, str]  # a text, a number, a fraction shown in percent, a ceiling and its text
_HALVES = range(7)
_ATTACK_NOTE = (
    "at each radius the best result there and below, rounded up. The true worst case lies between what is certified "
    "and what was reached. Radii of single labels are not attacked."
)
_AVERAGING_NAMES = {"mean": "mean per image", "pooled": "pooled"}
_FAILED = "failed"  # a column of the CSV alone: people read it in a note, if there are any
_ROUNDED_DOWN = "Percentages are rounded down to one decimal, so none claims more than was proved."
_ROUNDED_UP = "Ceilings on the number of labels are rounded up to two decimals, for the same reason."


def write_tables(study: Study, folder: Path) -> list[Path]:
    """Every table as CSV (fractions, without loss) and LaTeX (percent, rounded down); returns the files.

    Example:
        >>> study = Study(read_certificates(certificates))  # a folder written by `multiguard certify`
        >>> [path.name for path in write_tables(study, out)][:3]
        ['methods.csv', 'methods.tex', 'k.csv']
    """
    require_folder(folder)
    paths = [path for family in study.families for path in _write_family(study, family, folder)]
    return paths + _write_labels(study, folder)


def _write_family(study: Study, family: Family, folder: Path) -> list[Path]:
    radii = dict(round_radii(family.radius, study.main.certificates.noise, _HALVES))
    rows: list[list[Cell]] = []
    for averaging, line, measure in product(AVERAGINGS, family.lines, family.measures):
        curve = line.curves[averaging]
        cells = _cells((float(measure.values(curve)[index]) for index in radii), floors=measure.is_fraction)
        rows.append([_AVERAGING_NAMES[averaging], line.value, measure.word, *cells, curve.failed])
    scores = "certified precision, recall and F1" if study.labelled else "predicted labels certified to stay"
    proof = f"method {study.method} unless named"
    caption = f"{family.title}: {scores} at R, in %. {_config_note(study, proof)}"
    columns = {"averaging": "average", family.key: family.symbol, "score": "score"}
    columns |= {**_radius_columns([*radii.values()]), _FAILED: ""}
    return _write_table(folder, family.key, caption, _notes(study, family), columns, rows)


def _notes(study: Study, family: Family) -> list[str]:
    """How numbers are rounded, what the rows of ceilings mean, the number of images, and the family's caveats."""
    curve, kind = family.base.curves["mean"], "wrong" if study.labelled else "other"
    ceilings = not all(measure.is_fraction for measure in family.measures)
    left_out = f"; {text} are left out" if (text := curve_left_out(study.main, curve)) else ""
    meaning = f"The rows of {kind} labels show how many are returned per image at most, on average over all images."
    more = [_ROUNDED_UP, meaning] if ceilings else []
    more += [] if study.exact else ["Each certificate is a promise about one image, with probability 1 − α."]
    return [*more, f"Over {curve.scores.images} images{left_out}.", family.note]


def _write_labels(study: Study, folder: Path) -> list[Path]:
    radii = dict(round_radii(study.grid, study.main.certificates.noise, _HALVES))
    columns = {"label": "label", "images": "images", **_radius_columns([*radii.values()]), _FAILED: ""}
    rows: list[list[Cell]] = [
        [label.label, label.images, *(float(label.certified[index]) for index in radii), label.failed]
        for label in study.label_scores
    ]
    # The radius of a single label is proved in one way, whichever method proves the set.
    named = study.rule == "top-k" or study.exact
    proof = _config_note(study, f"method {label_method(study.main)}" if named else "by the bound of the label itself")
    caption = f"How often each label is certified at R, in % of the images {label_images(study.labelled)}. {proof}"
    together = study.exact or not study.labelled
    alone, all_ = "The claim about each label holds alone.", "All claims about the labels of an image hold at once."
    notes = [all_ if together else alone, failure_words(study.main)]
    return _write_table(folder, "labels", caption, notes, columns, rows)


def write_attack_table(attacks: Attacks, folder: Path) -> list[Path]:
    """The table `attack` as CSV (without loss) and LaTeX, floors rounded down and ceilings up.

    Example:
        >>> attacks = read_attacks(attack)  # a folder written by `multiguard attack`
        >>> [path.name for path in write_attack_table(attacks, out)]
        ['attack.csv', 'attack.tex']
    """
    require_folder(folder)
    columns = {"counted": "counted", "line": "by", **_radius_columns(attacks.radii)}
    curves = attack_curves(attacks)
    rows = [row for curve in curves for row in _table_rows(curve)]
    kind = "true" if attacks.labelled else "predicted"
    words = f"{attack_words(attacks)}. {attacks.noise.unit_words}."
    caption = f"{kind.capitalize()} labels that stay, in %: certified and reached by attacks. {words}"
    known = f"What attacks reached is {'exact' if attacks.exact else 'an estimate'}: {_ATTACK_NOTE}"
    ceilings = [_ROUNDED_UP] if any(curve.goal == "out" for curve in curves) else []
    notes = [*ceilings, known, sentence(verdict(attacks))]
    return _write_table(folder, "attack", caption, notes, columns, rows)


def _table_rows(curve: AttackCurve) -> list[list[Cell]]:
    """Of labels that stay the certificate is the floor; of other labels the attack is."""
    stay = curve.goal == "in"
    counted = "labels that stay" if stay else "other labels returned"
    rows: list[list[Cell]] = [
        [counted, f"certified ({method})", *_cells(map(float, values), floors=stay)]
        for method, values in curve.certified.items()
    ]
    for name, values in curve.reached.items():
        cells = ((float(value), percent_value(value, ROUND_CEILING)) if stay else f"{value:.2f}" for value in values)
        rows.append([counted, ATTACK_NAMES.get(name, name), *cells])
    return rows


def _config_note(study: Study, proof: str) -> str:
    noise = study.main.certificates.noise
    return f"{', '.join(config_words(study.main).values())} unless stated otherwise; {proof}. {noise.unit_words}."


def _cells(values: Iterable[float], *, floors: bool) -> list[Cell]:
    """Floors of fractions, or ceilings on a number of labels, rounded up."""
    return [value if floors else (value, round_up(value, 2)) for value in values]


def _radius_columns(radii: Sequence[float]) -> dict[str, str]:
    """One column per radius: its name in the CSV and its heading for people."""
    return {f"R={plain(radius)}": f"R = {plain(radius)}" for radius in radii}


def _write_table(
    folder: Path,
    name: str,
    caption: str,
    notes: Sequence[str],
    columns: Mapping[str, str],
    rows: Sequence[Sequence[Cell]],
) -> list[Path]:
    """Write a table in both formats; a column whose heading for people is empty is in the CSV alone."""
    notes = [_ROUNDED_DOWN, *filter(None, notes)]
    shown = [number for number, heading in enumerate(columns.values()) if heading]
    printed: list[list[Cell]] = [[each[number] for number in shown] for each in ([*columns.values()], *rows)]
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([_csv_cell(cell) for cell in row] for row in ([*columns], *rows))
    texts = {"csv": file.getvalue(), "tex": _latex(name, caption, notes, printed)}
    for kind, text in texts.items():
        write_atomically(folder / f"{name}.{kind}", methodcaller("write", text.encode()))
    return [folder / f"{name}.{kind}" for kind in texts]


def _latex(name: str, caption: str, notes: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A booktabs table in percent; it needs the package booktabs and nothing else."""
    alignment = "".join("l" if isinstance(cell, str) else "r" for cell in rows[min(1, len(rows) - 1)])
    heading, *body = [" & ".join(map(_cell_text, row)) + r" \\" for row in rows]
    lines = [
        *(r"\begin{table}", r"\centering"),
        *(rf"\caption{{{escape_latex(caption)}}}", rf"\label{{tab:{name}}}"),
        *(rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", heading, r"\midrule", *body, r"\bottomrule"),
        *(r"\end{tabular}", r"\par\smallskip"),
        *(rf"{{\footnotesize {' '.join(map(escape_latex, notes))}}}", r"\end{table}"),
    ]
    return "\n".join(lines) + "\n"


def _csv_cell(cell: Cell) -> str:
    """A fraction in full; a text that a spreadsheet would run gets an apostrophe in front."""
    number = cell[0] if isinstance(cell, tuple) else cell
    return repr(number) if isinstance(number, float) else as_cell(str(number))


def _cell_text(cell: Cell) -> str:
    if isinstance(cell, tuple):
        return cell[1]
    return percent_value(cell) if isinstance(cell, float) else escape_latex(str(cell))


_LATEX_TEXT = {"\\": "backslash", "^": "asciicircum", "~": "asciitilde", "`": "asciigrave"}
_LATEX_TEXT |= {"<": "less", ">": "greater", "|": "bar", '"': "quotedbl"}
_LATEX_MATH = {"′": "'", "σ": r"\sigma", "α": r"\alpha", "−": "-", "ℓ₂": r"\ell_2"}
_LATEX = {
    "[": "{[}",
    "]": "{]}",
    **{character: f"\\{character}" for character in "{}$&#%_"},
    **{character: rf"\text{name}{{}}" for character, name in _LATEX_TEXT.items()},
    **{character: rf"\ensuremath{{{name}}}" for character, name in _LATEX_MATH.items()},
}
_LATEX_SPECIAL = re.compile("|".join(re.escape(text) for text in sorted(_LATEX, key=len, reverse=True)))
# Control characters, and marks that turn the direction of text and so hide what is next to them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")


def escape_latex(text: str) -> str:
    """The text on one line, with no character that LaTeX reads as a command or as an option of the one before."""
    escaped = _LATEX_SPECIAL.sub(lambda match: _LATEX[match[0]], _CONTROL.sub(" ", text))
    return re.sub(r"^(\s*)\*", r"\1{*}", escaped)
