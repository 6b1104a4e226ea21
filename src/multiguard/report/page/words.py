"""What the page says of a study before any script has run."""

import re
from typing import Any

import numpy as np

from multiguard.certify import TopK
from multiguard.report.draws import stops
from multiguard.report.measure import study_measures
from multiguard.report.rounding import plain
from multiguard.report.study import Study
from multiguard.report.words import failed_words, mean_draws

_SAMPLE = re.compile(r"(?P<name>[^?\[\]]+)(?:\?seed=(?P<made>\d+))?\[images=(?P<images>\d+),seed=(?P<seed>\d+)\]")


def images_words(dataset: str, total: int) -> str:
    """Which images these are: a random part of a dataset in words, any other by the dataset's own name."""
    sample = _SAMPLE.fullmatch(dataset)
    if sample is None or sample["images"] != str(total) or sample["made"] not in (None, "0"):
        return f"{total} of {dataset}"
    return f"{sample['name']}, {total} random images, seed {sample['seed']}"


_MOST_LISTED = 200


def failed_facts(study: Study) -> dict[str, Any]:
    """How many images could not be voted on, the first of them with their reasons, and how many more there are."""
    failures = study.main.certificates.failures
    return {
        "failed": len(failures),
        "failed_words": failed_words(study.main),
        "failures": [(failure.image_id, failure.reason) for failure in failures[:_MOST_LISTED]],
        "more_failures": max(0, len(failures) - _MOST_LISTED),
    }


def whose(study: Study) -> dict[str, str]:
    """Of which labels the headline tells the share, in each averaging."""
    if study.labelled:
        return {"mean": "of an image\u2019s true labels, on average,", "pooled": "of all true labels together"}
    return {"mean": "of the labels predicted for an image, on average,", "pooled": "of all predicted labels together"}


def rule_words(study: Study) -> dict[str, Any]:
    """What depends on the rule: what is returned, and among what labels stay."""
    rule, labels = study.config.rule, len(study.main.certificates.label_names)
    if isinstance(rule, TopK):
        returns = f"k′ = {rule.k_prime} labels a draw, k = {rule.k} after smoothing, of {labels}"
        return {"threshold": None, "k": rule.k, "returns": returns, "among": f"among the {rule.k} returned"}
    t = plain(rule.t)
    returns = f"every label that at least a share t = {t} of noisy copies carry, of {labels}{_passing(study)}"
    return {"threshold": t, "k": None, "returns": returns, "among": "among those returned"}


def _passing(study: Study) -> str:
    score = study.main.provenance.get("score_threshold")
    return "" if score is None else f"; a copy carries those of score {plain(score)} or more"


def label_words(study: Study) -> dict[str, Any]:
    """What depends on where the labels come from, and how many of them are unconfirmed."""
    own = study.main.certificates.label_radii
    return {
        "labelled": study.labelled,
        "own": "true" if study.labelled else "predicted",
        "other": "wrong" if study.labelled else "other",
        "whose": whose(study)["mean"],
        "pilot_draws": study.main.provenance.get("pilot_draws"),
        "chosen": sum(len(radii) for radii in own),
        "unconfirmed": sum(int(np.isneginf(radii).sum()) for radii in own),
    }


def draws_facts(study: Study) -> dict[str, Any]:
    """How many draws the images took."""
    most = max((stop.images for stop in stops(study.main)), default=1) or 1
    rows = [{"draws": stop.draws, "images": stop.images, "share": stop.images / most} for stop in stops(study.main)]
    stopping = study.main.provenance.get("stopping") or {}
    return {
        "draws": study.config.draws,
        "mean_draws": mean_draws(study.main),
        "stops": rows,
        "stopping_radii": " and ".join(plain(radius) for radius in stopping.get("radii", ())),
    }


def headline(study: Study, place: int) -> dict[str, str]:
    """Every measure of the main run at one place of the grid, as it is shown."""
    curve = study.main_curve(study.method, "mean")
    return {each.key: each.text(float(each.values(curve)[place])) for each in study_measures(study)}
