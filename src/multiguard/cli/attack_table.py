"""What is certified and what attacks reached, on the terminal."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from rich.console import Console
from rich.table import Table

from multiguard.cli.scores import as_chosen, count
from multiguard.evaluate import AttackCurve, Attacks, attack_curves

_MOST_RADII = 7


def show_curves(attacks: Attacks, console: Console) -> None:
    """Print the averages at a handful of radii: floors rounded down, what attacks reached rounded to the other side."""
    for curve in attack_curves(attacks):
        console.print(_table(curve), soft_wrap=False)


def _table(curve: AttackCurve) -> Table:
    last = len(curve.radius) - 1
    places = sorted({round(number * last / (_MOST_RADII - 1)) for number in range(_MOST_RADII)})
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("labels that stay" if curve.goal == "in" else "others that come in", no_wrap=True)
    for number, place in enumerate(places):
        head = as_chosen(curve.radius[place])
        table.add_column(f"R = {head}" if number == 0 else head, justify="right", no_wrap=True)
    low, high = ROUND_FLOOR, ROUND_CEILING
    for method, values in curve.certified.items():
        side = low if curve.goal == "in" else high
        table.add_row(f"certified, {method}", *(_text(curve, values[place], side) for place in places))
    for name, values in curve.reached.items():
        side = high if curve.goal == "in" else low
        table.add_row(f"reached, {name}", *(_text(curve, values[place], side) for place in places))
    return table


def _text(curve: AttackCurve, value: float, rounding: str) -> str:
    if curve.goal == "out":
        return count(value, rounding)
    return f"{(Decimal(repr(float(value))) * 100).quantize(Decimal('0.1'), rounding)}%"
