"""What a calibration offers: labels returned for each promised recall and radius, as two charts and a table."""

from collections.abc import Callable, Sequence
from typing import Any

from multiguard.certify.noise import parse_noise
from multiguard.evaluate.calibration import Calibration, Offer
from multiguard.io.rounding import plain, plain_percent, round_up
from multiguard.report.canvas import ordered_strokes

Point = Callable[[Offer], tuple[float, float]]


def offered(calibration: Calibration) -> dict[str, Any] | None:
    """The charts `recall` and `returned`, and the rows of the table, a cell per radius; None without offers."""
    found = {(offer.recall, offer.radius): offer for offer in calibration.offers}
    if not found:
        return None
    recalls, radii = (sorted({key[place] for key in found}) for place in (0, 1))
    config, axis = calibration.config, parse_noise(calibration.noise).axis_label
    of_radius = {f"R = {plain(each)}": [found[key] for key in sorted(found) if key[1] == each] for each in radii}
    of_recall = {
        f"{plain_percent(each)} %": [found[key] for key in sorted(found) if key[0] == each] for each in recalls
    }
    cells = [[found.get((recall, radius)) for radius in radii] for recall in recalls]
    return {
        "recall": {
            "caption": "Recall promised against labels returned",
            "x": "labels returned",
            "y": "recall promised, %",
            "lines": _lines(of_radius, _index(radii, config.radius), lambda each: (each.returned, 100 * each.recall)),
        },
        "returned": {
            "caption": "Labels returned against R",
            "x": axis,
            "y": "labels returned",
            "lines": _lines(of_recall, _index(recalls, config.recall), lambda each: (each.radius, each.returned)),
        },
        "rows": [
            (name, [each and (round_up(each.returned, 1), round_up(each.wrong, 1)) for each in row])
            for name, row in zip(of_recall, cells, strict=True)
        ],
    }


def _index(values: Sequence[float], own: float) -> int:
    """The place of the calibration's own promise."""
    return values.index(own) if own in values else 0


def _lines(offers: dict[str, list[Offer]], base: int, point: Point) -> list[dict[str, Any]]:
    """A line for each name, the calibration's own thicker and solid."""
    return [
        {"name": name, "base": place == base, "x": [point(one)[0] for one in own], "y": [point(one)[1] for one in own]}
        | {**stroke}
        for place, ((name, own), stroke) in enumerate(
            zip(offers.items(), ordered_strokes(len(offers), base), strict=True)
        )
    ]
