"""Whether a model is a fixed function of one input, and its scores and inputs are what they are declared to be.

Certificates of any other model would be false: one in train mode, one that keeps state or draws randomness, and one
whose answer for an image depends on the other images of its batch. Every way to votes passes here first.
"""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiguard.certify.noise import Noise
from multiguard.certify.radii import largest_radius, nothing_words
from multiguard.certify.rules import Method, Rule, Threshold, TopK
from multiguard.data.in_memory import MemoryDataset
from multiguard.errors import InvalidInputError, ModelError
from multiguard.models.classifier import Classifier
from multiguard.smooth.config import Settings, score_limit
from multiguard.smooth.engine import Engine, to_pixels
from multiguard.smooth.stream import Batch, Job, Segment

if TYPE_CHECKING:
    from multiguard.smooth.dataset import VoteRun

Scores = NDArray[np.float32]  # or a batch of inputs
_ROWS = 8  # of a batch of the probe, where there are as many images
_FEWEST_ROWS = 2
_ENOUGH_IMAGES = 4  # weak logits of a single image may all lie in [0, 1]; the logits of several do not
_AGAIN = 0.001  # of the spread of all scores: the same batch differs by the order of sums at most
_TOLERANCE = 0.01  # of the spread of all scores: batches of other sizes differ in the last digits only
_LARGE_SIGMA = 2.0  # pixels lie in [0, 1]
_LARGE_STATISTIC = 1.5  # of a mean or a standard deviation of pixels in [0, 1]
_IMAGE_DIMENSIONS, _CHANNELS = 3, (1, 3)
_BYTE = 255


def probe(engine: Engine, classifier: Classifier, settings: Settings, jobs: Sequence[Job], rows: int) -> list[str]:
    """What looks wrong with a model, seen on the images of these jobs, all of one shape.

    Batches of the probe are small, except for one of as many `rows` as the batches of the run have.
    A model that no certificate can be about raises `ModelError`. One that fails on these images is left to the vote,
    which says at which image it fails.
    """
    _check_mode(classifier)
    copies = -(-_FEWEST_ROWS // len(jobs))  # in train mode some models fail on a single row, and must not pass for that
    scores = model_scores(engine, np.stack([to_pixels(job.image) for job in jobs] * copies))
    noisy = engine.noisy(Batch(tuple(Segment(job, 0, copies) for job in jobs[:_ROWS])))
    under_noise = model_scores(engine, noisy)
    if scores is None or under_noise is None:  # the vote says at which image
        return []
    _check_function(engine, classifier, noisy, under_noise)
    _check_full_batch(engine, classifier, noisy, under_noise, rows)
    scores = scores[: len(jobs)]
    _check_kind(classifier, scores, under_noise, settings)
    return [*_statistic_warnings(classifier), *_score_warnings(classifier, scores, under_noise)]


def model_scores(engine: Engine, batch: Scores, *, of_shape: bool = False) -> Scores | None:
    """The scores of a batch, as float32; None where the model fails, which the vote reports.

    With `of_shape`, scores of another number or kind than one per label raise `ModelError`.
    """
    try:
        scores = engine.scores(batch.copy())  # some models work in place
    except Exception as error:  # any error of the user's model
        if of_shape and isinstance(error, ModelError):
            raise
        return None
    return scores.astype(np.float32) if np.isfinite(scores).all() else None


def _check_mode(classifier: Classifier) -> None:
    if training := classifier.eval().parts_in_training():
        raise ModelError(f"{classifier.name}: {training[0] or 'it'} is in train mode after eval(); it must obey eval()")


def _check_function(engine: Engine, classifier: Classifier, batch: Scores, first: Scores) -> None:
    """Raises unless the model is a fixed function of each row of the batch alone; `first` are its scores."""
    before, order = classifier.state_checksum(), np.arange(len(batch))[::-1]
    again = model_scores(engine, batch)
    # Other neighbours, other places and other sizes of batches.
    parts = [model_scores(engine, batch[part]) for part in (order[:1], order[1:])]
    if again is None or parts[0] is None or parts[1] is None:
        raise ModelError(
            f"{classifier.name} fails on some batches of images that it takes in others (in train mode?); a "
            "certificate needs a function of one image"
        )
    spread = float(first.max() - first.min()) + 1e-6
    if float(np.abs(first - again).max()) > _AGAIN * spread:
        raise ModelError(
            f"{classifier.name} answers the same batch differently each time: it is in train mode, keeps state or "
            "draws randomness (dropout?); a certificate needs a fixed function"
        )
    if classifier.state_checksum() != before:
        raise ModelError(f"{classifier.name} changes its own parameters or buffers when it is called; it must not")
    _check_alike(classifier, first[order], np.concatenate([parts[0], parts[1]]))


def _check_full_batch(engine: Engine, classifier: Classifier, batch: Scores, first: Scores, rows: int) -> None:
    """Raises unless a batch of this size, these rows again and again, has the scores of the few; halved if it fails."""
    while rows > len(batch):
        places = np.arange(rows) % len(batch)
        scores = model_scores(engine, batch[places])
        if scores is not None:
            return _check_alike(classifier, first[places], scores)
        rows //= 2  # as the run does where memory is short; any other failure is left to the vote
    return None


def _check_alike(classifier: Classifier, scores: Scores, others: Scores) -> None:
    """Raises unless the scores of the same images in other batches differ in the last digits only."""
    if float(np.abs(scores - others).max()) > _TOLERANCE * (float(scores.max() - scores.min()) + 1e-6):
        raise ModelError(
            f"{classifier.name}: its answer for an image depends on the other images of the batch (batch statistics?); "
            "a certificate needs a function of one image"
        )


def _check_kind(classifier: Classifier, scores: Scores, under_noise: Scores, settings: Settings) -> None:
    """Raises if the scores cannot be of the declared kind; that of logits matters to a threshold only."""
    low, high = float(scores.min()), float(scores.max())
    if classifier.output == "probabilities" and not (low >= -1e-4 and high <= 1 + 1e-4):
        raise ModelError(
            f"{classifier.name}: scores from {low:.3g} to {high:.3g} are no probabilities; if they are logits, say "
            "--output logits (output='logits')"
        )
    sure = len(scores) >= _ENOUGH_IMAGES or _sum_to_one(scores)
    if settings.score_threshold is not None and sure and _look_like_probabilities(classifier, scores, under_noise):
        raise ModelError(
            f"{classifier.name}: all scores lie in [0, 1], as probabilities do, and are declared logits, so that the "
            "threshold would return every label, or none; --output probabilities (output='probabilities')"
        )


def _look_like_probabilities(classifier: Classifier, *scores: Scores) -> bool:
    """Whether scores that are declared logits all lie in [0, 1], with and without noise."""
    inside = all(float(each.min()) >= 0 and float(each.max()) <= 1 for each in scores)
    return inside and classifier.output == "logits"


def _sum_to_one(scores: Scores) -> bool:
    return bool((np.abs(scores.sum(1) - 1) < 1e-3).all())


def check_unit(image: NDArray[Any], classifier: Classifier, noise: Noise) -> list[str]:
    """Refuses an image whose pixels do not lie in [0, 1], and warns of what only looks like one, and of its noise."""
    looks = image.ndim == _IMAGE_DIMENSIONS and len(image) in _CHANNELS
    if not (looks or classifier.image_size or image.dtype == np.uint8):
        return []
    low, high = float(image.min()), float(image.max())
    if image.dtype == np.uint8 or (low >= 0 and high <= 1):
        if noise.sigma is not None and noise.sigma > _LARGE_SIGMA:
            return [f"sigma is {noise.sigma:g}, and pixels lie in [0, 1]: for pixels in 0..255 divide it by 255"]
        return []
    values = f"an image holds values from {low:g} to {high:g}"
    if classifier.image_size or (low >= 0 and high <= _BYTE and bool((image == image.round()).all())):
        raise InvalidInputError(
            f"{values}; floating-point pixels must lie in [0, 1], the unit of sigma and of all radii: give uint8, or "
            "divide by 255, and leave normalisation to the classifier"
        )
    return [
        f"{values}: sigma and all radii are in this unit. For radii in pixels, give images in [0, 1] and normalise "
        "inside the model."
    ]


def _statistic_warnings(classifier: Classifier) -> Iterator[str]:
    for name in ("mean", "std"):
        values = getattr(classifier, name)
        largest = 0.0 if values is None else float(abs(values).max())
        if largest > _LARGE_STATISTIC:
            yield f"{name} reaches {largest:g}, and pixels lie in [0, 1]: divide it by 255"


def _score_warnings(classifier: Classifier, scores: Scores, under_noise: Scores) -> Iterator[str]:
    low, high = float(scores.min()), float(scores.max())
    if _look_like_probabilities(classifier, scores, under_noise):
        summed = " and sum to 1 (softmax?)" if _sum_to_one(scores) else ""
        yield f"scores are declared logits, but all lie in [0, 1]{summed}, as probabilities do; --output probabilities"
    if len(scores) > 1 and high > low and float(scores.std(0, ddof=1).max()) < _TOLERANCE * (high - low):
        yield "scores hardly depend on the image: does the model expect pixels in 0..255, or divide by 255 again?"


_MOST_RETURNED = 5  # the highest scores that count as returned, for recall
_LARGE_RATIO = 10  # of the standard deviations of two columns of a table
_MOST_ROWS, _ENOUGH_ROWS = 256, 16  # of a table that its scales are taken from
_ALPHA = 0.001


def expectations(
    run: "VoteRun", rule: Rule | None = None, alpha: float = _ALPHA, methods: Sequence[Method | None] = ()
) -> tuple[list[str], list[str]]:
    """What looks wrong with a run, and what to expect of it, from a few images and noisy copies of them.

    A model that no certificate can be about raises `ModelError`. A model that fails on these images is left to the
    vote, which says at which image. Without a rule, it is one label that all draws agree on.
    """
    warnings, facts = [*run.check(), *_scale_warnings(run)], list[str]()
    draws, noise, labels = run.provenance.draws, run.smoother.noise, len(run.smoother.classifier.label_names)
    rule = rule or (TopK(1, 1) if run.provenance.rule == "top-k" else Threshold(0.5))
    methods = methods or ["betting" if run.provenance.stops else None]
    radius = max(largest_radius(draws, rule, labels, noise, alpha, method) for method in methods)
    if radius < 0:
        warnings.append(nothing_words(draws, rule, labels, alpha, methods[0]))
    else:
        facts.append(_radius_words(radius, draws, rule, noise, alpha))
    if (scores := _scores(run)) is not None and run.provenance.labelled:
        words, doubts = _recalls(run, *scores)
        facts, warnings = facts + words, warnings + doubts
    return warnings, facts


def _scores(run: "VoteRun") -> tuple[Scores, Scores] | None:
    """The scores of a few images, and of a noisy copy of each; None where the model fails."""
    smoother = run.smoother
    jobs = [smoother.job(sample.image, 1, noise_seed=0, image_id=sample.id) for sample in run.some_images()]
    if not jobs:
        return None
    clean = model_scores(smoother.engine, np.stack([to_pixels(job.image) for job in jobs]), of_shape=True)
    noisy = model_scores(smoother.engine, smoother.engine.noisy(Batch(tuple(Segment(job, 0, 1) for job in jobs))))
    return None if clean is None or noisy is None else (clean, noisy)


def _scale_warnings(run: "VoteRun") -> Iterator[str]:
    """What the scales of the columns of a table say: the noise is the same for all of them."""
    data = run.dataset
    in_memory = isinstance(data, MemoryDataset) and data.labels is not None
    rows = data.some_inputs(_MOST_ROWS) if in_memory else [one.image for one in run.some_images()]  # type: ignore[attr-defined]
    if len(rows) < _ENOUGH_ROWS or any(row.ndim != 1 or len(row) != len(rows[0]) for row in rows):
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


def _radius_words(radius: float, draws: int, rule: Rule, noise: Noise, alpha: float) -> str:
    """The largest radius that the draws of a vote can prove, in words."""
    if math.isinf(radius):
        return "one label cannot be lost: there are too few others"
    shown = noise.describe(math.floor(100 * radius) / 100)
    if noise.enumerated:
        return f"{draws} {noise.draw_words} that all agree on one label hold against {shown} ({rule.text})"
    return f"{draws} draws that all agree on one label prove {shown} at alpha = {alpha:g} ({rule.text})"


def _recalls(run: "VoteRun", scores: Scores, noisy_scores: Scores) -> tuple[list[str], list[str]]:
    """Recall without and with noise in words, and what looks wrong with it; nothing without labels."""
    labels, threshold = [sample.labels for sample in run.some_images()], run.smoother.settings.score_threshold
    if not any(labels):
        return [], []
    limit = None if threshold is None else score_limit(run.smoother.classifier, threshold)
    clean, noisy = (_recall(each, labels, limit) for each in (scores, noisy_scores))
    words = f"recall on {len(labels)} images: {clean:.0%} clean, {noisy:.0%} under noise"
    return [words], [] if limit is not None else [*_recall_warnings(labels, scores.shape[1], clean, noisy)]


def _recall(scores: Scores, labels: Sequence[Sequence[int]], limit: float | None) -> float:
    """The fraction of true labels among the highest scores, or among those that reach the limit."""
    top = TopK(_returned(scores.shape[1]), 1)
    returned = top.returned_by(scores) if limit is None else scores >= limit
    kept = [float(returned[index, list(true)].mean()) for index, true in enumerate(labels) if true]
    return sum(kept) / len(kept)


def _recall_warnings(labels: Sequence[Sequence[int]], count: int, clean: float, noisy: float) -> Iterator[str]:
    """What recall of ranked labels says of their order and of the noise, where the images are enough to tell."""
    returned = _returned(count)
    sizes = np.array([len(true) for true in labels if true])
    chance, best = returned / count, float(np.mean(np.minimum(returned, sizes) / sizes))
    variance = returned * (sizes / count) * (1 - sizes / count) * (count - returned) / max(1, count - 1) / sizes**2
    deviation = math.sqrt(variance.sum()) / len(sizes)  # of the recall of a random choice
    if best - chance < 3 * deviation:
        return
    if clean < chance + 2 * deviation:
        yield (
            f"clean recall is {clean:.0%}, hardly better than chance ({chance:.0%}): check the order of --labels "
            "(labels=[...]), mean, std and size"
        )
    elif noisy - chance < (clean - chance) / 2:
        yield f"recall falls from {clean:.0%} to {noisy:.0%} under noise: train under noise, or take less of it"


def _returned(num_labels: int) -> int:
    return max(1, min(_MOST_RETURNED, num_labels // 2))
