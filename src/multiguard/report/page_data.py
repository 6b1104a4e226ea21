"""The data that the page's scripts read: curves, labels and images, as JSON that cannot end its own script element."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import Method
from multiguard.certify.arrays import Floats
from multiguard.evaluate import Averaging, Certificates, Curve, Scores
from multiguard.evaluate.curves import AVERAGINGS
from multiguard.evaluate.scores import certified_sizes
from multiguard.report.canvas import Stroke
from multiguard.report.families import Family, Line, Measure
from multiguard.report.study import Study
from multiguard.report.thumbnails import Thumbnail
from multiguard.report.words import first_radius, whose_labels

FLOORS = ("precision", "recall", "f1")
_SCORES = (*FLOORS, "false_ceiling")


def page_data(study: Study, shown: Sequence[int], thumbnails: Mapping[str, Thumbnail]) -> dict[str, Any]:
    """All that the scripts need, with the images at the indices `shown`."""
    certificates, grid = study.main.certificates, study.grid
    sizes = {(height, width) for _, height, width, _ in thumbnails.values()}
    size = sizes.pop() if len(sizes) == 1 else None
    return {
        "grid": grid.tolist(),
        "start": start_index(study),
        "whole": certificates.noise.whole,
        "exact": study.exact,
        "axis": certificates.noise.axis_label,
        "at": [certificates.noise.radius_words(radius) for radius in grid.tolist()],
        "threats": [certificates.noise.threat_words(radius) for radius in grid.tolist()],
        "rule": study.rule,
        "labelled": study.labelled,
        "adaptive": bool(study.stops),
        "whose": whose_labels(study),
        "methods": list(certificates.methods),
        "clean": {name: _clean(both) for name, both in study.clean_scores.items()},
        "staying": {method: study.staying(method) for method in certificates.methods},
        "families": [family_data(family) for family in study.families],
        "labelNames": list(certificates.label_names),
        "labels": [
            {"name": each.label, "images": each.images, "certified": each.certified.tolist()}
            for each in study.label_scores
        ],
        "images": [_image(certificates, i, float(grid[-1]), thumbnails.get(certificates.ids[i])) for i in shown],
        "sizes": [certificates.noise.size_words(radius, size) for radius in grid.tolist()],
    }


def _clean(both: Mapping[Averaging, Scores]) -> dict[Averaging, dict[str, float]]:
    return {averaging: {score: float(getattr(each, score)) for score in FLOORS} for averaging, each in both.items()}


def start_index(study: Study) -> int:
    """The index of the radius shown first: that of the noise, or the first that adaptive draws were spent on."""
    return int(np.argmin(np.abs(study.grid - first_radius(study.main))))


def weakest_first(study: Study) -> NDArray[np.int64]:
    """The indices of the images, least certified at the radius shown first, those without labels last."""
    certificates, radius = study.main.certificates, study.grid[start_index(study)]
    radii, labels = certificates.radii[study.method], certificates.labels.lengths
    images = np.repeat(np.arange(len(radii)), radii.lengths)
    area, each = np.bincount(images, np.maximum(radii.values, 0), len(radii)), np.maximum(labels, 1)
    return np.lexsort((area / each, certified_sizes(radii, radius) / each, labels == 0))


def recall_first(family: Family) -> list[Measure]:
    """The scores of the family, the one of the headline first."""
    return sorted(family.measures, key=lambda measure: measure.key != "recall")


def family_data(family: Family) -> dict[str, Any]:
    """The curves of a family, as the charts read them."""
    return {
        "key": family.key,
        "symbol": family.symbol,
        "title": family.title,
        "note": family.note,
        "grid": family.radius.tolist(),
        "measures": [{"key": each.key, "word": each.word, "top": family.top(each)} for each in recall_first(family)],
        "lines": [_line(line, stroke) for line, stroke in zip(family.lines, family.strokes, strict=True)],
    }


def _line(line: Line, stroke: Stroke) -> dict[str, Any]:
    curves: dict[str, Any] = {averaging: _curve(line.curves[averaging]) for averaging in AVERAGINGS}
    return {"name": line.name, "value": line.value, "base": line.is_base, **stroke, **curves}


def _curve(curve: Curve) -> dict[str, Any]:
    scores: dict[str, Any] = {score: getattr(curve.scores, score).tolist() for score in _SCORES}
    bands = curve.bands and {score: [end.tolist() for end in getattr(curve.bands, score)] for score in FLOORS}
    return {**scores, "bands": bands}


def _image(certificates: Certificates, index: int, farthest: float, thumbnail: Thumbnail | None) -> dict[str, Any]:
    return {
        "id": certificates.ids[index],
        "labels": list(certificates.labels[index]),
        "own": _numbers(certificates.label_radii[index]),
        "predicted": list(certificates.predicted[index]),
        "hits": list(certificates.predicted_hits[index]),
        "draws": certificates.draws[index],
        "radii": {method: _numbers(radii[index]) for method, radii in certificates.radii.items()},
        "ceilings": _ceilings(certificates, index, farthest),
        "thumbnail": None if thumbnail is None else [thumbnail[0], thumbnail[2], thumbnail[1]],
        "looks": {} if thumbnail is None else thumbnail[3],
    }


def _ceilings(certificates: Certificates, index: int, farthest: float) -> dict[Method, list[float | str]] | None:
    """For each method the radii up to which at most 0, 1, ... other labels are returned, as far as the page shows."""
    if certificates.false_radii is None:
        return None
    return {
        method: _numbers(radii[index][: int(np.searchsorted(radii[index], farthest)) + 1])
        for method, radii in certificates.false_radii.items()
    }


def _numbers(radii: Floats) -> list[float | str]:
    """Numbers, and for the infinities, which JSON lacks, the words that the scripts know."""
    return [float(radius) if math.isfinite(radius) else "inf" if radius > 0 else "-inf" for radius in radii]
