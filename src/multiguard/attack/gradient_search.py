"""Projected gradient descent, on a smoothed classifier with gradients through the noise (EOT)."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from multiguard.attack.ball import Ball, rescale
from multiguard.attack.objective import Objective
from multiguard.attack.perturbation import Candidates, ImageGroup
from multiguard.attack.plan import AttackPlan
from multiguard.attack.target import Target

Compare = Callable[[ImageGroup, Tensor], Candidates]
Progress = Callable[[float], None]  # with the fraction of a search that is done

_REACH = 2.5  # the length of all steps of a start together, in radii
# Input numbers per batch: the backward pass keeps what the forward pass computed.
_DEVICE_NUMBERS = 1 << 25
_CPU_NUMBERS = 1 << 19


class GradientSearch:
    """Steps of one length against the gradient, each projected onto the ball; the best end of all starts wins.

    `compare` values perturbed images by draws of the search. `flat` takes the ids of images where some gradient was 0
    or not finite, so that a step led nowhere. With `keep_best`, the best point on the way to each end takes part, too:
    towards several labels at once, the last steps may lose what earlier ones gained. `progress` is called after each
    step.
    """

    def __init__(
        self,
        ball: Ball,
        target: Target,
        objective: Objective,
        plan: AttackPlan,
        compare: Compare,
        flat: set[str],
        *,
        keep_best: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._ball, self._plan, self._compare, self._flat = ball, plan, compare, flat
        self._keep_best, self._progress = keep_best, progress
        self._soft = SoftVotes(target, objective, plan.copies)

    def improve(self, group: ImageGroup, turn: int, radius: Tensor, previous: Candidates) -> Candidates:
        """The best of the candidates from smaller radii and of new starts at these radii, (P,) float64.

        How many smaller radii were searched before, `turn`, decides the draws.
        """
        best = previous
        for start in range(self._plan.starts):
            images = previous.images if start == 0 else self._random_start(group, turn, start, radius)
            first_step = (turn * self._plan.starts + start) * self._plan.steps
            passed: Candidates | None = None
            for step in range(first_step, first_step + self._plan.steps):
                values, after = self._step(group, images, radius, step)
                here = Candidates(images, values)
                passed, images = here if passed is None else passed.better(here), after
                if self._progress is not None:
                    done = step + 1 - turn * self._plan.starts * self._plan.steps
                    self._progress(done / (self._plan.starts * self._plan.steps))
            best = best.better(self._compare(group, images))
            if self._keep_best and passed is not None:
                best = best.better(self._compare(group, passed.images))
        return best

    def _step(self, group: ImageGroup, images: Tensor, radius: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """The values of the images, and the images after a step."""
        # The first draws of the stream compare; each step has its own draws after them.
        values, slope = self._soft.gradients(group, images, self._plan.pick_draws + step * self._plan.copies)
        self._flat.update(name for name, good in zip(group.ids, usable(slope), strict=True) if not good)
        length, box = _REACH * radius / self._plan.steps, self._plan.box
        after = images - rescale(self._ball.ascent(slope, images, box=box), length)
        return values, self._ball.project(group.clean, after, radius, box=box)

    def _random_start(self, group: ImageGroup, turn: int, start: int, radius: Tensor) -> Tensor:
        """A random point on the sphere around each image."""
        shape, indices = tuple(group.clean.shape[1:]), range(len(group))
        noise = [group.rng(index, 1, turn, start).standard_normal(shape, dtype=np.float32) for index in indices]
        away = torch.from_numpy(np.stack(noise)).to(group.clean.device)
        return self._ball.project(group.clean, group.clean + away, radius, box=self._plan.box, sphere=True)


def usable(slope: Tensor) -> list[bool]:
    """Per image, whether its slope is finite and not 0 everywhere, so that a step leads somewhere."""
    good: list[bool] = (torch.isfinite(slope).flatten(1).all(dim=1) & (slope != 0).flatten(1).any(dim=1)).tolist()
    return good


class SoftVotes:
    """The objective as a smooth function of the pixels: its value and its gradient."""

    def __init__(self, target: Target, objective: Objective, copies: int) -> None:
        self._target, self._objective, self._copies = target, objective, target.copies(copies)

    def values(self, group: ImageGroup, images: Tensor, first_draw: int) -> Tensor:
        """(P,), the objective's value at each image; needs no gradients."""
        with torch.no_grad():
            parts = self._parts(group, images, first_draw)
            return torch.cat([self._objective.value(self._soft(noisy), part.aim) for part, noisy in parts])

    def gradients(self, group: ImageGroup, images: Tensor, first_draw: int) -> tuple[Tensor, Tensor]:
        """(P,), the objective's value at each image, and (P, ...), the gradient of its loss there."""
        found = [self._gradient(part, noisy) for part, noisy in self._parts(group, images, first_draw)]
        values, slopes = zip(*found, strict=True)
        return torch.cat(values), torch.cat(slopes)

    def _parts(self, group: ImageGroup, images: Tensor, first_draw: int) -> Iterator[tuple[ImageGroup, Tensor]]:
        """The group in parts whose noisy copies fill a batch."""
        numbers = _CPU_NUMBERS if images.device.type == "cpu" else _DEVICE_NUMBERS
        step = max(1, numbers // (self._copies * max(1, images[0].numel())))
        for start in range(0, len(group), step):
            part = group.take(range(start, min(start + step, len(group))))
            yield part, self._target.noisy(images[start : start + step], part.keys, first_draw, self._copies)

    def _gradient(self, group: ImageGroup, noisy: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            noisy.requires_grad_()
            fractions = self._soft(noisy)
            (gradient,) = torch.autograd.grad(self._objective.loss(fractions, group.aim).sum(), noisy)
        if self._target.hidden is not None:  # a pixel that is hidden in a copy has no slope there
            gradient = gradient.masked_fill(noisy == self._target.hidden, 0)
        values = self._objective.value(fractions.detach(), group.aim)
        return values, gradient.view(len(group), -1, *noisy.shape[1:]).sum(dim=1)

    def _soft(self, noisy: Tensor) -> Tensor:
        return self._target.soft(noisy, self._copies)
