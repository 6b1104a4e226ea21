"""Random search inside an l2-ball or an l1-ball: it needs scores and no gradients, so it attacks any classifier."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.ball import Ball, rescale
from multiguard.attack.gradient_search import Compare, Progress, SoftVotes
from multiguard.attack.masks import random_square
from multiguard.attack.objective import Objective
from multiguard.attack.perturbation import Candidates, ImageGroup
from multiguard.attack.plan import AttackPlan
from multiguard.attack.target import Target

_IMAGE_DIMENSIONS = 3
_LEAST_STEP = 0.15  # of the radius, at the last try
_BLOCK = 4  # the side of the blocks of smooth noise, in pixels


class RandomSearch:
    """Tries perturbations one after the other, each a step from the best so far, and keeps what lowers the value.

    Steps go, in turn, towards another image of the group, along smooth noise, towards a square of another image,
    and towards a square of one colour; they grow shorter from try to try.
    """

    def __init__(
        self,
        ball: Ball,
        target: Target,
        objective: Objective,
        plan: AttackPlan,
        compare: Compare,
        progress: Progress | None = None,
    ) -> None:
        self._ball, self._plan, self._compare, self._progress = ball, plan, compare, progress
        self._soft = SoftVotes(target, objective, plan.copies)

    def improve(self, group: ImageGroup, turn: int, radius: Tensor, previous: Candidates) -> Candidates:
        """The best of the candidates from smaller radii and of new tries at these; see `GradientSearch.improve`."""
        rngs, clean = [group.rng(index, 2, turn) for index in range(len(group))], group.clean.cpu().numpy()
        stretched = self._ball.project(group.clean, previous.images, radius, box=self._plan.box, sphere=True)
        best = self._score(group, turn, stretched)
        for number in range(self._plan.tries):
            left = 1 - number / self._plan.tries
            directions = np.stack([_direction(clean, index, rng, number, left) for index, rng in enumerate(rngs)])
            away = torch.from_numpy(directions).to(group.clean.device)
            step = rescale(self._ball.unit(away), radius * max(_LEAST_STEP, left))
            tried = self._ball.project(group.clean, best.images + step, radius, box=self._plan.box, sphere=True)
            best = best.better(self._score(group, turn, tried))
            if self._progress is not None:
                self._progress((number + 1) / self._plan.tries)
        return previous.better(self._compare(group, best.images))

    def _score(self, group: ImageGroup, turn: int, images: Tensor) -> Candidates:
        """All tries at one radius get the same draws, so that only the perturbations differ."""
        first_draw = self._plan.pick_draws + turn * self._plan.copies
        return Candidates(images, self._soft.values(group, images, first_draw))


def _direction(
    clean: NDArray[np.float32], index: int, rng: np.random.Generator, number: int, left: float
) -> NDArray[np.float32]:
    """Where to go from one image: each kind of step in turn, as far as its shape and its group allow."""
    image, shape = clean[index], clean.shape[1:]
    other = clean[(index + int(rng.integers(1, len(clean)))) % len(clean)] if len(clean) > 1 else 1 - image
    if len(shape) != _IMAGE_DIMENSIONS:
        return other - image if number % 2 else rng.standard_normal(shape, dtype=np.float32)
    if number % 4 == 0:
        return np.asarray(other - image)
    if number % 4 == 1:
        return _smooth_noise(shape, rng)
    square = np.broadcast_to(random_square((shape[1], shape[2]), rng, left), shape)
    flat = np.broadcast_to(image[square].reshape(shape[0], -1).mean(axis=1)[:, None, None], shape)
    return np.where(square, (other if number % 4 == 2 else flat) - image, np.float32(0))


def _smooth_noise(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    channels, height, width = shape
    coarse = rng.standard_normal((channels, -(-height // _BLOCK), -(-width // _BLOCK)), dtype=np.float32)
    return coarse.repeat(_BLOCK, axis=1).repeat(_BLOCK, axis=2)[:, :height, :width]
