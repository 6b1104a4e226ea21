"""Searches inside an l2-ball or an l1-ball: down the gradients through the noise (EOT), or by scores alone."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.perturbation import Candidates, ImageGroup
from multiguard.attack.search_draws import SearchDraws
from multiguard.attack.threats import Ball, random_square, rescale

_REACH = 2.5  # the length of all steps of a start together, in radii
_IMAGE_DIMENSIONS = 3
_LEAST_STEP = 0.15  # of the radius, at the last try
_BLOCK = 4  # the side of the blocks of smooth noise, in pixels


class GradientSearch:
    """Steps of one length against the gradient, each projected onto the ball; the best end of all starts wins.

    With `keep_best`, the best point on the way to each end takes part, too: towards several labels at once, the last
    steps may lose what earlier ones gained.
    """

    def __init__(self, ball: Ball, draws: SearchDraws, *, keep_best: bool = False) -> None:
        self._ball, self._draws, self._plan, self._keep_best = ball, draws, draws.plan, keep_best

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
                here, images = self._step(group, images, radius, step)
                passed = here if passed is None else passed.better(here)
                self._draws.done((step + 1) / (self._plan.starts * self._plan.steps) - turn)
            best = best.better(self._draws.compare(group, images))
            if self._keep_best and passed is not None:
                best = best.better(self._draws.compare(group, passed.images))
        return best

    def _step(self, group: ImageGroup, images: Tensor, radius: Tensor, step: int) -> tuple[Candidates, Tensor]:
        """The images with their values, and the images after a step."""
        here, slope = self._draws.gradients(group, images, step)
        length, box = _REACH * radius / self._plan.steps, self._plan.box
        after = images - rescale(self._ball.ascent(slope, images, box=box), length)
        return here, self._ball.project(group.clean, after, radius, box=box)

    def _random_start(self, group: ImageGroup, turn: int, start: int, radius: Tensor) -> Tensor:
        """A random point on the sphere around each image."""
        shape, indices = tuple(group.clean.shape[1:]), range(len(group))
        noise = [group.rng(index, 1, turn, start).standard_normal(shape, dtype=np.float32) for index in indices]
        away = torch.from_numpy(np.stack(noise)).to(group.clean.device)
        return self._ball.project(group.clean, group.clean + away, radius, box=self._plan.box, sphere=True)


class RandomSearch:
    """Tries perturbations one after the other, each a step from the best so far, and keeps what lowers the value.

    Steps go, in turn, towards another image of the group, along smooth noise, towards a square of another image,
    and towards a square of one colour; they grow shorter from try to try.
    """

    def __init__(self, ball: Ball, draws: SearchDraws) -> None:
        self._ball, self._draws, self._plan = ball, draws, draws.plan

    def improve(self, group: ImageGroup, turn: int, radius: Tensor, previous: Candidates) -> Candidates:
        """The best of the candidates from smaller radii and of new tries at these; see `GradientSearch.improve`."""
        rngs, clean = [group.rng(index, 2, turn) for index in range(len(group))], group.clean.cpu().numpy()
        stretched = self._ball.project(group.clean, previous.images, radius, box=self._plan.box, sphere=True)
        best = self._draws.values(group, stretched, turn)
        for number in range(self._plan.tries):
            left = 1 - number / self._plan.tries
            directions = np.stack([_direction(clean, index, rng, number, left) for index, rng in enumerate(rngs)])
            away = torch.from_numpy(directions).to(group.clean.device)
            step = rescale(self._ball.unit(away), radius * max(_LEAST_STEP, left))
            tried = self._ball.project(group.clean, best.images + step, radius, box=self._plan.box, sphere=True)
            best = best.better(self._draws.values(group, tried, turn))
            self._draws.done((number + 1) / self._plan.tries)
        return previous.better(self._draws.compare(group, best.images))


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
