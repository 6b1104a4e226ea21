"""What the page's scripts read: curves, labels and images, as JSON that cannot end its own script element."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from multiguard.certify import Method, certified_size
from multiguard.evaluate import Bands, Certificates, Curve
from multiguard.report.draws import stops
from multiguard.report.family import AVERAGINGS, Family, Line
from multiguard.report.labels import main_grid, study_labels
from multiguard.report.measure import Measure
from multiguard.report.page.thumbnails import Thumbnail
from multiguard.report.page.words import whose
from multiguard.report.strokes import Stroke
from multiguard.report.study import Study

_SHARES = ("precision", "recall", "f1")
_SCORES = (*_SHARES, "false_ceiling")
_HTML_SPECIAL = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def as_script_json(data: Mapping[str, Any]) -> str:
    """The data as JSON in which nothing can be taken for HTML; floats keep every digit."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character, escaped in _HTML_SPECIAL.items():
        text = text.replace(character, escaped)
    return text


def page_data(
    study: Study, found: Sequence[Family], shown: Sequence[int], thumbnails: Mapping[str, Thumbnail]
) -> dict[str, Any]:
    """All that the scripts need of the study and the families found in it, with the images at positions `shown`."""
    certificates, grid = study.main.certificates, main_grid(study)
    return {
        "grid": grid.tolist(),
        "start": start_index(study),
        "sigma": certificates.sigma,
        "rule": study.rule,
        "labelled": study.labelled,
        "adaptive": bool(stops(study.main)),
        "whose": whose(study),
        "methods": list(certificates.methods),
        "families": [_family(family) for family in found],
        "labelNames": list(certificates.label_names),
        "labels": [
            {"name": label.label, "images": label.images, "certified": label.certified.tolist()}
            for label in study_labels(study)
        ],
        "images": [_image(certificates, place, float(grid[-1]), thumbnails) for place in shown],
        "size": _common_size(thumbnails),
    }


def start_index(study: Study) -> int:
    """The place in the grid of the radius shown first: sigma, or the first that adaptive draws were spent for."""
    spent_for = (study.main.provenance.get("stopping") or {}).get("radii") or [study.main.certificates.sigma]
    return int(np.argmin(np.abs(main_grid(study) - spent_for[0])))


def weakest_first(study: Study) -> list[int]:
    """The images by what is certified of them at the radius shown first, those without labels last."""
    certificates = study.main.certificates
    radius = float(main_grid(study)[start_index(study)])

    def strength(place: int) -> tuple[bool, float, float, int]:
        radii, true = certificates.radii[study.method][place], len(certificates.labels[place])
        if true == 0:
            return True, 0.0, 0.0, place
        return False, int(certified_size(radii, radius)) / true, float(np.sum(np.maximum(radii, 0))) / true, place

    return sorted(range(len(certificates.ids)), key=strength)


def _family(family: Family) -> dict[str, Any]:
    return {
        "key": family.key,
        "symbol": family.symbol,
        "title": family.title,
        "note": family.note,
        "grid": family.radius.tolist(),
        "measures": [{"key": each.key, "word": each.word, "top": family.top(each)} for each in page_order(family)],
        "lines": [_line(line, stroke) for line, stroke in zip(family.lines, family.strokes, strict=True)],
    }


def page_order(family: Family) -> list[Measure]:
    """What the family is shown in, the headline's score first."""
    return sorted(family.measures, key=lambda measure: measure.key != "recall")


def _line(line: Line, stroke: Stroke) -> dict[str, Any]:
    drawn = {"light": stroke.light, "dark": stroke.dark, "dash": list(stroke.dash), "marker": stroke.marker}
    own = {"name": line.name, "value": line.value, "base": line.is_base, **drawn}
    return own | {averaging: _curve(line.curves[averaging]) for averaging in AVERAGINGS}


def _curve(curve: Curve) -> dict[str, Any]:
    scores = {score: getattr(curve.scores, score).tolist() for score in _SCORES}
    counted = {"images": curve.scores.images, "withoutLabels": curve.scores.without_labels, "failed": curve.failed}
    return scores | counted | {"bands": None if curve.bands is None else _bands(curve.bands)}


def _bands(bands: Bands) -> dict[str, Any]:
    return {"level": bands.level} | {score: [end.tolist() for end in getattr(bands, score)] for score in _SHARES}


def _image(
    certificates: Certificates, place: int, farthest: float, thumbnails: Mapping[str, Thumbnail]
) -> dict[str, Any]:
    thumbnail = thumbnails.get(certificates.ids[place])
    return {
        "id": certificates.ids[place],
        "labels": list(certificates.labels[place]),
        "own": [_number(radius) for radius in certificates.label_radii[place]],
        "predicted": list(certificates.predicted[place]),
        "hits": list(certificates.predicted_hits[place]),
        "draws": certificates.draws[place],
        "radii": {method: [_number(radius) for radius in radii[place]] for method, radii in certificates.radii.items()},
        "ceilings": _ceilings(certificates, place, farthest),
        "thumbnail": None if thumbnail is None else [thumbnail.uri, thumbnail.width, thumbnail.height],
    }


def _ceilings(certificates: Certificates, place: int, farthest: float) -> dict[Method, list[float | str]] | None:
    """For each method the radii up to which at most 0, 1, ... other labels come in; none for the top-k rule.

    They end where one reaches the farthest radius that the page asks about: what follows is never looked at.
    """
    if certificates.false_radii is None:
        return None
    kept = {}
    for method, radii in certificates.false_radii.items():
        reached = int(np.searchsorted(radii[place], farthest))
        kept[method] = [_number(radius) for radius in radii[place][: reached + 1]]
    return kept


def _number(radius: float) -> float | str:
    """A number, or the words that the scripts know for the infinities, which JSON has no numbers for."""
    if math.isinf(radius):
        return "inf" if radius > 0 else "-inf"
    return float(radius)


def _common_size(thumbnails: Mapping[str, Thumbnail]) -> list[int] | None:
    sizes = {(thumbnail.height, thumbnail.width) for thumbnail in thumbnails.values()}
    return list(sizes.pop()) if len(sizes) == 1 else None
