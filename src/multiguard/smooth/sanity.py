"""A look at the model and the settings before the first vote: the impossible is refused, the suspicious is said.

What no certificate can be about is refused by `Smoother.probe`, which Python passes as well.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from multiguard.certify.rules import Rule, Threshold, TopK
from multiguard.certify.stopping import largest_radius, nothing_words
from multiguard.data.in_memory import MemoryDataset
from multiguard.data.sample import Dataset
from multiguard.models.classifier import Classifier
from multiguard.smooth.config import VoteConfig
from multiguard.smooth.dataset import VoteRun
from multiguard.smooth.engine import noisy_images, score_limit
from multiguard.smooth.inputs import to_pixels
from multiguard.smooth.probe import model_scores

_MOST_RETURNED = 5  # the highest scores that count as returned, for recall
_LARGE_RATIO = 10  # of the standard deviations of two columns of a table
_MOST_ROWS, _FEWEST_ROWS = 256, 16  # of a table that its scales are taken from
_ALPHA = 0.001


def expectations(run: VoteRun, config: VoteConfig) -> tuple[list[str], list[str]]:
    """What looks wrong with a run, and what to expect of it, from a few images and noisy copies of them.

    A model that no certificate can be about raises `ModelError`. A model that fails on these images is left to the
    vote, which says at which image.
    """
    warnings, facts = run.check(), list[str]()
    radius = radius_words(run, config)
    (warnings if "nothing" in radius else facts).append(radius)
    if (look := _look(run)) is not None:
        if run.provenance.labelled and (recall := _recalls(look)) is not None:
            facts.append(f"recall on {len(look.labels)} images: {recall[0]:.0%} clean, {recall[1]:.0%} under noise")
            warnings += _recall_warnings(look, *recall)
        facts.append(_time_words(run, config, look))
    return warnings, facts


def data_warnings(run: VoteRun) -> list[str]:
    """What looks wrong with a model and its data in Python, before the first vote; it raises as `expectations` does."""
    warnings = [*run.check(), *_scale_warnings(run, run.dataset)]
    if run.provenance.labelled and (look := _look(run)) is not None and (recall := _recalls(look)) is not None:
        warnings += _recall_warnings(look, *recall)
    return warnings


@dataclass(frozen=True, eq=False)
class _Look:
    """A few images and one noisy copy of each, with their scores."""

    classifier: Classifier
    labels: list[tuple[int, ...]]
    limit: float | None  # the score from which on a label is returned; None for ranked labels
    noisy: Tensor
    scores: Tensor
    noisy_scores: Tensor


def _look(run: VoteRun) -> _Look | None:
    """A look at the model; None where it fails, or there is no image."""
    smoother, samples = run.smoother, run.some_images()
    if not samples:
        return None
    classifier, settings = smoother.classifier, smoother.settings
    jobs = [smoother.job(sample.image, 1, noise_seed=0, image_id=sample.id) for sample in samples]
    noisy = noisy_images(jobs, settings)
    scores = model_scores(classifier, torch.stack([to_pixels(job.image) for job in jobs]), of_shape=True)
    noisy_scores = model_scores(classifier, noisy)
    if scores is None or noisy_scores is None:
        return None
    limit = None if settings.score_threshold is None else score_limit(classifier, settings.score_threshold)
    return _Look(classifier, [one.labels for one in samples], limit, noisy, scores, noisy_scores)


def _scale_warnings(run: VoteRun, data: Dataset) -> Iterator[str]:
    """What the scales of the columns of a table say: the noise is the same for all of them."""
    in_memory = isinstance(data, MemoryDataset) and data.labels is not None
    rows = data.some_inputs(_MOST_ROWS) if in_memory else [one.image for one in run.some_images()]  # type: ignore[attr-defined]
    if len(rows) < _FEWEST_ROWS or any(row.ndim != 1 or len(row) != len(rows[0]) for row in rows):
        return
    spread = np.std(np.stack(rows), axis=0, dtype=np.float64)
    names = run.smoother.classifier.feature_names or [f"column {index}" for index in range(len(spread))]
    used = np.flatnonzero(spread)  # a constant column has no scale
    if len(used) == 0 or spread.max() <= _LARGE_RATIO * spread[used].min():
        return
    small, large = used[spread[used].argmin()], spread.argmax()
    yield (
        f"columns differ in scale, and the noise is the same for all: the standard deviation of {names[large]} is "
        f"{spread[large]:.2g}, of {names[small]} {spread[small]:.2g}. Bring all columns to one scale before the noise, "
        "outside of the model"
    )


def radius_words(run: VoteRun, config: VoteConfig) -> str:
    """The largest radius that the draws of a vote can prove, in words."""
    draws, noise, labels = config.most_draws, run.smoother.noise, len(run.smoother.classifier.label_names)
    rule: Rule = TopK(1, 1) if config.rule == "top-k" else Threshold(0.5)
    method = "betting" if config.adaptive else None
    radius = largest_radius(draws, rule, labels, noise, _ALPHA, method)
    if radius < 0:
        return nothing_words(draws, rule, labels, _ALPHA, method)
    if math.isinf(radius):
        return "one label cannot be lost: there are too few others"
    shown = noise.describe(math.floor(100 * radius) / 100)
    if noise.enumerated:
        return f"{draws} {noise.draw_words} that all agree on one label hold against {shown} ({rule.text})"
    return f"{draws} draws that all agree on one label prove {shown} at alpha = {_ALPHA:g} ({rule.text})"


def _recalls(look: _Look) -> tuple[float, float] | None:
    """Recall without and with noise; None without labels."""
    if not any(look.labels):
        return None
    return _recall(look.scores, look.labels, look.limit), _recall(look.noisy_scores, look.labels, look.limit)


def _recall(scores: Tensor, labels: Sequence[Sequence[int]], limit: float | None) -> float:
    """The fraction of true labels among the highest scores, or among those that reach the limit."""
    if limit is None:
        returned = torch.zeros_like(scores).scatter(1, scores.topk(_returned(scores.shape[1])).indices, 1.0) > 0
    else:
        returned = scores >= limit
    kept = [float(returned[index, list(true)].float().mean()) for index, true in enumerate(labels) if true]
    return sum(kept) / len(kept)


def _recall_warnings(look: _Look, clean: float, noisy: float) -> Iterator[str]:
    """What recall of ranked labels says of their order and of the noise, where the images are enough to tell."""
    count = look.scores.shape[1]
    returned = _returned(count)
    sizes = np.array([len(true) for true in look.labels if true])
    chance, best = returned / count, float(np.mean(np.minimum(returned, sizes) / sizes))
    variance = returned * (sizes / count) * (1 - sizes / count) * (count - returned) / max(1, count - 1) / sizes**2
    deviation = math.sqrt(variance.sum()) / len(sizes)  # of the recall of a random choice
    if look.limit is not None or best - chance < 3 * deviation:
        return
    if clean < chance + 2 * deviation:
        yield (
            f"clean recall is {clean:.0%}, hardly better than chance ({chance:.0%}): check the order of --labels "
            "(labels=[...]), --mean, --std and --size"
        )
    elif noisy - chance < (clean - chance) / 2:
        yield f"recall falls from {clean:.0%} to {noisy:.0%} under noise: train under noise, or take less of it"


def _returned(num_labels: int) -> int:
    return max(1, min(_MOST_RETURNED, num_labels // 2))


def _time_words(run: VoteRun, config: VoteConfig, look: _Look) -> str:
    """How long the vote will take, from one more batch."""
    noisy = look.noisy
    if noisy.is_cuda:
        torch.cuda.synchronize()
    started = time.perf_counter()
    model_scores(look.classifier, noisy)
    seconds = (time.perf_counter() - started) / len(noisy)
    images = len(run.provenance.image_ids)
    draws = config.most_draws + run.provenance.pilot_draws
    total = seconds * draws * images
    units = {"hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
    unit = next((name for name, length in units.items() if total > length), "seconds")
    most = " at most" if config.adaptive else ""
    return f"{images} images x {draws} draws take about {total / units[unit]:.1f} {unit}{most} on {noisy.device.type}"
