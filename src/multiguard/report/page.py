"""The page: one HTML file that opens offline, made of a template, a style sheet, scripts and data."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiguard.certify.arguments import Floats
from multiguard.certify.noise import parse_noise
from multiguard.data import Dataset
from multiguard.data.sample import Progress
from multiguard.errors import InvalidInputError
from multiguard.evaluate import Certificates, Curve, Results
from multiguard.evaluate.calibration import NOT_PROMISED, Calibration, Offer
from multiguard.evaluate.curves import AVERAGINGS, TEST_SET_ERROR
from multiguard.evaluate.scores import certified_sizes
from multiguard.io.files import require_folder, write_atomically
from multiguard.io.records import decode_json
from multiguard.io.rounding import confidence, percent_value, plain, plain_percent, round_up, up_to_digits
from multiguard.report import words
from multiguard.report.figures import family_strokes, ordered_strokes
from multiguard.report.study import Family, Study
from multiguard.report.thumbnails import Thumbnail, make_thumbnails
from multiguard.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

ASSETS = Path(__file__).parent / "assets"
_SCRIPTS = (
    *("elements.js", "charts.js", "families.js", "address.js"),
    *("offers.js", "labels.js", "card.js", "gallery.js", "instrument.js"),
)
_HTML_SPECIAL = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
_MOST_IMAGES, _WEAKEST = 1000, 800  # of a page without a number of images to show
_FLOORS = ("precision", "recall", "f1")


def write_page(
    study: Study,
    path: Path,
    *,
    images: Dataset | None = None,
    gallery: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Write one HTML file that opens offline, fetches nothing, and shows no number above what was proved.

    An image is shown only if its pixels have the hash of the image that was voted on, where the certificates know it.
    Returns how many are not shown because their pixels have changed.

    Args:
        study: What the page is about.
        path: The file, such as report.html; its folder is created if missing.
        images: The dataset that thumbnails come from, by id; the page works without, and says how many are missing.
        gallery: How many images to show, weakest first; None for all, or of more than 1,000 for the 800 weakest and 200
            of the others at random.
        progress: Called with the number of thumbnails done and of all thumbnails.

    Example:
        >>> study = Study(read_certificates(certificates))  # a folder written by `multiguard certify`
        >>> write_page(study, out / "report.html", gallery=10)
        0
    """
    if gallery is not None and gallery < 0:
        raise InvalidInputError(f"gallery is {gallery}; give 0 or more images, or None for all of them")
    shown, at_random = _shown(study, gallery)
    proved = study.main.certificates
    hashes = {proved.ids[index]: proved.image_hashes[index] for index in shown}
    illustrated = proved.noise, float(study.grid[study.start])
    made, others = ({}, {}) if images is None else make_thumbnails(images, hashes, illustrated, progress)
    replaced = [*others.values()].count("replaced")
    given = images is not None and "no image" not in others.values()
    write_text(path, _page_text(study, (shown, at_random), made, gallery=gallery, replaced=replaced, given=given))
    return replaced


def _page_text(
    study: Study,
    chosen: tuple[list[int], int],
    thumbnails: Mapping[str, Thumbnail],
    *,
    gallery: int | None,
    replaced: int,
    given: bool,
) -> str:
    shown, at_random = chosen
    values = {
        "shown": len(shown),
        "at_random": at_random,
        "illustrated": sum(bool(looks) for *_, looks in thumbnails.values()),
        "replaced": replaced,
        "missing": len(shown) - len(thumbnails) - replaced,
        "images_given": given,
    }
    said = _words(study)
    made = {
        "title": study.title,
        "commands": said["commands"],
        "gallery": gallery,
        "replaced": replaced,
        "given": given,
    }
    data = {**_page_data(study, shown, thumbnails), "made": made}
    return render_page("report.html", _SCRIPTS, data, **values, **said, **_scores(study))


def page_again(text: str, main: Results, others: Mapping[str, Results], calibration: Calibration | None = None) -> str:
    """What the page `text` must be if it is made of these certificates, with its own title, commands and thumbnails.

    A text that is no page raises `ValueError`.
    """
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    try:
        stored = decode_json("" if found is None else found[1], dict[str, Any])
        made, gallery = stored["made"], stored["made"]["gallery"]
        study = Study(main, others, made["title"], made["commands"], calibration)
        looks = {one["id"]: (*one["thumbnail"], one["looks"]) for one in stored["images"] if one["thumbnail"]}
        thumbnails = {name: (pixels, height, width, more) for name, (pixels, width, height, more) in looks.items()}
        flags = {"gallery": gallery, "replaced": made["replaced"], "given": made["given"]}
        return _page_text(study, _shown(study, gallery), thumbnails, **flags)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError("its data do not belong to a page of this version") from error


def _shown(study: Study, gallery: int | None) -> tuple[list[int], int]:
    """The images to show, and how many of them were drawn at random: a page must open at once.

    Those least certified at the radius shown first come first, those without labels last.
    """
    certificates, radius = study.main.certificates, study.grid[study.start]
    radii, labels = certificates.radii[study.method], certificates.labels.lengths
    images = np.repeat(np.arange(len(radii)), radii.lengths)
    area, each = np.bincount(images, np.maximum(radii.values, 0), len(radii)), np.maximum(labels, 1)
    order = np.lexsort((area / each, certified_sizes(radii, radius) / each, labels == 0))
    if gallery is not None or len(order) <= _MOST_IMAGES:
        return order[:gallery].tolist(), 0
    others = np.random.default_rng(0).choice(order[_WEAKEST:], _MOST_IMAGES - _WEAKEST, replace=False)
    return [*order[:_WEAKEST].tolist(), *others.tolist()], len(others)


def _words(study: Study) -> dict[str, Any]:
    """What was certified, and of how much of it nothing is proved."""
    proved, dataset = study.main.certificates, study.main.provenance.get("dataset")
    families = {family.key: family.recall_first for family in study.families}
    return {
        "study": study,
        "noise": proved.noise,
        "method_names": words.METHOD_NAMES,
        "ticks": list(_ticks(study)),
        "families": families,
        "has_sweeps": bool(families.keys() & {"k_prime", "k", "threshold", "n", "alpha"}),
        "has_runs": bool(families.keys() & {"noise", "training"}),
        "dataset": words.dataset_words(str(dataset), len(proved.ids) + len(proved.failures)) if dataset else "",
        "model": words.model_name(study.main),
        "commands": [words.shared_command(each) for each in study.commands or words.commands_of([study.main])],
        "mean_draws": words.mean_draws(study.main),
        "failure_words": words.failure_words(study.main),
        "label_method": words.label_method(study.main),
        "confidence": confidence(study.config.alpha),
        "calibration": study.calibration,
        "offers": study.calibration and _offered(study.calibration),
        "not_promised": NOT_PROMISED,
        "unconfirmed": int(np.isneginf(proved.label_radii.values).sum()),
        "labels": len(proved.labels.values),
        "provenance": list(_provenance(study)),
    }


def _scores(study: Study) -> dict[str, Any]:
    """The scores at the radius shown first, and those without any perturbation."""
    curve, start, measures = study.main_curve(study.method, "mean"), study.start, study.families[0].recall_first
    clean = {name: both["mean"] for name, both in study.clean_scores.items()}
    return {
        "curve": curve,
        "headline": {each.key: each.text(float(each.values(curve)[start])) for each in measures},
        "whose": words.whose_labels(study.labelled)["mean"],
        "closing": words.closing_sentence(study.main, float(study.grid[start])),
        "floors": curve.bands
        and [percent_value(float(each[1][start])) for each in (curve.bands.test_set, curve.bands.population)],
        "surely": plain_percent(1 - TEST_SET_ERROR),
        "clean": {
            name: {each.key: each.text(float(getattr(scores, each.key))) for each in measures if each.is_fraction}
            for name, scores in clean.items()
        },
        "bare_images": clean["bare"].images if "bare" in clean else 0,
        "expected_wrong": up_to_digits(study.config.alpha * curve.scores.images, 3),
    }


def _ticks(study: Study) -> Iterator[tuple[int, int]]:
    """The indices on the slider of halves of the typical radius, and how many halves they are."""
    noise = study.main.certificates.noise
    unit = max(1, round(noise.typical_radius / 2)) if noise.whole else noise.typical_radius / 2
    for index, half in enumerate(study.grid / unit):
        if abs(half - round(half)) < 1e-9:
            yield index, round(half)


def _provenance(study: Study) -> Iterator[tuple[str, str]]:
    """Every field of the votes' provenance, flat, without the folders of whoever made them."""
    for name, run in {"": study.main, **study.others}.items():
        hashes = {"certificates_sha256": run.certificates_hash or None, "votes_sha256": run.votes_hash}
        average = words.mean_draws(run) if run.provenance.get("stops") is not None else None
        more = {**hashes, "certified_with": run.certified_with, "mean_draws": average}
        for field, value in (*run.provenance.items(), *more.items(), *run.source.items()):
            if field != "command":  # it is shown above
                yield from _flat(f"{name}: {field}" if name else field, value)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The rows of a value: numbers of a list in full, names of a list by their count."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif isinstance(value, (list, tuple)):
        numbers = all(isinstance(each, (int, float)) for each in value)
        yield name, ", ".join(plain(each) for each in value) if numbers else f"{len(value)} in all"
    elif value is not None:
        yield name, words.without_folder(str(value))


def _page_data(study: Study, shown: Sequence[int], thumbnails: Mapping[str, Thumbnail]) -> dict[str, Any]:
    """All that the scripts need, with the images at the indices `shown`."""
    certificates, grid = study.main.certificates, study.grid.tolist()
    noise, methods = certificates.noise, certificates.methods
    sizes = {(height, width) for _, height, width, _ in thumbnails.values()}
    if not sizes and isinstance(
        side := study.main.source.get("data", {}).get("size"), int
    ):  # to which they were resized
        sizes = {(side, side)}
    size = sizes.pop() if len(sizes) == 1 else None
    return {
        "grid": grid,
        "start": study.start,
        "whole": noise.whole,
        "exact": study.exact,
        "axis": noise.axis_label,
        "at": [noise.radius_words(radius) for radius in grid],
        "threats": [noise.threat_words(radius) for radius in grid],
        "rule": study.rule,
        "labelled": study.labelled,
        "adaptive": bool(study.stops),
        "whose": words.whose_labels(study.labelled),
        "methods": list(methods),
        "clean": {
            name: {each: {score: float(getattr(scores, score)) for score in _FLOORS} for each, scores in both.items()}
            for name, both in study.clean_scores.items()
        },
        "staying": {method: words.staying_labels(study.main, grid, method).tolist() for method in methods},
        "families": [family_data(family) for family in study.families],
        "offers": study.calibration and _offered(study.calibration),
        "labelNames": list(certificates.label_names),
        "labels": [
            {"name": each.label, "images": each.images, "certified": each.certified.tolist()}
            for each in study.label_scores
        ],
        "images": [_image(certificates, i, grid[-1], thumbnails.get(certificates.ids[i])) for i in shown],
        "sizes": [noise.size_words(radius, size) for radius in grid],
    }


def family_data(family: Family) -> dict[str, Any]:
    """The curves of a family, as the charts read them."""
    return {
        "key": family.key,
        "symbol": family.symbol,
        "title": family.title,
        "note": family.note,
        "grid": family.radius.tolist(),
        "measures": [{"key": each.key, "word": each.word, "top": family.top(each)} for each in family.recall_first],
        "lines": [
            {"name": line.name, "value": line.value, "base": line.is_base, **stroke}
            | {averaging: _curve(line.curves[averaging]) for averaging in AVERAGINGS}
            for line, stroke in zip(family.lines, family_strokes(family), strict=True)
        ],
    }


def _curve(curve: Curve) -> dict[str, Any]:
    scores: dict[str, Any] = {score: getattr(curve.scores, score).tolist() for score in (*_FLOORS, "false_ceiling")}
    bands = curve.bands and {score: [end.tolist() for end in getattr(curve.bands, score)] for score in _FLOORS}
    if curve.bands is not None:
        scores |= {"test_set": curve.bands.test_set[1].tolist(), "population": curve.bands.population[1].tolist()}
    return {**scores, "bands": bands}


def _image(certificates: Certificates, index: int, farthest: float, thumbnail: Thumbnail | None) -> dict[str, Any]:
    """What is proved of an image; for each method the radii up to which at most 0, 1, ... other labels are returned."""
    ceilings = {
        method: _numbers(radii[index][: int(np.searchsorted(radii[index], farthest)) + 1])
        for method, radii in (certificates.false_radii or {}).items()
    }
    return {
        "id": certificates.ids[index],
        "labels": list(certificates.labels[index]),
        "own": _numbers(certificates.label_radii[index]),
        "predicted": list(certificates.predicted[index]),
        "hits": list(certificates.predicted_hits[index]),
        "draws": certificates.draws[index],
        "radii": {method: _numbers(radii[index]) for method, radii in certificates.radii.items()},
        "ceilings": ceilings or None,
        "thumbnail": None if thumbnail is None else [thumbnail[0], thumbnail[2], thumbnail[1]],
        "looks": {} if thumbnail is None else thumbnail[3],
    }


def _numbers(radii: Floats) -> list[float | str]:
    """Numbers, and for the infinities, which JSON lacks, the words that the scripts know."""
    return [float(radius) if math.isfinite(radius) else "inf" if radius > 0 else "-inf" for radius in radii]


def _offered(calibration: Calibration) -> dict[str, Any] | None:
    """Labels returned for each promised recall and radius: two charts, and a table with a cell per radius."""
    found = {(offer.recall, offer.radius): offer for offer in calibration.offers}
    if not found:
        return None
    recalls, radii = (sorted({key[place] for key in found}) for place in (0, 1))
    config = calibration.config
    names = {recall: f"{plain_percent(recall)} %" for recall in recalls}
    of_radius = {f"R = {plain(each)}": [found[key] for key in sorted(found) if key[1] == each] for each in radii}
    of_recall = {name: [found[key] for key in sorted(found) if key[0] == each] for each, name in names.items()}
    cells = {name: [found.get((recall, radius)) for radius in radii] for recall, name in names.items()}
    own_radius = radii.index(config.radius) if config.radius in radii else 0
    own_recall = recalls.index(config.recall) if config.recall in recalls else 0
    return {
        "recall": {
            "caption": "Recall promised against labels returned",
            "x": "labels returned",
            "y": "recall promised, %",
            "lines": _offer_lines(of_radius, own_radius, lambda each: (each.returned, 100 * each.recall)),
        },
        "returned": {
            "caption": "Labels returned against R",
            "x": parse_noise(calibration.noise).axis_label,
            "y": "labels returned",
            "lines": _offer_lines(of_recall, own_recall, lambda each: (each.radius, each.returned)),
        },
        "rows": [
            (name, [each and (round_up(each.returned, 1), round_up(each.wrong, 1)) for each in row])
            for name, row in cells.items()
        ],
    }


def _offer_lines(
    offers: Mapping[str, list[Offer]], base: int, point: Callable[[Offer], tuple[float, float]]
) -> list[dict[str, Any]]:
    """A line for each name, the calibration's own thicker and solid."""
    lines = []
    for place, ((name, own), stroke) in enumerate(zip(offers.items(), ordered_strokes(len(offers), base), strict=True)):
        x, y = zip(*map(point, own), strict=True)
        lines.append({"name": name, "base": place == base, "x": [*x], "y": [*y], **stroke})
    return lines


def render_page(template: str, scripts: Sequence[str], data: Mapping[str, Any], **values: Any) -> str:
    """The page with its style, these scripts, the chart library and the data that they read."""
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    parts = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in scripts)
    plotly = get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")  # as a browser reads it
    programs = [f'(() => {{\n"use strict";\n{parts}}})();\n', plotly]
    allowed = " ".join(map(policy_hash, programs))
    nothing_else = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    values |= {
        "version": __version__,
        "policy": f"{nothing_else}; script-src {allowed}; base-uri 'none'; form-action 'none'",
        "style": Markup((ASSETS / "report.css").read_text(encoding="utf-8")),
        "scripts": [Markup(program) for program in programs],
        "data": Markup(as_script_json(data)),
    }
    return page_environment(ASSETS).get_template(template).render(values)


@cache
def page_environment(folder: Path) -> "Environment":
    """The templates of a folder, in which every value is escaped and none may be missing."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(folder)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"plain": plain, "plain_percent": plain_percent}
    return environment


def write_text(path: Path, text: str) -> None:
    """Write the page; its folder is created if missing."""
    require_folder(path.parent)
    write_atomically(path, lambda file: file.write(text.encode("utf-8", "replace")))


def as_script_json(data: Mapping[str, Any]) -> str:
    """The data as JSON in which nothing can be taken for HTML; floats keep every digit."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(_HTML_SPECIAL)


def policy_hash(text: str) -> str:
    """The source expression by which a content security policy allows exactly this script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
