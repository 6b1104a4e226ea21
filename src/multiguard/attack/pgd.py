"""Projected gradient descent on the smoothed classifier, with gradients through the noise (EOT)."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.objective import Objective
from multiguard.attack.perturbation import Candidates, ImageGroup, project, rescale, unit
from multiguard.attack.plan import AttackPlan
from multiguard.certify import TopK
from multiguard.errors import ModelError
from multiguard.smooth import Smoother
from multiguard.smooth.engine import check_scores, score_limit, to_pixels
from multiguard.smooth.noise import HOST_PHILOX, HostNoise, key_words
from multiguard.smooth.philox import standard_normal
from multiguard.smooth.settings import DTYPES, Settings

Compare = Callable[[ImageGroup, Tensor], Candidates]

_REACH = 2.5  # the length of all steps of a start together, in radii
# Input numbers per batch: the backward pass keeps what the forward pass computed.
_DEVICE_NUMBERS = 1 << 25
_CPU_NUMBERS = 1 << 19
_SOFTNESS = 0.5  # in standard deviations of the scores: the distance from the border at which a label is mostly in


class GradientSearch:
    """Steps of one length against the gradient, each projected onto the ball; the best end of all starts wins.

    `compare` values perturbed images by draws of the search. `flat` takes the ids of images where some gradient was 0
    or not finite, so that a step led nowhere.
    """

    def __init__(
        self, smoother: Smoother, objective: Objective, plan: AttackPlan, compare: Compare, flat: set[str]
    ) -> None:
        self._plan, self._compare, self._flat = plan, compare, flat
        self._soft = SoftVotes(smoother, objective, plan.copies)

    def improve(self, group: ImageGroup, turn: int, radius: Tensor, previous: Candidates) -> Candidates:
        """The best of the candidates from smaller radii and of new starts at these radii, (P,) float64.

        How many smaller radii were searched before, `turn`, decides the draws.
        """
        best = previous
        for start in range(self._plan.starts):
            images = previous.images if start == 0 else self._random_start(group, turn, start, radius)
            first_step = (turn * self._plan.starts + start) * self._plan.steps
            for step in range(first_step, first_step + self._plan.steps):
                images = self._step(group, images, radius, step)
            best = best.better(self._compare(group, images))
        return best

    def _step(self, group: ImageGroup, images: Tensor, radius: Tensor, step: int) -> Tensor:
        # The first draws of the stream compare; each step has its own draws after them.
        slope = self._soft.gradients(group, images, self._plan.pick_draws + step * self._plan.copies)
        usable = torch.isfinite(slope).flatten(1).all(dim=1) & (slope != 0).flatten(1).any(dim=1)
        self._flat.update(name for name, good in zip(group.ids, usable.tolist(), strict=True) if not good)
        length = _REACH * radius / self._plan.steps
        return project(group.clean, images - rescale(unit(slope), length), radius, box=self._plan.box)

    def _random_start(self, group: ImageGroup, turn: int, start: int, radius: Tensor) -> Tensor:
        """A random point on the sphere around each image."""
        shape, indices = tuple(group.clean.shape[1:]), range(len(group))
        noise = [group.rng(index, 1, turn, start).standard_normal(shape, dtype=np.float32) for index in indices]
        away = torch.from_numpy(np.stack(noise)).to(group.clean.device)
        return project(group.clean, group.clean + away, radius, box=self._plan.box, sphere=True)


class SoftVotes:
    """The objective as a smooth function of the pixels: its value and its gradient.

    A hit is a step function without a slope. Here a score counts as mostly in or mostly out at half a standard
    deviation above or below the border: midway between the k'-th and the next score of the draw, or the score
    threshold. The standard deviation is that of the image's own scores, so the scale of the scores does not matter.
    """

    def __init__(self, smoother: Smoother, objective: Objective, copies: int) -> None:
        self._smoother, self._objective, self._copies = smoother, objective, copies
        self._noise = NoisyCopies(smoother.settings)

    def values(self, group: ImageGroup, images: Tensor, first_draw: int) -> Tensor:
        """(P,), the objective's value at each image; needs no gradients."""
        with torch.no_grad():
            parts = self._parts(group, images, first_draw)
            return torch.cat([self._objective.value(self._fractions(noisy), part.in_labels) for part, noisy in parts])

    def gradients(self, group: ImageGroup, images: Tensor, first_draw: int) -> Tensor:
        """(P, ...), the gradient of the objective's loss at each image."""
        return torch.cat([self._gradient(part, noisy) for part, noisy in self._parts(group, images, first_draw)])

    def _parts(self, group: ImageGroup, images: Tensor, first_draw: int) -> Iterator[tuple[ImageGroup, Tensor]]:
        """The group in parts whose noisy copies fill a batch."""
        self._smoother.classifier.eval()
        numbers = _CPU_NUMBERS if images.device.type == "cpu" else _DEVICE_NUMBERS
        step = max(1, numbers // (self._copies * max(1, images[0].numel())))
        for start in range(0, len(group), step):
            part = group.take(range(start, min(start + step, len(group))))
            yield part, self._noise.make(images[start : start + step], part.keys, first_draw, self._copies)

    def _gradient(self, group: ImageGroup, noisy: Tensor) -> Tensor:
        with torch.enable_grad():
            noisy.requires_grad_()
            loss = self._objective.loss(self._fractions(noisy), group.in_labels).sum()
            (gradient,) = torch.autograd.grad(loss, noisy)
        return gradient.view(len(group), self._copies, *noisy.shape[1:]).sum(dim=1)

    def _fractions(self, noisy: Tensor) -> Tensor:
        scores = _scores(self._smoother, noisy).view(-1, self._copies, len(self._smoother.classifier.label_names))
        margins = scores - self._border(scores)
        spread = margins.detach().std(dim=(1, 2), keepdim=True).clamp(min=1e-12)
        return torch.sigmoid(margins / (_SOFTNESS * spread)).mean(dim=1)

    def _border(self, scores: Tensor) -> Tensor:
        """What a score must pass: (P, copies, 1) per draw, or one number."""
        if isinstance(rule := self._objective.rule, TopK):
            top = scores.topk(min(rule.k_prime + 1, scores.shape[2]), dim=2).values
            return (top[..., rule.k_prime - 1 : rule.k_prime] + top[..., -1:]) / 2
        threshold = self._smoother.settings.score_threshold
        assert threshold is not None
        return scores.new_tensor(score_limit(self._smoother.classifier, threshold))


class NoisyCopies:
    """Copies whose noise is a function of the image's key and the draw, from the noise source of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._host = HostNoise(torch.get_num_threads()) if settings.noise == HOST_PHILOX else None

    def make(self, images: Tensor, keys: Sequence[bytes], first_draw: int, copies: int) -> Tensor:
        """(P copies, ...) float32 on the device: the copies of the first image, then those of the next."""
        draws = list(range(first_draw, first_draw + copies)) * len(images)
        keys = [key for key in keys for _ in range(copies)]
        rows = images.repeat_interleave(copies, dim=0)
        if self._host is not None:
            noisy = np.empty(tuple(rows.shape), dtype=np.float32)
            self._host.perturb(list(rows.cpu().numpy()), keys, draws, self._settings.noise_scale, noisy)
            return torch.from_numpy(noisy).to(images.device)
        words = torch.tensor([key_words(key) for key in keys], dtype=torch.int32, device=rows.device)
        index = torch.tensor(draws, dtype=torch.int64, device=rows.device)
        return rows + self._settings.noise_scale * standard_normal(words, index, rows.shape[1:])


def gradient_error(smoother: Smoother, images: Iterable[NDArray[np.generic]]) -> str | None:
    """Why the classifier has no usable gradient at any of the images; None where it has one at some image.

    >>> import numpy as np
    >>> from multiguard import Smoother, load_classifier
    >>> pixels = [np.zeros((3, 4, 4), dtype=np.uint8)]
    >>> def smoother(function):
    ...     classifier = load_classifier(function, labels=["cat", "dog"], output="logits")
    ...     return Smoother(classifier, sigma=0.5, k_max=1, device="cpu")
    >>> gradient_error(smoother(lambda images: images.flatten(1)[:, :2]), pixels)
    >>> gradient_error(smoother(lambda images: images.flatten(1)[:, :2].round()), pixels)
    'gradients are 0 everywhere'
    """
    error: str | None = "no image was given"
    for image in images:
        error = _error_at(smoother, image)
        if error is None:
            break
    return error


def _error_at(smoother: Smoother, image: NDArray[np.generic]) -> str | None:
    inputs = to_pixels(torch.from_numpy(np.array(image))).to(smoother.settings.device)[None].requires_grad_()
    try:
        with torch.enable_grad():
            scores = _scores(smoother, inputs)
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


def _scores(smoother: Smoother, noisy: Tensor) -> Tensor:
    """The scores of each row as the sampler computes them, with their graph."""
    settings = smoother.settings
    inputs = noisy.clamp(0, 1) if settings.clamp else noisy.clone()
    dtype = DTYPES[settings.precision]
    with torch.autocast(settings.device.type, dtype, enabled=dtype != torch.float32):
        scores: Tensor = smoother.classifier(inputs)
    check_scores(scores, len(noisy), len(smoother.classifier.label_names))
    return scores.to(torch.float32)
