"""Searches inside a ball, or among masks of a few pixels: along the gradients through the noise, or by scores alone."""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.candidates import Candidates, ImageGroup, SearchDraws
from multiguard.attack.config import AttackName
from multiguard.attack.threats import Ball, Mask, Masks, Threat, random_square, rescale

_REACH = 2.5  # the length of all steps of a start together, in radii
_IMAGE_DIMENSIONS = 3
_LEAST_STEP = 0.15  # of the radius, at the last try
_BLOCK = 4  # the side of the blocks of smooth noise, in pixels
_FIRST_STEP, _LAST_STEP = 0.5, 0.05  # of the values of pixels, in the part of the search in which the mask is fixed


class Search(Protocol):
    """A search for perturbations of one threat."""

    def improve(self, group: ImageGroup, turn: int, radius: Tensor, previous: Candidates) -> Candidates:
        """The best of the candidates from smaller radii and of what is found at these radii, (P,) float64."""


def make_search(name: AttackName, threat: Threat, draws: SearchDraws, *, keep_best: bool = False) -> Search:
    """The search of this name against this threat; `keep_best` is that of `GradientSearch`."""
    if not isinstance(threat, Ball):
        return SaliencySearch(threat, draws) if name == "pgd" else SparseSearch(threat, draws)
    return GradientSearch(threat, draws, keep_best=keep_best) if name == "pgd" else RandomSearch(threat, draws)


class GradientSearch:
    """Steps of one length against the gradient, each projected onto the ball; the best end of all starts wins.

    With `keep_best`, the best point on the way to each end takes part, too: towards several labels at once, the last
    steps may lose what earlier ones gained.
    """

    def __init__(self, ball: Ball, draws: SearchDraws, *, keep_best: bool = False) -> None:
        self._ball, self._draws, self._config, self._keep_best = ball, draws, draws.config, keep_best

    def improve(self, group: ImageGroup, turn: int, radius: Tensor, previous: Candidates) -> Candidates:
        """The best of the candidates from smaller radii and of new starts at these radii, (P,) float64.

        How many smaller radii were searched before, `turn`, decides the draws.
        """
        best = previous
        for start in range(self._config.starts):
            images = previous.images if start == 0 else self._random_start(group, turn, start, radius)
            first_step = (turn * self._config.starts + start) * self._config.steps
            passed: Candidates | None = None
            for step in range(first_step, first_step + self._config.steps):
                here, images = self._step(group, images, radius, step)
                passed = here if passed is None else passed.better(here)
                self._draws.done((step + 1) / (self._config.starts * self._config.steps) - turn)
            best = best.better(self._draws.compare(group, images))
            if self._keep_best and passed is not None:
                best = best.better(self._draws.compare(group, passed.images))
        return best

    def _step(self, group: ImageGroup, images: Tensor, radius: Tensor, step: int) -> tuple[Candidates, Tensor]:
        """The images with their values, and the images after a step."""
        here, slope = self._draws.gradients(group, images, step)
        length, box = _REACH * radius / self._config.steps, self._config.box
        after = images - rescale(self._ball.ascent(slope, images, box=box), length)
        return here, self._ball.project(group.clean, after, radius, box=box)

    def _random_start(self, group: ImageGroup, turn: int, start: int, radius: Tensor) -> Tensor:
        """A random point on the sphere around each image."""
        shape, indices = tuple(group.clean.shape[1:]), range(len(group))
        noise = [group.rng(index, 1, turn, start).standard_normal(shape, dtype=np.float32) for index in indices]
        away = torch.from_numpy(np.stack(noise)).to(group.clean.device)
        return self._ball.project(group.clean, group.clean + away, radius, box=self._config.box, sphere=True)


class RandomSearch:
    """Tries perturbations one after the other, each a step from the best so far, and keeps what lowers the value.

    Steps go, in turn, towards another image of the group, along smooth noise, towards a square of another image,
    and towards a square of one colour; they grow shorter from try to try.
    """

    def __init__(self, ball: Ball, draws: SearchDraws) -> None:
        self._ball, self._draws, self._config = ball, draws, draws.config

    def improve(self, group: ImageGroup, turn: int, radius: Tensor, previous: Candidates) -> Candidates:
        """The best of the candidates from smaller radii and of new tries at these; see `GradientSearch.improve`."""
        rngs, clean = [group.rng(index, 2, turn) for index in range(len(group))], group.clean.cpu().numpy()
        stretched = self._ball.project(group.clean, previous.images, radius, box=self._config.box, sphere=True)
        best = self._draws.values(group, stretched, turn)
        for number in range(self._config.tries):
            left = 1 - number / self._config.tries
            directions = np.stack([_direction(clean, index, rng, number, left) for index, rng in enumerate(rngs)])
            away = torch.from_numpy(directions).to(group.clean.device)
            step = rescale(self._ball.unit(away), radius * max(_LEAST_STEP, left))
            tried = self._ball.project(group.clean, best.images + step, radius, box=self._config.box, sphere=True)
            best = best.better(self._draws.values(group, tried, turn))
            self._draws.done((number + 1) / self._config.tries)
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


class SaliencySearch:
    """In the first half of the steps all masks compete, then projected gradient descent goes on inside the best one.

    The slopes of the steps are added up, since a draw shows few pixels. By them, each pixel could gain so much if each
    of its channels were 0 or 1; the mask of the largest gain is filled with that, and the next slope is taken there.
    The best image of all steps and starts is returned; all values stay in [0, 1].
    """

    def __init__(self, masks: Masks, draws: SearchDraws) -> None:
        self._masks, self._draws, self._config = masks, draws, draws.config

    def improve(self, group: ImageGroup, turn: int, radius: Tensor, previous: Candidates) -> Candidates:
        """The best of the candidates from smaller radii and of new starts at these; see `GradientSearch.improve`."""
        best, sizes = previous, [int(each) for each in radius.tolist()]
        for start in range(self._config.starts):
            images = previous.images if start == 0 else self._random_start(group, turn, start, sizes)
            first = (turn * self._config.starts + start) * self._config.steps
            for found in self._descend(group, images, first, sizes, start):
                best = best.better(self._draws.compare(group, found))
        return best

    def _descend(
        self, group: ImageGroup, images: Tensor, first_step: int, sizes: list[int], start: int
    ) -> tuple[Tensor, Tensor]:
        """The best images on the way, by the draws of its steps, and the last ones."""
        steps, total, mask = (
            self._config.steps,
            torch.zeros_like(group.clean),
            torch.zeros_like(group.clean[:, 0]).bool(),
        )
        passed: Candidates | None = None
        for step in range(steps):
            here, slope = self._draws.gradients(group, images, first_step + step)
            passed = here if passed is None else passed.better(here)
            slope = torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)
            total = total + slope
            if 2 * step < steps:
                mask, images = self._fill(group.clean, total, sizes)
            else:
                size = _FIRST_STEP + (_LAST_STEP - _FIRST_STEP) * (2 * step / steps - 1)
                images = torch.where(mask[:, None], (images - size * slope.sign()).clamp(0, 1), group.clean)
            self._draws.done((start * steps + step + 1) / (self._config.starts * steps))
        assert passed is not None
        return passed.images, images

    def _fill(self, clean: Tensor, slope: Tensor, sizes: list[int]) -> tuple[Tensor, Tensor]:
        """The mask of the largest gain per image, (P, height, width), and the images filled with the best values."""
        content = (slope < 0).to(clean.dtype)
        gains = (slope * (clean - content)).clamp(min=0).sum(dim=1)
        mask = torch.stack([self._masks.best(own, m) for own, m in zip(gains, sizes, strict=True)])
        return mask, torch.where(mask[:, None] & (slope != 0), content, clean)

    def _random_start(self, group: ImageGroup, turn: int, start: int, sizes: list[int]) -> Tensor:
        """Random masks of random colours."""
        channels, shape = group.clean.shape[1], (int(group.clean.shape[2]), int(group.clean.shape[3]))
        rngs = [group.rng(index, 3, turn, start) for index in range(len(group))]
        mask = np.stack([self._masks.moved(None, m, shape, rng, 1.0) for m, rng in zip(sizes, rngs, strict=True)])
        content = np.stack([self._masks.colours(channels, shape, rng) for rng in rngs])
        return _filled(group.clean, mask, content)


class SparseSearch:
    """Moves a mask and repaints what is in it, in turn, and keeps what lowers the value; it needs no gradients."""

    def __init__(self, masks: Masks, draws: SearchDraws) -> None:
        self._masks, self._draws, self._config = masks, draws, draws.config

    def improve(self, group: ImageGroup, turn: int, radius: Tensor, previous: Candidates) -> Candidates:
        """The best of the candidates from smaller radii and of new tries at these; see `GradientSearch.improve`."""
        clean, before = group.clean.cpu().numpy(), previous.images.cpu().numpy()
        rngs = [group.rng(index, 4, turn) for index in range(len(group))]
        painters = [
            _Painter(self._masks, int(m), clean, index, rng)
            for index, (m, rng) in enumerate(zip(radius.tolist(), rngs, strict=True))
        ]
        kept = [painter.start(found) for painter, found in zip(painters, before, strict=True)]
        best = self._score(group, turn, kept)
        for number in range(self._config.tries):
            left = 1 - number / self._config.tries
            tried = [painter.next(each, number, left) for painter, each in zip(painters, kept, strict=True)]
            found = self._score(group, turn, tried)
            wins = (found.values <= best.values).tolist()  # of equals the new one, to leave a plateau
            kept = [new if won else old for old, new, won in zip(kept, tried, wins, strict=True)]
            best = best.better(found)
            self._draws.done((number + 1) / self._config.tries)
        return previous.better(self._draws.compare(group, best.images))

    def _score(self, group: ImageGroup, turn: int, painted: list["_Painted"]) -> Candidates:
        mask, content = (np.stack(each) for each in zip(*painted, strict=True))
        return self._draws.values(group, _filled(group.clean, mask, content), turn)


_Painted = tuple[Mask, NDArray[np.float32]]  # (height, width) and the content, (channels, height, width), also outside


class _Painter:
    """The tries of one image, the one at `index` of the group's clean images: masks of size m and their content."""

    def __init__(self, masks: Masks, m: int, clean: NDArray[np.float32], index: int, rng: np.random.Generator) -> None:
        self._masks, self._m, self._clean, self._index, self._rng = masks, m, clean, index, rng
        self._channels, self._shape = clean.shape[1], (clean.shape[2], clean.shape[3])

    def start(self, found: NDArray[np.float32]) -> _Painted:
        """What a smaller radius found, in a mask of this size; a random mask where it found nothing."""
        changed = np.any(found != self._clean[self._index], axis=0)
        mask = self._masks.moved(changed if changed.any() else None, self._m, self._shape, self._rng, 0.0)
        return mask, np.where(changed, found, self._masks.colours(self._channels, self._shape, self._rng))

    def next(self, painted: _Painted, number: int, left: float) -> _Painted:
        """The mask moved, or its content repainted: with colours, or as another image of the group is there."""
        mask, content = painted
        if number % 2 == 0:
            return self._masks.moved(mask, self._m, self._shape, self._rng, left), content
        paint = self._masks.colours(self._channels, self._shape, self._rng)
        if number % 4 == 1 and len(self._clean) > 1:
            paint = self._clean[(self._index + int(self._rng.integers(1, len(self._clean)))) % len(self._clean)]
        return mask, np.where(self._masks.region(self._shape, self._rng, left), paint, content)


def _filled(clean: Tensor, mask: NDArray[np.bool_], content: NDArray[np.float32]) -> Tensor:
    """The images with this content in their masks."""
    inside, paint = (torch.from_numpy(each).to(clean.device) for each in (mask, content))
    return torch.where(inside[:, None], paint, clean)
