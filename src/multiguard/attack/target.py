"""What is attacked: a base classifier as it is, or a smoothed classifier; both return labels by a rule."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.certify import Rule, Threshold, TopK
from multiguard.certify.noise import HIDDEN
from multiguard.errors import ModelError
from multiguard.models.classifier import check_scores
from multiguard.models.torch_model import TorchClassifier
from multiguard.smooth import Smoother
from multiguard.smooth.config import score_limit
from multiguard.smooth.noise_source import HOST_PHILOX, HostNoise, Stream, key_words
from multiguard.smooth.torch_engine import DTYPES, device_noise, image_tensor, to_pixels

Scores = NDArray[np.float32]
Returned = NDArray[np.bool_]
_SOFTNESS = 0.5  # in standard deviations of the scores: the distance from the border at which a label is mostly in


class Target:
    """A base classifier f without noise: it returns its k labels of largest score, or all with probability t or more.

    A label counts by its fraction, in [0, 1], from which `rule` decides which labels are returned. Of f it is above 1/2
    exactly where the label is returned by the threshold rule, and in the order of the scores.
    """

    attacker = "l2-norm"  # what a perturbation may be if nothing else is said
    hidden: float | None = None  # the value of pixels that the noise hides; None if it hides none

    def __init__(self, classifier: TorchClassifier, returned: Rule, device: torch.device) -> None:
        self.classifier, self.device, self._returned = classifier.eval().to(device), device, returned
        self.rule: Rule = returned if returned.t is None else Threshold(0.5)
        self._rank, self._limit = returned.k, None if returned.t is None else score_limit(classifier, returned.t)

    def copies(self, wanted: int) -> int:
        """How many noisy copies per image `noisy` makes for this wanted number."""
        return 1

    def noisy(self, images: Tensor, keys: Sequence[bytes], first_draw: int, copies: int) -> Tensor:
        """(P copies, ...), what the base classifier receives: the copies of the first image, then of the next."""
        return images.clone()

    def scores(self, noisy: Tensor) -> Tensor:
        """(P copies, c) float32, the scores of the base classifier, with their graph."""
        scores: Tensor = self.classifier(noisy.clone())
        check_scores(scores, len(noisy), len(self.classifier.label_names))
        return scores.to(torch.float32)

    def fractions(self, ids: Sequence[str], images: Tensor, draws: int) -> Tensor:
        """(P, c), the fractions that compare perturbed images."""
        with torch.no_grad():
            return self.soft(images, 1)

    def evaluate(self, ids: Sequence[str], images: Tensor, draws: int) -> tuple[Scores, Returned]:
        """(P, c) the scores that decide which labels are returned, and (P, c) whether each label is."""
        with torch.no_grad():
            scores = self.scores(images).cpu().numpy()
        return scores, self._returned.returned_by(scores, self._limit)

    def soft(self, noisy: Tensor, copies: int) -> Tensor:
        """(P, c), the fractions of copies whose score is mostly above its border, as smooth functions of `noisy`.

        A hit is a step function without a slope. Here a score counts as mostly in or mostly out at half a standard
        deviation above or below the border: midway between the k'-th and the next score of the draw, or the score
        threshold. The standard deviation is that of the image's own scores, so the scale of the scores does not matter.
        """
        scores = self.scores(noisy)
        scores = scores.view(-1, copies, scores.shape[1])
        if self._rank is None:
            border = scores.new_tensor(self._limit)
        else:
            top = scores.topk(min(self._rank + 1, scores.shape[2]), dim=2).values
            border = (top[..., self._rank - 1 : self._rank] + top[..., -1:]) / 2
        margins = scores - border
        spread = margins.detach().std(dim=(1, 2), keepdim=True).clamp(min=1e-12)
        return torch.sigmoid(margins / (_SOFTNESS * spread)).mean(dim=1)

    def gradient_error(self, inputs: Iterable[Tensor]) -> str | None:
        """Why the scores have no usable gradient at any of the inputs, (1, ...) each; None where they have one."""
        reason = "no image was given"
        for each in inputs:
            given = each.clone().requires_grad_()
            try:
                with torch.enable_grad():
                    scores = self.scores(given)
                    if not scores.requires_grad:
                        return "its scores carry no gradient"
                    # Each label gets another weight: the sum of probabilities that add up to 1 has no slope.
                    weights = torch.linspace(1, 2, scores.shape[1], device=scores.device)
                    (gradient,) = torch.autograd.grad((scores * weights).sum(), given)
            except (RuntimeError, TypeError, ModelError) as error:
                return " ".join(str(error).split())[:120]
            finite = bool(torch.isfinite(gradient).all())
            if finite and bool(gradient.any()):
                return None
            reason = "gradients are 0 everywhere" if finite else "gradients are not finite"
        return reason


class SmoothedTarget(Target):
    """The smoothed classifier g; a label's fraction is that of the draws that hit it.

    Noise is a function of the noise seed, the image's id and the draw. Of a band ablation every band votes, whatever
    the number of draws: nothing is random. The smoother must have had its first input.
    """

    def __init__(self, smoother: Smoother, rule: Rule, noise_seed: int) -> None:
        settings = smoother.settings
        self.smoother, self.rule, self._noise_seed, self._settings = smoother, rule, noise_seed, settings
        self.classifier, self.device = smoother.classifier.module(), torch.device(settings.device)
        self.attacker, self.hidden = settings.noise.attacker, HIDDEN if settings.noise.whole else None
        self._rank, threshold = rule.k_prime, settings.score_threshold
        self._limit = None if threshold is None else score_limit(self.classifier, threshold)
        on_host = settings.noise_source == HOST_PHILOX
        self._host = HostNoise(settings.noise, torch.get_num_threads()) if on_host else None

    def copies(self, wanted: int) -> int:
        """As many as wanted, or one per band."""
        return self._settings.noise.positions or wanted

    def noisy(self, images: Tensor, keys: Sequence[bytes], first_draw: int, copies: int) -> Tensor:
        """The copies with the noise of their draws."""
        self.classifier.eval()
        first_draw = 0 if self._settings.noise.positions else first_draw
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

    def scores(self, noisy: Tensor) -> Tensor:
        """The scores as the sampler computes them."""
        dtype = DTYPES[self._settings.precision]
        with torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32):
            return super().scores(noisy.clamp(0, 1) if self._settings.clamp else noisy)

    def fractions(self, ids: Sequence[str], images: Tensor, draws: int) -> Tensor:
        """The fraction of draws that hit each label."""
        counts = self.counts(ids, images, draws, "attack")
        return torch.from_numpy(counts / self.copies(draws)).to(self.device)

    def evaluate(self, ids: Sequence[str], images: Tensor, draws: int) -> tuple[Scores, Returned]:
        """The fraction of fresh draws that hit each label, and what they say is returned: no label without a hit."""
        # "judge" names the noise stream of the evaluation draws; another name would draw other noise.
        fractions = self.counts(ids, images, draws, "judge") / self.copies(draws)
        returned = self.rule.returned_by(fractions) if self.rule.t is None else fractions >= self.rule.t
        return fractions.astype(np.float32), returned & (fractions > 0)

    def counts(
        self, ids: Sequence[str], images: Iterable[Tensor | NDArray[np.float32]], draws: int, stream: Stream
    ) -> NDArray[np.int64]:
        """(images, c), how many draws of each image hit each label; always the same draws of an image."""
        job, seed, draws = self.smoother.job, self._noise_seed, self.copies(draws)
        pairs = zip(ids, images, strict=True)
        jobs = (job(each, draws, noise_seed=seed, image_id=name, stream=stream) for name, each in pairs)
        votes = (each for _, each in self.smoother.run(jobs, steady=True))
        arrays = (each if isinstance(each, np.ndarray) else each.hits() for each in votes)
        return np.stack([self.rule.hits(each, len(self.classifier.label_names)) for each in arrays])


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
    tensors = [image_tensor("image", image, None) for image in images]
    for tensor in tensors[:1]:
        smoother.find_labels(tensor)
    target = SmoothedTarget(smoother, TopK(1, 1), noise_seed=0)
    return target.gradient_error(to_pixels(tensor).to(target.device)[None] for tensor in tensors)
