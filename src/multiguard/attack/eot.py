"""The smoothed classifier made smooth: averages over noisy copies, and their gradients through the noise (EOT)."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.aim import Aim
from multiguard.attack.copies import NoisyCopies
from multiguard.attack.group import Group
from multiguard.certify import Rule, TopK
from multiguard.errors import ModelError
from multiguard.smooth import Smoother
from multiguard.smooth.settings import DTYPES
from multiguard.smooth.step import check_scores, score_limit, to_pixels

# A batch of about this many input numbers: the backward pass keeps what the forward pass computed.
_DEVICE_NUMBERS = 1 << 25
_CPU_NUMBERS = 1 << 19
_SOFTNESS = 0.5  # of the spread of the scores: how far from the border a label counts as half in


class SoftVotes:
    """The aim as a smooth function of the pixels: its value, and how it changes with each of them.

    A hit is a step, which has no slope; here a score that is half a spread of the scores above or below the border
    counts as mostly in or out. The border is what a score must pass: midway between the k'-th and the next score of
    the draw, or the score threshold. The spread is the image's own, so that the scale of the scores does not matter.

    Args:
        smoother: The smoothed classifier.
        aim: What is to be made small.
        copies: Noisy copies of each image that are averaged over.
    """

    def __init__(self, smoother: Smoother, aim: Aim, copies: int) -> None:
        self._smoother, self._aim, self._copies = smoother, aim, copies
        self._noise = NoisyCopies(smoother.settings)

    def values(self, group: Group, images: Tensor, first_draw: int) -> Tensor:
        """(P,), the aim's value at each image; needs no gradients."""
        with torch.no_grad():
            return torch.cat(
                [
                    self._aim.value(self._shares(noisy), part.inside)
                    for part, noisy in self._parts(group, images, first_draw)
                ]
            )

    def gradients(self, group: Group, images: Tensor, first_draw: int) -> Tensor:
        """(P, ...), the gradient of the aim's loss at each image."""
        return torch.cat([self._gradient(part, noisy) for part, noisy in self._parts(group, images, first_draw)])

    def _parts(self, group: Group, images: Tensor, first_draw: int) -> Iterator[tuple[Group, Tensor]]:
        """So many images at a time that a batch has a good size, each with its noisy copies."""
        self._smoother.classifier.eval()
        numbers = _CPU_NUMBERS if images.device.type == "cpu" else _DEVICE_NUMBERS
        step = max(1, numbers // (self._copies * max(1, images[0].numel())))
        for start in range(0, len(group), step):
            part = group.take(range(start, min(start + step, len(group))))
            yield part, self._noise.of(images[start : start + step], part.keys, first_draw, self._copies)

    def _gradient(self, group: Group, noisy: Tensor) -> Tensor:
        with torch.enable_grad():
            noisy.requires_grad_()
            loss = self._aim.loss(self._shares(noisy), group.inside).sum()
            (found,) = torch.autograd.grad(loss, noisy)
        return found.view(len(group), self._copies, *noisy.shape[1:]).sum(dim=1)

    def _shares(self, noisy: Tensor) -> Tensor:
        scores = _scores(self._smoother, noisy).view(-1, self._copies, len(self._smoother.classifier.label_names))
        return soft_hits(scores, _border(scores, self._smoother, self._aim.rule)).mean(dim=1)


def soft_hits(scores: Tensor, border: Tensor) -> Tensor:
    """(P, copies, c): how much each score is above the border, from 0 to 1, 1/2 at the border itself."""
    margins = scores - border
    spread = margins.detach().std(dim=(1, 2), keepdim=True).clamp(min=1e-12)
    return torch.sigmoid(margins / (_SOFTNESS * spread))


def gradient_fault(smoother: Smoother, images: Iterable[NDArray[np.generic]]) -> str | None:
    """Why no gradient can be had of this classifier at any of the images; None where one can at some."""
    fault: str | None = "no image was given"
    for image in images:
        fault = _fault(smoother, image)
        if fault is None:
            return None
    return fault


def _fault(smoother: Smoother, image: NDArray[np.generic]) -> str | None:
    inputs = to_pixels(torch.from_numpy(np.array(image))).to(smoother.settings.device)[None].requires_grad_()
    try:
        with torch.enable_grad():
            scores = _scores(smoother, inputs)
            if not scores.requires_grad:
                return "its scores carry none"
            # Each label counts differently: probabilities that add up to 1 have a sum without a slope.
            weights = torch.linspace(1, 2, scores.shape[1], device=scores.device)
            (found,) = torch.autograd.grad((scores * weights).sum(), inputs)
    except (RuntimeError, TypeError, ModelError) as error:
        return " ".join(str(error).split())[:120]
    if not bool(torch.isfinite(found).all()):
        return "they are not finite"
    return None if bool(found.any()) else "they are 0 everywhere"


def _scores(smoother: Smoother, noisy: Tensor) -> Tensor:
    """The scores of each row as the sampler computes them, with their graph."""
    settings = smoother.settings
    inputs = noisy.clamp(0, 1) if settings.clamp else noisy.clone()
    dtype = DTYPES[settings.precision]
    with torch.autocast(settings.device.type, dtype, enabled=dtype != torch.float32):
        scores: Tensor = smoother.classifier(inputs)
    check_scores(scores, len(noisy), len(smoother.classifier.label_names))
    return scores.to(torch.float32)


def _border(scores: Tensor, smoother: Smoother, rule: Rule) -> Tensor:
    """What a score must pass: of each draw (P, copies, 1), or one number."""
    if isinstance(rule, TopK):
        top = scores.topk(min(rule.k_prime + 1, scores.shape[2]), dim=2).values
        return (top[..., rule.k_prime - 1 : rule.k_prime] + top[..., -1:]) / 2
    assert smoother.settings.score_threshold is not None
    return scores.new_tensor(score_limit(smoother.classifier, smoother.settings.score_threshold))
