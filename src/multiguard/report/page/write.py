"""Writing the page: template, style, scripts and data in one file that needs nothing else."""

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from multiguard.data import Dataset
from multiguard.errors import InvalidInputError
from multiguard.io.files import require_folder, write_atomically
from multiguard.report.families import families
from multiguard.report.family import METHOD_NAMES
from multiguard.report.labels import main_grid
from multiguard.report.page.data import as_script_json, page_data, page_order, start_index, weakest_first
from multiguard.report.page.thumbnails import Thumbnails, make_thumbnails
from multiguard.report.page.words import (
    draws_facts,
    failed_facts,
    headline,
    images_words,
    label_words,
    rule_words,
)
from multiguard.report.rounding import confidence, plain, plain_percent, up_to_digits
from multiguard.report.study import Study
from multiguard.report.words import mean_draws
from multiguard.version import __version__

_SCRIPTS = ("elements.js", "charts.js", "families.js", "labels.js", "card.js", "gallery.js", "instrument.js")
_HERE = Path(__file__).parent


def write_page(
    study: Study,
    path: Path,
    *,
    images: Dataset | None = None,
    gallery: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write one HTML file that opens offline, fetches nothing, and shows no number above what was proved.

    An image is shown only if it is the very one that was voted on, as far as the certificates know its hash.

    Args:
        study: What the page is about.
        path: The file, such as report.html; its folder is made if it is not there.
        images: Where thumbnails come from, by id; the page says how many are missing, and is whole without any.
        gallery: How many images to show, the weakest of them; None for all.
        progress: Called with the number of thumbnails done and of all thumbnails.

    Returns:
        How many images are not shown because another lies in their place.
    """
    check_gallery(gallery)
    shown = weakest_first(study)[:gallery]
    own = study.main.certificates
    hashes = {own.ids[place]: own.image_hashes[place] for place in shown}
    thumbnails = Thumbnails() if images is None else make_thumbnails(images, hashes, progress)
    text = _render(study, shown, thumbnails, images_given=images is not None)
    require_folder(path.parent)
    write_atomically(path, lambda file: file.write(text.encode("utf-8", "replace")))
    return thumbnails.replaced


def check_gallery(gallery: int | None) -> None:
    """Pass only if so many images can be shown; else `InvalidInputError`."""
    if gallery is not None and gallery < 0:
        raise InvalidInputError(f"gallery is {gallery}; give 0 or more images, or none for all of them")


def _render(study: Study, shown: Sequence[int], thumbnails: Thumbnails, *, images_given: bool) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    found = families(study)
    measures = {family.key: page_order(family) for family in found}
    scripts = [_own_script(), _line_ends(get_plotlyjs())]
    templates = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return templates.get_template("report.html").render(
        **_facts(study),
        policy=_policy(scripts),
        style=Markup((_HERE / "report.css").read_text(encoding="utf-8")),
        scripts=[Markup(script) for script in scripts],
        data=Markup(as_script_json(page_data(study, found, shown, thumbnails.made))),
        measures=measures["methods"],
        rules_measures=measures.get("rules"),
        has_sweeps=bool(measures.keys() & {"k_prime", "k", "threshold", "n", "alpha"}),
        has_runs=bool(measures.keys() & {"sigma", "training", "runs"}),
        shown=len(shown),
        fills_up=any(0 in study.main.certificates.predicted_hits[place] for place in shown),
        replaced=thumbnails.replaced,
        missing=len(shown) - len(thumbnails.made) - thumbnails.replaced,
        images_given=images_given,
    )


def _own_script() -> str:
    parts = [(_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


def _line_ends(script: str) -> str:
    """The script with the line ends that a browser sees, so that its hash is the browser's."""
    return script.replace("\r\n", "\n").replace("\r", "\n")


def _policy(scripts: Sequence[str]) -> str:
    """Nothing may be fetched, and no script may run but these."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )


def _facts(study: Study) -> dict[str, Any]:
    """What the template says before any script has run."""
    certificates, start = study.main.certificates, start_index(study)
    scores = study.main_curve(study.method, "mean").scores
    bands = study.main_curve(study.method, "mean").bands
    dataset = study.main.provenance.get("dataset")
    return {
        "title": study.title,
        "version": __version__,
        **rule_words(study),
        **label_words(study),
        **draws_facts(study),
        **failed_facts(study),
        "sigma": plain(certificates.sigma),
        "alpha": plain(study.config.alpha),
        "confidence": confidence(study.config.alpha),
        "wrong": up_to_digits(study.config.alpha * scores.images, 3),
        "one_size_at_a_time": "jia" in certificates.methods,
        "methods": [(method, METHOD_NAMES[method]) for method in certificates.methods],
        "method": study.method,
        "joint_beside_others": len(certificates.methods) > 1 and "joint" in certificates.methods,
        "total": len(certificates.ids),
        "images": scores.images,
        "without_labels": scores.without_labels,
        "dataset_words": images_words(str(dataset), _asked_about(study)) if dataset else "",
        "model": str(study.main.provenance.get("model", "")),
        "start": start,
        "last": len(scores.radius) - 1,
        "radius": plain(float(scores.radius[start])),
        "ticks": _ticks(main_grid(study).tolist(), certificates.sigma),
        "headline": headline(study, start),
        "bands": None if bands is None else {"level": plain_percent(bands.level), "resamples": bands.resamples},
        "commands": list(study.commands),
        "provenance": list(_provenance(study)),
    }


def _asked_about(study: Study) -> int:
    """How many images there were, those that could not be voted on among them."""
    return len(study.main.certificates.ids) + len(study.main.certificates.failures)


def _ticks(grid: Sequence[float], sigma: float) -> list[dict[str, Any]]:
    """The places on the slider that are whole multiples of half of sigma."""
    found = []
    for place, radius in enumerate(grid):
        halves = radius / sigma * 2
        if abs(halves - round(halves)) < 1e-9:
            found.append({"place": place, "radius": plain(radius), "whole": round(halves) % 2 == 0})
    return found


def _provenance(study: Study) -> Iterator[tuple[str, str]]:
    """Every field of the votes' origin, flat; lists of numbers in full, lists of names counted."""
    for heading, run in {"": study.main, **study.beside}.items():
        prefix = f"{heading}: " if heading else ""
        taken = None if run.provenance.get("looks") is None else mean_draws(run)
        known = {**run.provenance, "mean_draws": taken}
        known |= {"votes_sha256": run.votes_hash, "certified_with": run.certified_with, "certified_by": run.command}
        known |= run.source
        for name, value in known.items():
            yield from _flat(f"{prefix}{name}", value)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif isinstance(value, (list, tuple)):
        numbers = all(isinstance(each, (int, float)) for each in value)
        yield name, ", ".join(plain(each) for each in value) if numbers else f"{len(value)} in all"
    elif value is not None:
        yield name, str(value)
