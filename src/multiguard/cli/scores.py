"""Certified scores on the terminal: never more than was proved, and no line beyond 80 columns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import partial

from rich.console import Console
from rich.table import Table

from multiguard.certify import Rule, TopK
from multiguard.evaluate import Certificates, Curve
from multiguard.evaluate.scores import failed_words
from multiguard.results import CertificatesFolder

_RADII = 7
_RADIUS_DIGITS = 4


def percent(share: float) -> str:
    """A share in percent with one decimal, rounded down."""
    return f"{(Decimal(repr(float(share))) * 100).quantize(Decimal('0.1'), ROUND_FLOOR)}%"


def count(number: float, rounding: str) -> str:
    """A mean number of labels with two decimals, rounded to the side asked for."""
    return str(Decimal(repr(float(number))).quantize(Decimal("0.01"), rounding))


def as_chosen(number: float) -> str:
    """A number that was chosen, such as alpha, in the fewest digits that say it without loss."""
    return repr(float(number)).removesuffix(".0")


def _head(radius: float) -> str:
    """A radius in few digits, rounded down: what is certified at the radius asked for holds there, too."""
    with localcontext(prec=_RADIUS_DIGITS, rounding=ROUND_FLOOR):
        return as_chosen(float(+Decimal(repr(float(radius)))))


@dataclass(frozen=True)
class Row:
    """One row that the table has for each method.

    Attributes:
        name: What it is called.
        field: Which of the scores it shows.
        text: How a value is written, never to say more than was proved.
    """

    name: str
    field: str
    text: Callable[[float], str]


_TRUE = (Row("recall", "recall", percent), Row("precision", "precision", percent), Row("F1", "f1", percent))
_STAY = Row("stay", "recall", percent)
_COUNTS = (
    Row("floor", "true_floor", partial(count, rounding=ROUND_FLOOR)),
    Row("ceiling", "false_ceiling", partial(count, rounding=ROUND_CEILING)),
)


def radius_text(radius: float, decimals: int = 3) -> str:
    """A certified radius, rounded down; words where it is no number."""
    if radius == float("-inf"):
        return "unconfirmed"
    if radius == float("inf"):
        return "any change"
    return str(Decimal(repr(float(radius))).quantize(Decimal(1).scaleb(-decimals), ROUND_FLOOR))


def rule_text(rule: Rule) -> str:
    """The smoothed classifier, in the letters of the paper."""
    return f"k' = {rule.k_prime}, k = {rule.k}" if isinstance(rule, TopK) else f"t = {as_chosen(rule.t)}"


def show_scores(found: CertificatesFolder, console: Console) -> None:
    """Print the certified scores of every method at a handful of radii, what they mean, and who was left out."""
    curves = _own_curves(found)
    for line in [*_asked_lines(found, curves[0]), *_left_out_lines(found.certificates, curves[0]), ""]:
        console.print(line)
    console.print(_table(curves, _rows(found.certificates)), soft_wrap=False)
    for line in _rule_lines(found.certificates):
        console.print(line)


def _asked_lines(found: CertificatesFolder, curve: Curve) -> list[str]:
    """Of which images the scores are, and what was asked."""
    proved, adaptive = found.certificates, found.provenance["looks"] is not None
    asked = rule_text(proved.config.rule) + ("" if adaptive else f", n = {proved.config.draws}")
    alpha, sigma = as_chosen(proved.config.alpha), as_chosen(proved.sigma)
    lines = [
        f"{curve.scores.images} images of {found.provenance['dataset']}",
        f"{asked}, alpha = {alpha}, sigma = {sigma}; means over images",
    ]
    if adaptive:
        lines.append(f"adaptive draws: {curve.mean_draws:.1f} an image on average, {proved.config.draws} at most")
    if not proved.labelled:
        lines.append(f"{found.provenance['pilot_draws']} pilot draws chose the labels, other draws certify them")
        lines.append("stay: share of the predicted labels that provably stay, right or wrong")
    return lines


def _left_out_lines(proved: Certificates, curve: Curve) -> list[str]:
    """Who is not among the means, and why."""
    images, without, failed = curve.scores.images, curve.scores.without_labels, len(proved.failures)
    lines = [failed_words(failed, failed + len(proved.ids))] if failed else []
    return [*lines, _left_out(images, without, proved.labelled)] if without or not failed else lines


def _rule_lines(proved: Certificates) -> list[str]:
    """What the threshold rule's further rows mean."""
    if proved.rule_name != "threshold":
        return []
    kind = "true" if proved.labelled else "predicted"
    return [
        "",
        f"floor: {kind} labels returned at least, for any change up to R",
        "ceiling: other labels returned at most",
    ]


def _rows(proved: Certificates) -> list[Row]:
    """What is told of each method: for chosen labels only how many stay, for the threshold rule floor and ceiling."""
    rows = list(_TRUE) if proved.labelled else [_STAY]
    return rows + list(_COUNTS) if proved.rule_name == "threshold" else rows


def _own_curves(found: CertificatesFolder) -> list[Curve]:
    """The curves of the setting itself, averaged image by image: not those of a sweep."""
    config = found.certificates.config
    return [curve for curve in found.curves if curve.config == config and curve.averaging == "mean"]


def _left_out(images: int, without: int, labelled: bool) -> str:
    if without == 0:
        return f"none left out: every image has a {'label' if labelled else 'predicted label'}"
    why = "have no label" if labelled else "are predicted to have no label"
    return f"{without} of {images + without} left out: they {why}, so no share of labels can survive"


def _table(curves: Sequence[Curve], rows: Sequence[Row]) -> Table:
    radius = curves[0].scores.radius
    places = sorted({round(number * (len(radius) - 1) / (_RADII - 1)) for number in range(_RADII)})
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("certified", no_wrap=True)
    table.add_column("", no_wrap=True)
    for number, place in enumerate(places):
        head = _head(radius[place])
        table.add_column(f"R = {head}" if number == 0 else head, justify="right", no_wrap=True)
    for curve in curves:
        for number, row in enumerate(rows):
            values = getattr(curve.scores, row.field)
            table.add_row("" if number else curve.method, row.name, *(row.text(values[place]) for place in places))
    return table
