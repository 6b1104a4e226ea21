"""A look at the model and the settings before the first vote: the impossible is refused, the suspicious is said.

What no certificate can be about is refused by `Smoother.probe`, which Python passes as well.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from multiguard.certify.noise import BandAblation, Gaussian
from multiguard.certify.rules import Rule, Threshold, TopK
from multiguard.models.classifier import Classifier
from multiguard.pipeline.draw_limits import largest_radius, nothing_words, rule_words
from multiguard.smooth.engine import noisy_images, score_limit, to_pixels
from multiguard.smooth.probe import model_scores

if TYPE_CHECKING:
    from multiguard.pipeline.vote_job import PreparedVote

_MOST_RETURNED = 5  # the highest scores that count as returned, for recall
_LARGE_SIGMA = 2.0  # pixels lie in [0, 1]
_ALPHA = 0.001


@dataclass(frozen=True)
class Sanity:
    """What the pass found."""

    warnings: tuple[str, ...]  # what looks wrong
    facts: tuple[str, ...]  # what to expect


def look_at(prepared: "PreparedVote") -> Sanity:
    """Look at a few images and noisy copies of them; a model that no certificate can be about raises `ModelError`.

    A model that fails on these images is left to the vote, which says at which image.
    """
    warnings, facts = prepared.run.check(), list[str]()
    if isinstance(noise := prepared.noise, Gaussian) and noise.sigma > _LARGE_SIGMA:
        warnings.append(f"sigma is {noise.sigma:g}, and pixels lie in [0, 1]: for pixels in 0..255 divide it by 255")
    radius = radius_words(prepared)
    (warnings if "nothing" in radius else facts).append(radius)
    _look_at_scores(prepared, warnings, facts)
    return Sanity(tuple(warnings), tuple(facts))


def _look_at_scores(prepared: "PreparedVote", warnings: list[str], facts: list[str]) -> None:
    smoother, samples = prepared.run.smoother, prepared.run.some_images()
    if not samples:
        return
    classifier, settings = smoother.classifier, smoother.settings
    jobs = [smoother.job(sample.image, 1, seed=0, image_id=sample.id) for sample in samples]
    noisy = noisy_images(jobs, settings)
    scores = model_scores(classifier, torch.stack([to_pixels(job.image) for job in jobs]), of_shape=True)
    noisy_scores = model_scores(classifier, noisy)
    if scores is None or noisy_scores is None:
        return
    labels = [one.labels for one in samples]
    limit = None if settings.score_threshold is None else score_limit(classifier, settings.score_threshold)
    if any(labels) and prepared.job.source.labelled:
        recall, under_noise = (_recall(found, labels, limit) for found in (scores, noisy_scores))
        facts.append(f"recall on {len(samples)} images: {recall:.0%} clean, {under_noise:.0%} under noise")
        if limit is None:
            warnings += _recall_warnings(recall, under_noise, sum(map(len, labels)), scores.shape[1])
    facts.append(_time_words(prepared, classifier, noisy))


def radius_words(prepared: "PreparedVote") -> str:
    """The largest radius that the draws of a vote can prove, in words."""
    draws, labels = prepared.job.part.most_draws, len(prepared.classifier.label_names)
    rule: Rule = TopK(1, 1) if prepared.job.part.rule == "top-k" else Threshold(0.5)
    method = "betting" if prepared.job.part.adaptive else None
    radius = largest_radius(draws, rule, labels, prepared.noise, _ALPHA, method)
    if radius < 0:
        return nothing_words(draws, rule, labels, _ALPHA, method)
    if math.isinf(radius):
        return "one label cannot be lost: there are too few others"
    shown = prepared.noise.describe(math.floor(100 * radius) / 100)
    if isinstance(prepared.noise, BandAblation):
        return f"{draws} bands that all agree on one label hold against {shown} ({rule_words(rule)})"
    return f"{draws} draws that all agree on one label prove {shown} at alpha = {_ALPHA:g} ({rule_words(rule)})"


def _recall(scores: Tensor, labels: Sequence[Sequence[int]], limit: float | None) -> float:
    """The fraction of true labels among the highest scores, or among those that reach the limit."""
    if limit is None:
        returned = torch.zeros_like(scores).scatter(1, scores.topk(_returned(scores.shape[1])).indices, 1.0) > 0
    else:
        returned = scores >= limit
    kept = [float(returned[index, list(true)].float().mean()) for index, true in enumerate(labels) if true]
    return sum(kept) / len(kept)


def _recall_warnings(clean: float, noisy: float, count: int, num_labels: int) -> Iterator[str]:
    """What recall on so many true labels says of the order of labels and of the noise."""
    chance = _returned(num_labels) / num_labels
    if clean < chance + 2 * math.sqrt(chance * (1 - chance) / count):
        yield (
            f"clean recall is {clean:.0%}, hardly better than chance ({chance:.0%}): check the order of --labels, "
            "--mean, --std and --size"
        )
    elif noisy - chance < (clean - chance) / 2:
        yield f"recall falls from {clean:.0%} to {noisy:.0%} under noise: train under noise, or take less of it"


def _returned(num_labels: int) -> int:
    return max(1, min(_MOST_RETURNED, num_labels // 2))


def _time_words(prepared: "PreparedVote", classifier: Classifier, noisy: Tensor) -> str:
    """How long the vote will take, from one more batch."""
    if noisy.is_cuda:
        torch.cuda.synchronize()
    started = time.perf_counter()
    model_scores(classifier, noisy)
    seconds = (time.perf_counter() - started) / len(noisy)
    part, images = prepared.job.part, len(prepared.images)
    draws = part.most_draws + part.pilots(prepared.job.source.labelled)
    total = seconds * draws * images
    units = {"hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
    unit = next((name for name, length in units.items() if total > length), "seconds")
    most = " at most" if part.adaptive else ""
    return f"{images} images x {draws} draws take about {total / units[unit]:.1f} {unit}{most} on {noisy.device.type}"
