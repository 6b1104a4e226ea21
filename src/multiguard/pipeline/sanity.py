"""A look at the model and the settings before the first vote: the impossible is refused, the suspicious is said.

The probe catches models that are no fixed function of one image, of which certificates would be false: a model in train
mode, one that keeps state or draws randomness, and one whose answer depends on the other images of its batch.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from multiguard.certify.noise import BandAblation, Gaussian, Noise
from multiguard.certify.rules import Rule, Threshold, TopK
from multiguard.data.sample import Sample
from multiguard.errors import ImageError, ModelError
from multiguard.models.classifier import Classifier, state_hash
from multiguard.pipeline.draw_limits import largest_radius, nothing_words, rule_words
from multiguard.smooth.batches import image_tensor
from multiguard.smooth.engine import check_scores, score_limit, to_pixels
from multiguard.train.augmentation import add_noise

if TYPE_CHECKING:
    from multiguard.pipeline.vote_job import PreparedVote

_IMAGES = 16  # that are looked at
_ROWS = 8  # of a batch of the probe
_TOLERANCE = 0.01  # of the spread of all scores: batches of other sizes differ in the last digits only
_MOST_RETURNED = 5  # the highest scores that count as returned, for recall
_LARGE_SIGMA = 2.0  # pixels lie in [0, 1]
_LARGE_STATISTIC = 1.5  # of a mean or a standard deviation of pixels in [0, 1]
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
    classifier = prepared.classifier.eval()
    prepared.run()
    warnings, facts = list(_settings_warnings(classifier, prepared.noise)), list[str]()
    radius = radius_words(prepared)
    (warnings if "nothing" in radius else facts).append(radius)
    if images := list(_images(prepared)):
        _look_at_scores(prepared, images, warnings, facts)
    return Sanity(tuple(warnings), tuple(facts))


def _look_at_scores(prepared: "PreparedVote", images: Sequence[Sample], warnings: list[str], facts: list[str]) -> None:
    classifier, device = prepared.classifier, prepared.smoother().settings.device
    classifier.to(device)
    pixels = [to_pixels(image_tensor(one.id, one.image, classifier.image_size)) for one in images]
    clean = torch.stack(pixels).to(device)
    noisy = _noisy(clean, prepared.noise)
    scores, noisy_scores = _scores(classifier, clean), _scores(classifier, noisy)
    if scores is None or noisy_scores is None:
        return
    _probe(classifier, _noisy(clean[torch.arange(_ROWS) % len(clean)], prepared.noise))
    limit = None if prepared.job.part.rule == "top-k" else score_limit(classifier, prepared.threshold)
    _check_kind(classifier, scores, limit)
    warnings += _score_warnings(classifier, scores)
    labels = [one.labels for one in images]
    if any(labels) and prepared.job.source.labelled:
        recall, under_noise = (_recall(found, labels, limit) for found in (scores, noisy_scores))
        facts.append(f"recall on {len(images)} images: {recall:.0%} clean, {under_noise:.0%} under noise")
        if limit is None:
            warnings += _recall_warnings(recall, under_noise, sum(map(len, labels)), scores.shape[1])
    facts.append(_time_words(prepared, classifier, noisy))


def _noisy(images: Tensor, noise: Noise) -> Tensor:
    return add_noise(images, noise, torch.Generator(images.device).manual_seed(0))


def radius_words(prepared: "PreparedVote") -> str:
    """The largest radius that the draws of a vote can prove, in words."""
    draws, labels = prepared.job.part.most_draws, len(prepared.classifier.label_names)
    rule: Rule = TopK(1, 1) if prepared.job.part.rule == "top-k" else Threshold(0.5)
    radius = largest_radius(draws, rule, labels, prepared.noise, _ALPHA)
    if radius < 0:
        return nothing_words(draws, rule, labels, _ALPHA)
    if math.isinf(radius):
        return "one label cannot be lost: there are too few others"
    shown = prepared.noise.describe(math.floor(100 * radius) / 100)
    if isinstance(prepared.noise, BandAblation):
        return f"{draws} bands that all agree on one label hold against {shown} ({rule_words(rule)})"
    return f"{draws} draws that all agree on one label prove {shown} at alpha = {_ALPHA:g} ({rule_words(rule)})"


def _images(prepared: "PreparedVote") -> Iterator[Sample]:
    """The first images that can be read, all of one shape."""
    shape = None
    for index in range(min(_IMAGES, len(prepared.images))):
        try:
            sample = prepared.images[index]
        except ImageError:
            continue
        shape = shape or sample.image.shape
        if sample.image.shape == shape:
            yield sample


@torch.no_grad()
def _scores(classifier: Classifier, batch: Tensor) -> Tensor | None:
    """The scores of a batch; None where the model fails, which the vote reports."""
    try:
        scores = classifier(batch)
        check_scores(scores, len(batch), len(classifier.label_names))
    except ModelError:
        raise
    except Exception:  # any error of the user's model
        return None
    return scores.float().cpu() if bool(torch.isfinite(scores).all()) else None


def _probe(classifier: Classifier, batch: Tensor) -> None:
    """Raises unless the model is a fixed function of each image alone."""
    training = [name for name, module in classifier.named_modules() if module.training]
    if training:
        raise ModelError(f"{classifier.name}: {training[0] or 'it'} is in train mode after eval(); it must obey eval()")
    before = state_hash(classifier)
    answers = [_scores(classifier, batch) for _ in range(3)]
    halves = [_scores(classifier, half) for half in batch.chunk(2)]
    order = torch.arange(len(batch)).flip(0)
    flipped = _scores(classifier, batch[order])
    found = [one for one in (*answers, *halves, flipped) if one is not None]
    if len(found) < 6 or flipped is None:
        raise ModelError(f"{classifier.name} fails on some batches of images that it takes in others")
    spread = float(found[0].max() - found[0].min()) + 1e-6

    def differ(one: Tensor, other: Tensor) -> bool:
        return float((one - other).abs().max()) > _TOLERANCE * spread

    if any(differ(found[0], again) for again in found[1:3]):
        raise ModelError(
            f"{classifier.name} answers the same batch differently each time: it is in train mode, keeps state or "
            "draws randomness (dropout?); a certificate needs a fixed function"
        )
    if state_hash(classifier) != before:
        raise ModelError(f"{classifier.name} changes its own parameters or buffers when it is called; it must not")
    if differ(found[0], torch.cat(found[3:5])) or differ(found[0][order], flipped):
        raise ModelError(
            f"{classifier.name}: its answer for an image depends on the other images of the batch (batch statistics?); "
            "a certificate needs a function of one image"
        )


def _check_kind(classifier: Classifier, scores: Tensor, limit: float | None) -> None:
    """Raises if the scores cannot be of the declared kind."""
    low, high = float(scores.min()), float(scores.max())
    if classifier.output == "probabilities" and not (low >= -1e-4 and high <= 1 + 1e-4):
        raise ModelError(
            f"{classifier.name}: scores from {low:.3g} to {high:.3g} are no probabilities; if they are logits, say "
            "--output logits"
        )
    if classifier.output == "logits" and limit is not None and low >= 0 and high <= 1:
        raise ModelError(
            f"{classifier.name}: all scores lie in [0, 1], as probabilities do, and are declared logits, so that the "
            "threshold would return every label; --output probabilities"
        )


def _settings_warnings(classifier: Classifier, noise: Noise) -> Iterator[str]:
    if isinstance(noise, Gaussian) and noise.sigma > _LARGE_SIGMA:
        yield f"sigma is {noise.sigma:g}, and pixels lie in [0, 1]: for pixels in 0..255 divide it by 255"
    for name in ("mean", "std"):
        values = getattr(classifier, name)
        if values is not None and float(values.abs().max()) > _LARGE_STATISTIC:
            yield f"{name} reaches {float(values.abs().max()):g}, and pixels lie in [0, 1]: divide it by 255"


def _score_warnings(classifier: Classifier, scores: Tensor) -> Iterator[str]:
    low, high = float(scores.min()), float(scores.max())
    if classifier.output == "logits" and low >= 0 and high <= 1:
        summed = " and sum to 1 (softmax?)" if bool(((scores.sum(1) - 1).abs() < 1e-3).all()) else ""
        yield f"scores are declared logits, but all lie in [0, 1]{summed}, as probabilities do; --output probabilities"
    if len(scores) > 1 and high > low and float(scores.std(0).max()) < _TOLERANCE * (high - low):
        yield "scores hardly depend on the image: does the model expect pixels in 0..255, or divide by 255 again?"


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
    _scores(classifier, noisy)
    seconds = (time.perf_counter() - started) / len(noisy)
    part, images = prepared.job.part, len(prepared.images)
    draws = part.most_draws + part.pilots(prepared.job.source.labelled)
    total = seconds * draws * images
    units = {"hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
    unit = next((name for name, length in units.items() if total > length), "seconds")
    most = " at most" if part.adaptive else ""
    return f"{images} images x {draws} draws take about {total / units[unit]:.1f} {unit}{most} on {noisy.device.type}"
