"""What was proved and what attacks reached, as a table."""

from pathlib import Path

from multiguard.evaluate import AttackCurve, Attacks, attack_curves
from multiguard.io.files import require_folder
from multiguard.report.attack_words import asked_words, attack_name, verdict
from multiguard.report.rounding import plain
from multiguard.report.table import AtMost, Cell, Column, ShareAtMost, Table
from multiguard.report.tables import write_table

_NOTE = (
    "What attacks reached is an estimate: at each radius the best of it and of all below it, rounded up. The true "
    "worst case lies between what is certified and what is reached. Radii of single labels are not attacked."
)


def write_attack_table(attacks: Attacks, folder: Path) -> list[Path]:
    """The table `attack` as CSV (without loss), Markdown and LaTeX, floors rounded down and ceilings up.

    Args:
        attacks: What attacks reached.
        folder: Where to write; made if it is not there.
    """
    require_folder(folder)
    return write_table(attack_table(attacks), folder)


def attack_table(attacks: Attacks) -> Table:
    """For each goal a row for each method's certificate and for each attack, at every radius of the grid."""
    columns = [Column("counted", "counted"), Column("line", "by")]
    columns += [Column(f"R={plain(radius)}", f"R = {plain(radius)}") for radius in attacks.radii]
    rows = [row for curve in attack_curves(attacks) for row in _rows(attacks, curve)]
    kind = "true" if attacks.labelled else "predicted"
    caption = f"Share of the {kind} labels that stay, in %: certified and reached by attacks. {asked_words(attacks)}."
    return Table("attack", caption, [_NOTE, f"{verdict(attacks).capitalize()}."], columns, rows)


def _rows(attacks: Attacks, curve: AttackCurve) -> list[list[Cell]]:
    """Of labels that stay the certificate is the floor, of labels that come in the attack is."""
    head = "labels that stay" if curve.goal == "in" else "other labels that come in"
    rows: list[list[Cell]] = []
    for method, values in curve.certified.items():
        rows.append([head, f"certified ({method})", *(_proved(curve, float(value)) for value in values)])
    for name, values in curve.reached.items():
        rows.append([head, attack_name(name), *(_reached(curve, float(value)) for value in values)])
    return rows


def _proved(curve: AttackCurve, value: float) -> Cell:
    return value if curve.goal == "in" else AtMost(value)


def _reached(curve: AttackCurve, value: float) -> Cell:
    return ShareAtMost(value) if curve.goal == "in" else f"{value:.2f}"
