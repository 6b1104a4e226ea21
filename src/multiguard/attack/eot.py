"""Gradients of the smoothed classifier: an average over noisy copies (expectation over transformation)."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.aim import Aim
from multiguard.attack.copies import NoisyCopies
from multiguard.attack.group import Group
from multiguard.errors import ModelError
from multiguard.smooth import Smoother
from multiguard.smooth.asked import Asked, TopK
from multiguard.smooth.settings import DTYPES
from multiguard.smooth.step import check_scores, score_limit, to_pixels

# A batch of about this many input numbers: the backward pass keeps what the forward pass computed.
_DEVICE_NUMBERS = 1 << 25
_CPU_NUMBERS = 1 << 19
_SOFTNESS = 0.5  # of the spread of the scores: how far from the border a label counts as half in


class Gradients:
    """How the aim changes with each pixel, averaged over noisy copies.

    A hit is a step, which has no slope; here a score that is half a spread of the scores above or below the border
    counts as mostly in or out. The border is what a score must pass: midway between the k'-th and the next score of
    the draw, or the score threshold. The spread is the picture's own, so that the scale of the scores does not matter.

    Args:
        smoother: The smoothed classifier.
        aim: What is to be made small.
        copies: Noisy copies of each picture.
    """

    def __init__(self, smoother: Smoother, aim: Aim, copies: int) -> None:
        self._smoother, self._aim, self._copies = smoother, aim, copies
        self._noise = NoisyCopies(smoother.settings)

    def of(self, group: Group, pictures: Tensor, first_draw: int) -> Tensor:
        """(P, ...), the gradient at each picture."""
        self._smoother.classifier.eval()
        numbers = _CPU_NUMBERS if pictures.device.type == "cpu" else _DEVICE_NUMBERS
        step = max(1, numbers // (self._copies * max(1, pictures[0].numel())))
        parts = [list(range(start, min(start + step, len(group)))) for start in range(0, len(group), step)]
        return torch.cat([self._part(group.take(part), pictures[part[0] : part[-1] + 1], first_draw) for part in parts])

    def _part(self, group: Group, pictures: Tensor, first_draw: int) -> Tensor:
        noisy = self._noise.of(pictures, group.keys, first_draw, self._copies)
        with torch.enable_grad():
            noisy.requires_grad_()
            scores = _scores(self._smoother, noisy).view(len(group), self._copies, -1)
            soft = soft_hits(scores, _border(scores, self._smoother, self._aim.asked)).mean(dim=1)
            (found,) = torch.autograd.grad(self._aim.loss(soft, group.inside).sum(), noisy)
        return found.view(len(group), self._copies, *pictures.shape[1:]).sum(dim=1)


def soft_hits(scores: Tensor, border: Tensor) -> Tensor:
    """(P, copies, c): how much each score is above the border, from 0 to 1, 1/2 at the border itself."""
    margins = scores - border
    spread = margins.detach().std(dim=(1, 2), keepdim=True).clamp(min=1e-12)
    return torch.sigmoid(margins / (_SOFTNESS * spread))


def gradient_fault(smoother: Smoother, image: NDArray[np.generic]) -> str | None:
    """Why no gradient can be had of this classifier; None where one can."""
    picture = to_pixels(torch.from_numpy(np.array(image))).to(smoother.settings.device)[None].requires_grad_()
    try:
        with torch.enable_grad():
            scores = _scores(smoother, picture)
            if not scores.requires_grad:
                return "its scores carry none"
            (found,) = torch.autograd.grad(scores.sum(), picture)
    except (RuntimeError, TypeError, ModelError) as error:
        return " ".join(str(error).split())[:120]
    return None if bool(torch.isfinite(found).all()) else "they are not finite"


def _scores(smoother: Smoother, noisy: Tensor) -> Tensor:
    """The scores of each row as the sampler computes them, with their graph."""
    settings = smoother.settings
    inputs = noisy.clamp(0, 1) if settings.clamp else noisy.clone()
    dtype = DTYPES[settings.precision]
    with torch.autocast(settings.device.type, dtype, enabled=dtype != torch.float32):
        scores = smoother.classifier(inputs)
    check_scores(scores, len(noisy), len(smoother.classifier.label_names))
    return scores.to(torch.float32)


def _border(scores: Tensor, smoother: Smoother, asked: Asked) -> Tensor:
    """What a score must pass: of each draw (P, copies, 1), or one number."""
    if isinstance(asked, TopK):
        top = scores.topk(min(asked.k_prime + 1, scores.shape[2]), dim=2).values
        return (top[..., asked.k_prime - 1 : asked.k_prime] + top[..., -1:]) / 2
    assert smoother.settings.score_threshold is not None
    return scores.new_tensor(score_limit(smoother.classifier, smoother.settings.score_threshold))
