"""Certified scores and attacks on the terminal: never more than was proved, and no line beyond 80 columns."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR
from functools import partial

from rich.console import Console
from rich.table import Table

from multiguard.certify.arguments import Floats
from multiguard.certify.noise import Noise
from multiguard.cli.console import plain_table
from multiguard.evaluate import Attacks, Certificates, Curve, Results, attack_curves
from multiguard.evaluate.scores import failed_words
from multiguard.io.rounding import count, down_to_digits, percent, plain
from multiguard.report.words import dataset_title
from multiguard.votes.provenance import engine_words

_COLUMNS = 7
_RADIUS_DIGITS = 4


# The rows of the table for each method: a name, the score it shows, and how a value is written.
_TRUE = (("recall", "recall", percent), ("precision", "precision", percent), ("F1", "f1", percent))
_STAY = (("stay", "recall", percent),)
_COUNTS = (
    ("floor", "true_floor", partial(count, rounding=ROUND_FLOOR)),
    ("ceiling", "false_ceiling", partial(count, rounding=ROUND_CEILING)),
)


def noise_text(noise: Noise) -> str:
    """The noise for a terminal: sigma by its name, any other as the command line has it."""
    return str(noise) if noise.sigma is None else f"sigma = {plain(noise.sigma)}"


def show_scores(written: Results, console: Console) -> None:
    """Print the scores of every method at a handful of radii, what they mean, and which images are left out."""
    certificates = written.certificates
    own = [one for one in written.curves if one.config == certificates.config and one.averaging == "mean"]
    for line in [*_heading(written, own[0]), *_left_out_lines(certificates, own[0]), ""]:
        console.print(line)
    counts = _COUNTS if certificates.config.rule.name == "threshold" else ()
    table, columns = _table(["certified", ""], own[0].scores.radius)
    for curve in own:
        for number, (name, field, text) in enumerate([*(_TRUE if certificates.labelled else _STAY), *counts]):
            values = getattr(curve.scores, field)
            table.add_row("" if number else curve.method, name, *(text(values[column]) for column in columns))
    console.print(table, soft_wrap=False)
    if certificates.config.rule.name == "threshold":
        kind = "true" if certificates.labelled else "predicted"
        console.print(f"\nfloor: {kind} labels returned at least, under any perturbation up to R")
        console.print("ceiling: other labels returned at most; also of images without labels")


def show_attack_curves(attacks: Attacks, console: Console) -> None:
    """Print the averages at a handful of radii: floors rounded down, what attacks reached rounded the other way."""
    for curve in attack_curves(attacks):
        stays = curve.goal == "in"
        table, columns = _table(["labels that stay" if stays else "others that come in"], curve.radius)
        text = percent if stays else count
        low, high = (ROUND_FLOOR, ROUND_CEILING) if stays else (ROUND_CEILING, ROUND_FLOOR)
        for kind, side, rows in (("certified", low, curve.certified), ("reached", high, curve.reached)):
            for name, values in rows.items():
                table.add_row(f"{kind}, {name}", *(text(values[column], side) for column in columns))
        console.print(table, soft_wrap=False)


def _heading(written: Results, curve: Curve) -> list[str]:
    """Which images the scores are of, and what is certified."""
    certificates, adaptive = written.certificates, written.provenance["stops"] is not None
    config, exact = certificates.config, certificates.noise.enumerated
    rule = config.rule.text + ("" if adaptive or exact else f", n = {config.draws}")
    error = "" if exact else f", alpha = {plain(config.alpha)}"
    lines = [
        f"{curve.scores.images} images of {dataset_title(written.provenance)}",
        f"{rule}{error}, {noise_text(certificates.noise)}; means over images",
        certificates.noise.unit_words,
        f"votes by {engine_words(*(written.provenance[name] for name in ('device', 'precision', 'compiled')))}",
    ]
    if exact:
        lines.append("every band votes, so nothing is random: these are proofs without exception")
    if adaptive:
        lines.append(f"adaptive draws: {curve.mean_draws:.1f} per image on average, {config.draws} at most")
    if not certificates.labelled:
        chosen = f"{written.provenance['pilot_draws']} pilot draws chose the labels, other draws certify them"
        lines.append("the votes of all bands chose the labels" if exact else chosen)
        lines.append("stay: fraction of the predicted labels that provably stay, right or wrong")
    return lines


def _left_out_lines(certificates: Certificates, curve: Curve) -> list[str]:
    """Which images are not in the means, and why."""
    images, without, failed = curve.scores.images, curve.scores.without_labels, len(certificates.failures)
    lines = [failed_words(failed, failed + len(certificates.ids))] if failed else []
    if without:
        why = "have no label" if certificates.labelled else "are predicted to have no label"
        lines.append(f"{without} of {images + without} left out: they {why}, so no fraction of labels can be certified")
    elif not failed:
        lines.append(f"none left out: every image has a {'label' if certificates.labelled else 'predicted label'}")
    return lines


def _table(heads: Sequence[str], radius: Floats) -> tuple[Table, list[int]]:
    """An empty table with a handful of the radii as columns, and their positions.

    A radius is written in few digits, rounded down: what is certified at the radius holds there, too.
    """
    columns = sorted({round(number * (len(radius) - 1) / (_COLUMNS - 1)) for number in range(_COLUMNS)})
    shown = [down_to_digits(radius[column], _RADIUS_DIGITS) for column in columns]
    return plain_table(*heads, right=[f"R = {shown[0]}", *shown[1:]]), columns
