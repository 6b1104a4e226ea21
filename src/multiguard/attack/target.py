"""What is attacked: a smoothed classifier g, or a base classifier f as it is; both return labels by a rule."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.candidates import ImageGroup
from multiguard.certify import Rule, Threshold, TopK
from multiguard.certify.noise import HIDDEN
from multiguard.errors import ModelError
from multiguard.models.classifier import Classifier
from multiguard.smooth import Smoother
from multiguard.smooth.engine import check_scores, image_tensor, score_limit, to_pixels
from multiguard.smooth.noise_source import HOST_PHILOX, HostNoise, Stream, key_words
from multiguard.smooth.philox import device_noise
from multiguard.smooth.settings import DTYPES, Settings

Scores = NDArray[np.float32]
Returned = NDArray[np.bool_]
_SOFTNESS = 0.5  # in standard deviations of the scores: the distance from the border at which a label is mostly in


class Target(Protocol):
    """A classifier under attack, as the searches see it.

    A label counts by its fraction, in [0, 1]: for g the fraction of draws that hit it. From the fractions, `rule`
    decides which labels are returned.
    """

    rule: Rule
    classifier: Classifier
    device: torch.device
    attacker: str  # what a perturbation may be if nothing else is said
    hidden: float | None  # the value of pixels that the noise hides; None if it hides none

    def copies(self, wanted: int) -> int:
        """How many noisy copies per image `noisy` makes where so many are wanted."""

    def scores(self, noisy: Tensor) -> Tensor:
        """(P copies, c) float32, the scores of the base classifier, with their graph."""

    def noisy(self, images: Tensor, keys: Sequence[bytes], first_draw: int, copies: int) -> Tensor:
        """(P copies, ...), what the base classifier receives: the copies of the first image, then of the next."""

    def soft(self, noisy: Tensor, copies: int) -> Tensor:
        """(P, c), the fractions as smooth functions of `noisy`."""

    def fractions(self, group: ImageGroup, images: Tensor, draws: int, stream: Stream) -> Tensor:
        """(P, c), the fractions that compare perturbed images."""

    def evaluate(self, group: ImageGroup, images: Tensor, draws: int) -> tuple[Scores, Returned]:
        """(P, c) the scores that decide which labels are returned, and (P, c) whether each label is."""


class SmoothedTarget:
    """The smoothed classifier: its noise is a function of the noise seed, the image's id and the draw.

    Of a band ablation every band votes, whatever the number of draws: nothing is random.
    """

    def __init__(self, smoother: Smoother, rule: Rule, noise_seed: int) -> None:
        self.smoother, self.rule, self._noise_seed = smoother, rule, noise_seed
        self.classifier, self.device = smoother.classifier, smoother.settings.device
        self._copies, noise = NoisyCopies(smoother.settings), smoother.settings.noise
        self.hidden, self.attacker = HIDDEN if noise.whole else None, noise.attacker
        self._bands = noise.positions

    def copies(self, wanted: int) -> int:
        """As many as wanted, or one per band."""
        return self._bands or wanted

    def scores(self, noisy: Tensor) -> Tensor:
        """The scores as the sampler computes them."""
        settings = self.smoother.settings
        inputs = noisy.clamp(0, 1) if settings.clamp else noisy.clone()
        dtype = DTYPES[settings.precision]
        with torch.autocast(settings.device.type, dtype, enabled=dtype != torch.float32):
            return _checked(self.classifier, inputs)

    def noisy(self, images: Tensor, keys: Sequence[bytes], first_draw: int, copies: int) -> Tensor:
        """The copies with their noise."""
        self.classifier.eval()
        return self._copies.make(images, keys, 0 if self._bands else first_draw, copies)

    def soft(self, noisy: Tensor, copies: int) -> Tensor:
        """The fraction of copies that mostly hit each label."""
        scores = self.scores(noisy)
        return _soften(scores.view(-1, copies, scores.shape[1]), self._border)

    def fractions(self, group: ImageGroup, images: Tensor, draws: int, stream: Stream) -> Tensor:
        """The fraction of draws that hit each label."""
        counts = self.counts(group.ids, images, draws, stream)
        return torch.from_numpy(counts / self.copies(draws)).to(self.device)

    def evaluate(self, group: ImageGroup, images: Tensor, draws: int) -> tuple[Scores, Returned]:
        """The fraction of fresh draws that hit each label, and what they say is returned: no label without a hit."""
        fractions = self.counts(group.ids, images, draws, "judge") / self.copies(draws)
        return fractions.astype(np.float32), self.rule.returned_by(fractions) & (fractions > 0)

    def counts(
        self, ids: Sequence[str], images: Iterable[Tensor | NDArray[np.float32]], draws: int, stream: Stream
    ) -> NDArray[np.int64]:
        """(images, c), how many draws of each image hit each label; always the same draws of an image."""
        num_labels, pairs = len(self.classifier.label_names), zip(ids, images, strict=True)
        draws = self.copies(draws)
        jobs = (
            self.smoother.job(each, draws, noise_seed=self._noise_seed, image_id=name, stream=stream)
            for name, each in pairs
        )
        votes = (each for _, each in self.smoother.run(jobs, steady=True))
        arrays = (each if isinstance(each, np.ndarray) else each.hits() for each in votes)
        return np.stack([self.rule.hits(each, num_labels) for each in arrays])

    def _border(self, scores: Tensor) -> Tensor:
        if self.rule.k_prime is not None:
            return _rank_border(scores, self.rule.k_prime)
        threshold = self.smoother.settings.score_threshold
        assert threshold is not None
        return scores.new_tensor(score_limit(self.classifier, threshold))


class PlainTarget:
    """The base classifier without noise: it returns its k labels of largest score, or all with probability t or more.

    A label's fraction is above 1/2 exactly where it is returned by the threshold rule, and in the order of the scores.
    """

    hidden: float | None = None
    attacker = "l2-norm"

    def __init__(self, classifier: Classifier, returned: Rule, device: torch.device) -> None:
        self.classifier, self.returned, self.device = classifier.eval().to(device), returned, device
        self.rule: Rule = returned if returned.t is None else Threshold(0.5)
        self._limit = None if returned.t is None else score_limit(classifier, returned.t)

    def copies(self, wanted: int) -> int:
        """One: copies would be equal."""
        return 1

    def noisy(self, images: Tensor, keys: Sequence[bytes], first_draw: int, copies: int) -> Tensor:
        """The images as they are."""
        return images.clone()

    def soft(self, noisy: Tensor, copies: int) -> Tensor:
        """The fractions of the scores."""
        return _soften(self.scores(noisy)[:, None], self._border)

    def fractions(self, group: ImageGroup, images: Tensor, draws: int, stream: Stream) -> Tensor:
        """The same numbers as `soft`, without a graph."""
        with torch.no_grad():
            return self.soft(images, 1)

    def evaluate(self, group: ImageGroup, images: Tensor, draws: int) -> tuple[Scores, Returned]:
        """The scores of the classifier, and the labels that it returns."""
        with torch.no_grad():
            scores = self.scores(images).cpu().numpy()
        return scores, self.returned.returned_by(scores, self._limit)

    def scores(self, noisy: Tensor) -> Tensor:
        """The scores of the classifier."""
        return _checked(self.classifier, noisy.clone())

    def _border(self, scores: Tensor) -> Tensor:
        return scores.new_tensor(self._limit) if self.returned.k is None else _rank_border(scores, self.returned.k)


def _checked(classifier: Classifier, inputs: Tensor) -> Tensor:
    """The scores in float32, if they are one per row and label."""
    scores: Tensor = classifier(inputs)
    check_scores(scores, len(inputs), len(classifier.label_names))
    return scores.to(torch.float32)


def _soften(scores: Tensor, border: Callable[[Tensor], Tensor]) -> Tensor:
    """(P, c), the fraction of copies, (P, copies, c), whose score is mostly above its border.

    A hit is a step function without a slope. Here a score counts as mostly in or mostly out at half a standard
    deviation above or below the border: midway between the k'-th and the next score of the draw, or the score
    threshold. The standard deviation is that of the image's own scores, so the scale of the scores does not matter.
    """
    margins = scores - border(scores)
    spread = margins.detach().std(dim=(1, 2), keepdim=True).clamp(min=1e-12)
    return torch.sigmoid(margins / (_SOFTNESS * spread)).mean(dim=1)


def _rank_border(scores: Tensor, rank: int) -> Tensor:
    """(P, copies, 1), midway between the score of this rank and the next one."""
    top = scores.topk(min(rank + 1, scores.shape[2]), dim=2).values
    return (top[..., rank - 1 : rank] + top[..., -1:]) / 2


class NoisyCopies:
    """Copies whose noise is a function of the image's key and the draw, from the noise source of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._host = (
            HostNoise(settings.noise, torch.get_num_threads()) if settings.noise_source == HOST_PHILOX else None
        )

    def make(self, images: Tensor, keys: Sequence[bytes], first_draw: int, copies: int) -> Tensor:
        """(P copies, ...) float32 on the device: the copies of the first image, then those of the next."""
        draws = list(range(first_draw, first_draw + copies)) * len(images)
        keys = [key for key in keys for _ in range(copies)]
        rows = images.repeat_interleave(copies, dim=0)
        if self._host is not None:
            noisy = np.empty(tuple(rows.shape), dtype=np.float32)
            self._host.perturb(list(rows.cpu().numpy()), keys, draws, noisy)
            return torch.from_numpy(noisy).to(images.device)
        words = torch.tensor([key_words(key) for key in keys], dtype=torch.int32, device=rows.device)
        index = torch.tensor(draws, dtype=torch.int64, device=rows.device)
        return device_noise(self._settings.noise)(rows, words, index, torch.ones_like(index))


def gradient_error(smoother: Smoother, images: Iterable[NDArray[np.generic]]) -> str | None:
    """Why the classifier has no usable gradient at any of the images; None where it has one at some image.

    >>> import numpy as np
    >>> from multiguard import Smoother
    >>> pixels = [np.zeros((3, 4, 4), dtype=np.uint8)]
    >>> def smoother(function):
    ...     return Smoother(function, sigma=0.5, labels=["cat", "dog"], k_max=1, device="cpu")
    >>> gradient_error(smoother(lambda images: images.flatten(1)[:, :2]), pixels)
    >>> gradient_error(smoother(lambda images: images.flatten(1)[:, :2].round()), pixels)
    'gradients are 0 everywhere'
    """
    device, target = smoother.settings.device, SmoothedTarget(smoother, TopK(1, 1), noise_seed=0)
    inputs = (to_pixels(image_tensor("image", image, None)).to(device)[None] for image in images)
    return find_gradient_error(target.scores, inputs)


def find_gradient_error(scores: Callable[[Tensor], Tensor], inputs: Iterable[Tensor]) -> str | None:
    """Why the scores have no usable gradient at any of the inputs, (1, ...) each; None where they have one."""
    error: str | None = "no image was given"
    for each in inputs:
        error = _error_at(scores, each.clone().requires_grad_())
        if error is None:
            break
    return error


def _error_at(scores_of: Callable[[Tensor], Tensor], inputs: Tensor) -> str | None:
    try:
        with torch.enable_grad():
            scores = scores_of(inputs)
            if not scores.requires_grad:
                return "its scores carry no gradient"
            # Each label gets another weight: the sum of probabilities that add up to 1 has no slope.
            weights = torch.linspace(1, 2, scores.shape[1], device=scores.device)
            (gradient,) = torch.autograd.grad((scores * weights).sum(), inputs)
    except (RuntimeError, TypeError, ModelError) as error:
        return " ".join(str(error).split())[:120]
    if not bool(torch.isfinite(gradient).all()):
        return "gradients are not finite"
    return None if bool(gradient.any()) else "gradients are 0 everywhere"
