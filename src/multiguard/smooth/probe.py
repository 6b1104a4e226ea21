"""Whether a model is a fixed function of one input, and its scores and inputs are what they are declared to be.

Certificates of any other model would be false: one in train mode, one that keeps state or draws randomness, and one
whose answer for an image depends on the other images of its batch. Every way to votes passes here first.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from multiguard.certify.noise import Noise
from multiguard.errors import InvalidInputError, ModelError
from multiguard.models.classifier import Classifier, state_checksum
from multiguard.smooth.engine import check_scores, noisy_images
from multiguard.smooth.inputs import to_pixels
from multiguard.smooth.schedule import Job
from multiguard.smooth.settings import Settings

_ROWS = 8  # of a batch of the probe, where there are as many images
_FEWEST_ROWS = 2
_ENOUGH_IMAGES = 4  # weak logits of a single image may all lie in [0, 1]; those of several do not
_AGAIN = 0.001  # of the spread of all scores: the same batch differs by the order of sums at most
_TOLERANCE = 0.01  # of the spread of all scores: batches of other sizes differ in the last digits only
_LARGE_SIGMA = 2.0  # pixels lie in [0, 1]
_LARGE_STATISTIC = 1.5  # of a mean or a standard deviation of pixels in [0, 1]
_IMAGE_DIMENSIONS, _CHANNELS = 3, (1, 3)
_BYTE = 255


def probe(classifier: Classifier, settings: Settings, jobs: Sequence[Job], rows: int) -> list[str]:
    """What looks wrong with a model, seen on the images of these jobs, all of one shape.

    Batches of the probe are small, except for one of as many `rows` as the batches of the run have.
    A model that no certificate can be about raises `ModelError`. One that fails on these images is left to the vote,
    which says at which image it fails.
    """
    _check_mode(classifier)
    copies = -(-_FEWEST_ROWS // len(jobs))  # in train mode some models fail on a single row, and must not pass for that
    scores = model_scores(classifier, torch.stack([to_pixels(job.image) for job in jobs] * copies))
    noisy = noisy_images(jobs[:_ROWS], settings, draws=copies)
    under_noise = model_scores(classifier, noisy)
    if scores is None or under_noise is None:  # the vote says at which image
        return []
    _check_function(classifier, noisy, under_noise)
    _check_full_batch(classifier, noisy, under_noise, rows)
    scores = scores[: len(jobs)]
    _check_kind(classifier, scores, under_noise, settings)
    return [*_statistic_warnings(classifier), *_score_warnings(classifier, scores, under_noise)]


@torch.no_grad()
def model_scores(classifier: Classifier, batch: Tensor, *, of_shape: bool = False) -> Tensor | None:
    """The scores of a batch, on the host; None where the model fails, which the vote reports.

    With `of_shape`, scores of another number or kind than one per label raise `ModelError`.
    """
    try:
        scores = classifier(batch.clone())  # some models work in place
        check_scores(scores, len(batch), len(classifier.label_names))
    except Exception as error:  # any error of the user's model
        if of_shape and isinstance(error, ModelError):
            raise
        return None
    return scores.float().cpu() if bool(torch.isfinite(scores).all()) else None


def _check_mode(classifier: Classifier) -> None:
    training = [name for name, module in classifier.eval().named_modules() if module.training]
    if training:
        raise ModelError(f"{classifier.name}: {training[0] or 'it'} is in train mode after eval(); it must obey eval()")


def _check_function(classifier: Classifier, batch: Tensor, first: Tensor) -> None:
    """Raises unless the model is a fixed function of each row of the batch alone; `first` are its scores."""
    before, order = state_checksum(classifier), torch.arange(len(batch)).flip(0)
    again = model_scores(classifier, batch)
    # Other neighbours, other places and other sizes of batches.
    parts = [model_scores(classifier, batch[part]) for part in (order[:1], order[1:])]
    if again is None or parts[0] is None or parts[1] is None:
        raise ModelError(
            f"{classifier.name} fails on some batches of images that it takes in others (in train mode?); a "
            "certificate needs a function of one image"
        )
    spread = float(first.max() - first.min()) + 1e-6
    if float((first - again).abs().max()) > _AGAIN * spread:
        raise ModelError(
            f"{classifier.name} answers the same batch differently each time: it is in train mode, keeps state or "
            "draws randomness (dropout?); a certificate needs a fixed function"
        )
    if state_checksum(classifier) != before:
        raise ModelError(f"{classifier.name} changes its own parameters or buffers when it is called; it must not")
    _check_alike(classifier, first[order], torch.cat([parts[0], parts[1]]))


def _check_full_batch(classifier: Classifier, batch: Tensor, first: Tensor, rows: int) -> None:
    """Raises unless a batch of so many rows, these again and again, has the scores of the few; halved if it fails."""
    while rows > len(batch):
        places = torch.arange(rows) % len(batch)
        scores = model_scores(classifier, batch[places])
        if scores is not None:
            return _check_alike(classifier, first[places], scores)
        rows //= 2  # as the run does where memory is short; any other failure is left to the vote
    return None


def _check_alike(classifier: Classifier, scores: Tensor, others: Tensor) -> None:
    """Raises unless the scores of the same images in other batches differ in the last digits only."""
    if float((scores - others).abs().max()) > _TOLERANCE * (float(scores.max() - scores.min()) + 1e-6):
        raise ModelError(
            f"{classifier.name}: its answer for an image depends on the other images of the batch (batch statistics?); "
            "a certificate needs a function of one image"
        )


def _check_kind(classifier: Classifier, scores: Tensor, under_noise: Tensor, settings: Settings) -> None:
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


def _look_like_probabilities(classifier: Classifier, *scores: Tensor) -> bool:
    """Whether scores that are declared logits all lie in [0, 1], with and without noise."""
    inside = all(float(each.min()) >= 0 and float(each.max()) <= 1 for each in scores)
    return inside and classifier.output == "logits"


def _sum_to_one(scores: Tensor) -> bool:
    return bool(((scores.sum(1) - 1).abs() < 1e-3).all())


def check_unit(image: Tensor, classifier: Classifier, noise: Noise) -> list[str]:
    """Refuses an image whose pixels do not lie in [0, 1], and warns of what only looks like one, and of its noise."""
    looks = image.ndim == _IMAGE_DIMENSIONS and len(image) in _CHANNELS
    if not (looks or classifier.image_size or image.dtype == torch.uint8):
        return []
    low, high = float(image.min()), float(image.max())
    if image.dtype == torch.uint8 or (low >= 0 and high <= 1):
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
        if values is not None and float(values.abs().max()) > _LARGE_STATISTIC:
            yield f"{name} reaches {float(values.abs().max()):g}, and pixels lie in [0, 1]: divide it by 255"


def _score_warnings(classifier: Classifier, scores: Tensor, under_noise: Tensor) -> Iterator[str]:
    low, high = float(scores.min()), float(scores.max())
    if _look_like_probabilities(classifier, scores, under_noise):
        summed = " and sum to 1 (softmax?)" if _sum_to_one(scores) else ""
        yield f"scores are declared logits, but all lie in [0, 1]{summed}, as probabilities do; --output probabilities"
    if len(scores) > 1 and high > low and float(scores.std(0).max()) < _TOLERANCE * (high - low):
        yield "scores hardly depend on the image: does the model expect pixels in 0..255, or divide by 255 again?"
