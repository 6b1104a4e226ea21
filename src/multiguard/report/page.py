"""The page: one HTML file that opens offline, made of a template, a style sheet, scripts and data."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multiguard.data import Dataset
from multiguard.data.sample import Progress
from multiguard.errors import InvalidInputError
from multiguard.io.rounding import confidence, plain, up_to_digits
from multiguard.report.families import METHOD_NAMES, Measure
from multiguard.report.page_data import page_data, recall_first, start_index, weakest_first
from multiguard.report.single_file import render_page, write_text
from multiguard.report.study import Study
from multiguard.report.thumbnails import Thumbnail, make_thumbnails
from multiguard.report.words import (
    closing_sentence,
    dataset_words,
    failure_words,
    label_method,
    mean_draws,
    whose_labels,
)

_SCRIPTS = (
    *("elements.js", "charts.js", "families.js", "address.js"),
    *("labels.js", "card.js", "gallery.js", "instrument.js"),
)
_MOST_IMAGES, _WEAKEST = 1000, 800  # of a page without a number of images to show


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

    Args:
        study: What the page is about.
        path: The file, such as report.html; its folder is created if missing.
        images: The dataset that thumbnails come from, by id; the page works without, and says how many are missing.
        gallery: How many images to show, weakest first; None for all, or of more than 1,000 for the 800 weakest and 200
            of the others at random.
        progress: Called with the number of thumbnails done and of all thumbnails.

    Returns:
        How many images are not shown because their pixels have changed.

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
    illustrated = proved.noise, float(study.grid[start_index(study)])
    made, others = ({}, {}) if images is None else make_thumbnails(images, hashes, illustrated, progress)
    replaced = [*others.values()].count("replaced")
    values = {
        **_gallery_values(shown, made, replaced),
        "at_random": at_random,
        "images_given": images is not None and "no image" not in others.values(),
    }
    text = _render(study, page_data(study, shown, made), values)
    write_text(path, text)
    return replaced


def _shown(study: Study, gallery: int | None) -> tuple[list[int], int]:
    """The images to show, and how many of them were drawn at random: all, weakest first, or a sample if there are many.

    A page must open at once whatever it is about, so it shows the weakest images and some of the others.
    """
    order = weakest_first(study)
    if gallery is not None or len(order) <= _MOST_IMAGES:
        return order[:gallery].tolist(), 0
    others = np.random.default_rng(0).choice(order[_WEAKEST:], _MOST_IMAGES - _WEAKEST, replace=False)
    return [*order[:_WEAKEST].tolist(), *others.tolist()], len(others)


def _render(study: Study, data: Mapping[str, Any], gallery: Mapping[str, Any]) -> str:
    measures = {family.key: recall_first(family) for family in study.families}
    return render_page(
        "report.html",
        _SCRIPTS,
        data,
        study=study,
        exact=study.exact,
        method_names=METHOD_NAMES,
        start=start_index(study),
        ticks=list(_ticks(study)),
        families=measures,
        has_sweeps=bool(measures.keys() & {"k_prime", "k", "threshold", "n", "alpha"}),
        has_runs=bool(measures.keys() & {"noise", "training", "runs"}),
        provenance=list(_provenance(study)),
        **_noise_values(study),
        **_run_values(study),
        **_score_values(study, measures["methods"]),
        **gallery,
    )


def _noise_values(study: Study) -> dict[str, Any]:
    """The noise and its attacker, in words."""
    noise, radius = study.main.certificates.noise, float(study.grid[start_index(study)])
    return {
        "noise": noise,
        "noise_words": noise.words,
        "copies_words": noise.copy_words,
        "threat": noise.threat_words(radius),
        "any_threat": noise.threat_words(),
        "unit_words": noise.unit_words,
        "measure_words": noise.measure_words,
        "dial_words": noise.dial,
        "look_words": noise.look_words(radius),
    }


def _run_values(study: Study) -> dict[str, Any]:
    """What was certified, and of how much of it nothing is proved."""
    proved, dataset = study.main.certificates, study.main.provenance.get("dataset")
    return {
        "dataset": dataset_words(str(dataset), len(proved.ids) + len(proved.failures)) if dataset else "",
        "mean_draws": mean_draws(study.main),
        "failure_words": failure_words(study.main),
        "label_method": label_method(study.main),
        "confidence": confidence(study.config.alpha),
        "unconfirmed": int(np.isneginf(proved.label_radii.values).sum()),
        "labels": len(proved.labels.values),
    }


def _score_values(study: Study, measures: Sequence[Measure]) -> dict[str, Any]:
    """The scores at the radius shown first, and those without any perturbation."""
    curve, start = study.main_curve(study.method, "mean"), start_index(study)
    clean = {name: both["mean"] for name, both in study.clean_scores.items()}
    fractions = [each for each in measures if each.is_fraction]
    return {
        "curve": curve,
        "headline": {each.key: each.text(float(each.values(curve)[start])) for each in measures},
        "whose": whose_labels(study)["mean"],
        "closing": closing_sentence(study.main, float(study.grid[start])),
        "clean": {
            name: {each.key: each.text(float(getattr(scores, each.key))) for each in fractions}
            for name, scores in clean.items()
        },
        "bare_images": clean["bare"].images if "bare" in clean else 0,
        "expected_wrong": up_to_digits(study.config.alpha * curve.scores.images, 3),
    }


def _gallery_values(shown: Sequence[int], made: Mapping[str, Thumbnail], replaced: int) -> dict[str, Any]:
    """How many images are shown, and why others are not."""
    return {
        "shown": len(shown),
        "illustrated": sum(bool(looks) for *_, looks in made.values()),
        "replaced": replaced,
        "missing": len(shown) - len(made) - replaced,
    }


def _ticks(study: Study) -> Iterator[tuple[int, int]]:
    """The indices on the slider of halves of the typical radius, and how many halves they are."""
    noise = study.main.certificates.noise
    typical = noise.typical_radius
    unit = max(1, round(typical / 2)) if noise.whole else typical / 2
    for index, radius in enumerate(study.grid):
        half = radius / unit
        if abs(half - round(half)) < 1e-9:
            yield index, round(half)


def _provenance(study: Study) -> Iterator[tuple[str, str]]:
    """Every field of the votes' provenance, flat: lists of numbers in full, lists of names by their length."""
    for name, run in {"": study.main, **study.beside}.items():
        fields = {**run.provenance, "mean_draws": mean_draws(run) if run.provenance.get("stops") is not None else None}
        fields |= {"certificates_sha256": run.certificates_hash or None, "votes_sha256": run.votes_hash}
        fields |= {"certified_with": run.certified_with, "certified_by": run.command}
        for field, value in {**fields, **run.source}.items():
            yield from _flat(f"{name}: {field}" if name else field, value)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif isinstance(value, (list, tuple)):
        numbers = all(isinstance(each, (int, float)) for each in value)
        yield name, ", ".join(plain(each) for each in value) if numbers else f"{len(value)} in all"
    elif value is not None:
        yield name, str(value)
