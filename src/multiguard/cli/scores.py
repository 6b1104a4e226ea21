"""Certified scores on the terminal: never more than was proved, and no line beyond 80 columns."""

from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal

from rich.console import Console
from rich.table import Table

from multiguard.evaluate import CertificatesFolder, Curve

_RADII = 7
_MEASURES = {"recall": "recall", "precision": "precision", "f1": "F1"}


def plain_console() -> Console:
    """A console that prints text as it is: no markup, no colours guessed from words."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=True)


def percent(share: float) -> str:
    """A share in percent with one decimal, rounded down."""
    return f"{(Decimal(repr(float(share))) * 100).quantize(Decimal('0.1'), ROUND_FLOOR)}%"


def radius_text(radius: float, decimals: int = 3) -> str:
    """A certified radius, rounded down; words where it is no number."""
    if radius == float("-inf"):
        return "unconfirmed"
    if radius == float("inf"):
        return "any change"
    return str(Decimal(repr(float(radius))).quantize(Decimal(1).scaleb(-decimals), ROUND_FLOOR))


def show_scores(found: CertificatesFolder, console: Console) -> None:
    """Print certified recall, precision and F1 of every method at a handful of radii, and who was left out."""
    setting, curves = found.certificates.setting, _own_curves(found)
    pictures, without = curves[0].scores.images, curves[0].scores.without_labels
    console.print(f"{pictures} pictures of {found.provenance['dataset']}")
    console.print(
        f"k' = {setting.k_prime}, k = {setting.k}, n = {setting.draws}, alpha = {setting.alpha:g}, "
        f"sigma = {found.certificates.sigma:g}; means over pictures"
    )
    console.print(_left_out(pictures, without))
    console.print()
    console.print(_table(curves), soft_wrap=False)


def _own_curves(found: CertificatesFolder) -> list[Curve]:
    """The curves of the setting itself, averaged picture by picture: not those of a sweep."""
    setting = found.certificates.setting
    return [curve for curve in found.curves if curve.setting == setting and curve.averaging == "mean"]


def _left_out(pictures: int, without: int) -> str:
    if without == 0:
        return "none left out: every picture has a label"
    return f"{without} of {pictures + without} left out: they have no label, so no share of labels can survive"


def _table(curves: Sequence[Curve]) -> Table:
    radius = curves[0].scores.radius
    places = sorted({round(number * (len(radius) - 1) / (_RADII - 1)) for number in range(_RADII)})
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("certified", no_wrap=True)
    table.add_column("", no_wrap=True)
    for number, place in enumerate(places):
        head = f"{radius[place]:.4g}"
        table.add_column(f"R = {head}" if number == 0 else head, justify="right", no_wrap=True)
    for curve in curves:
        for number, (field, name) in enumerate(_MEASURES.items()):
            values = getattr(curve.scores, field)
            table.add_row("" if number else curve.method, name, *(percent(values[place]) for place in places))
    return table
