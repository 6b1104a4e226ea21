"""What an attacker may do to an image: any perturbation of a norm, any content in m pixels, or in one square patch.

A threat measures perturbations (`distances`) and moves images for the searches: along a slope (`descent`, from
`random_start`), or by tries that need none (`tries`). Images and `clean` are (P, ...), a `radius` is (P,) float64.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.random import Generator as Rng
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from multiguard.attack.config import AttackConfig
from multiguard.errors import InvalidInputError

Mask = NDArray[np.bool_]
Values = NDArray[np.float32]
Step = Callable[[Tensor, Tensor, int], Tensor]  # from images, the slope at each, and the number of the step
# Yields images to be scored, starting with what a smaller radius found; takes by how much each lowered the best value.
Tries = Generator[Tensor, Tensor, None]

_INWARD = 1e-6  # what float32 may add to a norm when a perturbation is added to an image
_SPARSITY = 0.01  # the fraction of the numbers of an image that a step in the l1-ball changes
_REACH = 2.5  # the length of all steps of a start together, in radii
_LEAST_STEP = 0.15  # of the radius, at the last try
_BLOCK = 4  # the side of the blocks of smooth noise, in pixels
_FIRST_STEP, _LAST_STEP = 0.5, 0.05  # of the values of pixels, in the part of a descent in which the mask is fixed
_IMAGE_DIMENSIONS = 3


class Ball:
    """All perturbations of a norm of at most R: order 2, 1 or inf, the largest absolute value."""

    branches = (1, 2)  # of the random numbers of an image: for starts of a descent, and for tries
    keeps_best = False  # whether the best point on the way of a descent always takes part

    def __init__(self, order: float) -> None:
        self.order = order

    def check(self, inputs: Tensor, radius: float) -> None:
        """Any inputs may be perturbed."""

    def lengths(self, perturbations: Tensor) -> Tensor:
        """(P,) float64, the norm of each."""
        norms: Tensor = torch.linalg.vector_norm(perturbations.flatten(1).to(torch.float64), ord=self.order, dim=1)
        return norms

    def distances(self, clean: Tensor, images: Tensor) -> Tensor:
        """The norm of what was added to each image; the difference is not rounded."""
        return self.lengths(images.to(torch.float64) - clean.to(torch.float64))

    def random_start(self, clean: Tensor, radius: Tensor, rngs: Sequence[Rng], *, box: bool) -> Tensor:
        """A random point on the sphere around each image."""
        away = np.stack([rng.standard_normal(tuple(clean.shape[1:]), dtype=np.float32) for rng in rngs])
        return self.project(clean, clean + torch.from_numpy(away).to(clean.device), radius, box=box, sphere=True)

    def descent(self, clean: Tensor, radius: Tensor, config: AttackConfig) -> Step:
        """Steps of one length."""
        length = _REACH * radius / config.steps

        def step(images: Tensor, slope: Tensor, _: int) -> Tensor:
            after = images - _rescale(self._ascent(slope, images, box=config.box), length)
            return self.project(clean, after, radius, box=config.box)

        return step

    def tries(
        self, clean: Tensor, previous: Tensor, radius: Tensor, rngs: Sequence[Rng], config: AttackConfig
    ) -> Tries:
        """Steps, in turn, towards another image, along smooth noise, and towards a square of an image or a colour."""
        pixels = clean.cpu().numpy()
        tried = best = self.project(clean, previous, radius, box=config.box, sphere=True)
        for number in range(config.tries):
            gain = yield tried
            best = torch.where(per_image(gain > 0, best), tried, best)
            left = 1 - number / config.tries
            directions = np.stack([_direction(pixels, index, rng, number, left) for index, rng in enumerate(rngs)])
            away = self._unit(torch.from_numpy(directions).to(clean.device))
            after = best + _rescale(away, radius * max(_LEAST_STEP, left))
            tried = self.project(clean, after, radius, box=config.box, sphere=True)
        yield tried

    def project(self, clean: Tensor, images: Tensor, radius: Tensor, *, box: bool, sphere: bool = False) -> Tensor:
        """The images moved until their distance from the clean ones, computed from their float32 values, is in R.

        In the `box` images also stay in [0, 1]; to the `sphere` shorter perturbations are stretched.
        """
        perturbations = images - clean
        if sphere:
            perturbations = _rescale(self._unit(perturbations), radius)
        if box:
            perturbations = (clean + perturbations).clamp(0, 1) - clean
        inward = torch.full_like(radius, _INWARD)
        while True:
            projected = clean + self._shrink(perturbations, radius * (1 - inward).clamp(min=0))
            outside = self.distances(clean, projected) > radius
            if not bool(outside.any()):
                return projected
            inward = torch.where(outside, 2 * inward, inward)

    def _unit(self, perturbations: Tensor) -> Tensor:
        """Each perturbation at length 1; one of length 0, or that is not finite, becomes 0."""
        finite = _finite(perturbations)
        return _rescale(finite, 1 / self.lengths(finite).clamp(min=1e-30))

    def _ascent(self, slope: Tensor, images: Tensor, *, box: bool) -> Tensor:
        """A direction of length 1 in which a function with this slope rises fast.

        l2: the slope; linf: its signs; l1: a few numbers of the steepest slope, in the `box` only those with room left.
        """
        if self.order == 2:
            return self._unit(slope)
        steep = _finite(slope)
        if self.order == math.inf:
            return steep.sign()
        if box:
            stuck = ((steep > 0) & (images <= 0)) | ((steep < 0) & (images >= 1))
            steep = steep.masked_fill(stuck, 0)
        heights = steep.flatten(1).abs()
        count = max(1, round(_SPARSITY * heights.shape[1]))
        least = per_image(heights.topk(count, dim=1).values[:, -1], slope)
        return self._unit(torch.where((steep.abs() >= least) & (steep != 0), steep.sign(), 0))

    def _shrink(self, perturbations: Tensor, radius: Tensor) -> Tensor:
        """The nearest perturbations, in the l2-norm, whose own norm is in the radius."""
        if self.order == 2:
            return _rescale(perturbations, (radius / self.lengths(perturbations).clamp(min=1e-30)).clamp(max=1.0))
        flat, most = perturbations.flatten(1).to(torch.float64), radius[:, None]
        if self.order == math.inf:
            return flat.clamp(-most, most).to(perturbations.dtype).view_as(perturbations)
        # Every absolute value is lowered by the same number, down to 0: by which, the sorted values say.
        falling = flat.abs().sort(dim=1, descending=True).values
        counts = torch.arange(1, flat.shape[1] + 1, device=flat.device)
        lowered = (falling.cumsum(dim=1) - most) / counts
        last = (falling > lowered).sum(dim=1, keepdim=True).clamp(min=1) - 1
        by = lowered.gather(1, last).clamp(min=0)
        return (flat.sign() * (flat.abs() - by).clamp(min=0)).to(perturbations.dtype).view_as(perturbations)


class Masks(ABC):
    """Any content in [0, 1] in a mask of size m, which is the radius; the rest of an image stays as it is."""

    branches = (3, 4)
    keeps_best = True

    def check(self, inputs: Tensor, radius: float) -> None:
        """Raise `InvalidInputError` for inputs without pixels, or a radius of none."""
        if inputs.ndim != _IMAGE_DIMENSIONS + 1 or inputs.min() < 0 or inputs.max() > 1:
            shape = tuple(inputs.shape)
            raise InvalidInputError(
                f"inputs has shape {shape}; this attacker needs images (images, channels, height, width) in [0, 1]."
            )
        if radius < 1:
            raise InvalidInputError(f"radius is {radius!r}; it counts pixels here, so give 1 or more.")

    @abstractmethod
    def distances(self, clean: Tensor, images: Tensor) -> Tensor:
        """(P,) float64, the size of the smallest mask that holds every pixel that differs, in any channel."""

    @abstractmethod
    def _best(self, gains: Tensor, m: int) -> Tensor: ...  # the mask of the largest total gain

    @abstractmethod
    def _moved(self, mask: Mask | None, m: int, shape: tuple[int, ...], rng: Rng, left: float) -> Mask: ...

    @abstractmethod
    def _region(self, shape: tuple[int, ...], rng: Rng, left: float) -> Mask: ...  # that gets another content at once

    @abstractmethod
    def _colours(self, shape: tuple[int, ...], rng: Rng) -> Values: ...  # each channel 0 or 1

    def random_start(self, clean: Tensor, radius: Tensor, rngs: Sequence[Rng], *, box: bool) -> Tensor:
        """Random masks of random colours."""
        shape = tuple(clean.shape[1:])
        mask = [self._moved(None, int(m), shape[1:], rng, 1.0) for m, rng in zip(radius.tolist(), rngs, strict=True)]
        return _filled(clean, list(zip(mask, [self._colours(shape, rng) for rng in rngs], strict=True)))

    def descent(self, clean: Tensor, radius: Tensor, config: AttackConfig) -> Step:
        """In the first half of the steps all masks compete, then the content of the best one follows the slope.

        Slopes are added up over the steps, since a draw shows few pixels. The gain of a pixel is to first order what
        the margin falls by if each of its channels becomes 0 or 1; the mask of the largest gain is filled with that.
        """
        total, mask = torch.zeros_like(clean), torch.zeros_like(clean[:, 0], dtype=torch.bool)

        def step(images: Tensor, slope: Tensor, number: int) -> Tensor:
            nonlocal total, mask
            slope = _finite(slope)
            total = total + slope
            if 2 * number >= config.steps:
                size = _FIRST_STEP + (_LAST_STEP - _FIRST_STEP) * (2 * number / config.steps - 1)
                return torch.where(mask[:, None], (images - size * slope.sign()).clamp(0, 1), clean)
            content = (total < 0).to(clean.dtype)
            gains = (total * (clean - content)).clamp(min=0).sum(dim=1)
            mask = torch.stack([self._best(own, int(m)) for own, m in zip(gains, radius.tolist(), strict=True)])
            return torch.where(mask[:, None] & (total != 0), content, clean)

        return step

    def tries(
        self, clean: Tensor, previous: Tensor, radius: Tensor, rngs: Sequence[Rng], config: AttackConfig
    ) -> Tries:
        """The mask moved, or its content repainted, in turn: with colours, or as another image is there."""
        pixels, sizes = clean.cpu().numpy(), [int(m) for m in radius.tolist()]
        found = zip(pixels, previous.cpu().numpy(), sizes, rngs, strict=True)
        tried = kept = [self._painted(image, before, m, rng) for image, before, m, rng in found]
        for number in range(config.tries):
            gain = yield _filled(clean, tried)
            wins = (gain >= 0).tolist()  # of equals the new one, to leave a plateau
            kept = [new if won else old for old, new, won in zip(kept, tried, wins, strict=True)]
            left, tried = 1 - number / config.tries, []
            for index, ((mask, content), m, rng) in enumerate(zip(kept, sizes, rngs, strict=True)):
                if number % 2 == 0:
                    tried.append((self._moved(mask, m, mask.shape, rng, left), content))
                    continue
                paint = self._colours(content.shape, rng)
                if number % 4 == 1 and len(pixels) > 1:
                    paint = _other(pixels, index, rng)
                tried.append((mask, np.where(self._region(mask.shape, rng, left), paint, content)))
        yield _filled(clean, tried)

    def _painted(self, image: Values, found: Values, m: int, rng: Rng) -> tuple[Mask, Values]:
        """What a smaller radius found, in a mask of this size; a random mask where it found nothing."""
        changed = np.any(found != image, axis=0)
        mask = self._moved(changed if changed.any() else None, m, changed.shape, rng, 0.0)
        return mask, np.where(changed, found, self._colours(image.shape, rng))


class Pixels(Masks):
    """Masks of at most m pixel positions, anywhere."""

    def distances(self, clean: Tensor, images: Tensor) -> Tensor:
        """How many pixels differ."""
        return (clean != images).any(dim=1).sum(dim=(1, 2)).to(torch.float64)

    def _best(self, gains: Tensor, m: int) -> Tensor:
        mask = torch.zeros_like(gains, dtype=torch.bool)
        mask.view(-1)[gains.flatten().topk(min(m, gains.numel())).indices] = True
        return mask

    def _moved(self, mask: Mask | None, m: int, shape: tuple[int, ...], rng: Rng, left: float) -> Mask:
        """Any m pixels; all but a fraction `left` / 2 of an earlier mask stay, at least one if any."""
        scores = rng.random(shape)
        if mask is not None:
            kept = rng.permutation(np.flatnonzero(mask))
            scores.flat[kept[math.ceil(0.5 * left * len(kept)) :]] += 1
        chosen = np.zeros(shape, dtype=np.bool_)
        chosen.flat[np.argsort(-scores, axis=None)[:m]] = True
        return chosen

    def _region(self, shape: tuple[int, ...], rng: Rng, left: float) -> Mask:
        return np.asarray(rng.random(shape) < 0.1 + 0.4 * left)

    def _colours(self, shape: tuple[int, ...], rng: Rng) -> Values:
        return rng.integers(0, 2, shape).astype(np.float32)


class Patch(Masks):
    """Masks of one square with sides of m pixels, anywhere inside the image."""

    def distances(self, clean: Tensor, images: Tensor) -> Tensor:
        """The side of the smallest square."""
        changed = (clean != images).any(dim=1)
        return torch.stack([_extent(changed.any(dim=axis)) for axis in (1, 2)]).amax(dim=0).to(torch.float64)

    def _best(self, gains: Tensor, m: int) -> Tensor:
        height, width = gains.shape
        side = (min(m, height), min(m, width))
        sums = functional.avg_pool2d(gains[None, None].to(torch.float64), side, stride=1)[0, 0]
        top, start = divmod(int(sums.argmax()), sums.shape[1])
        mask = torch.zeros_like(gains, dtype=torch.bool)
        mask[top : top + m, start : start + m] = True
        return mask

    def _moved(self, mask: Mask | None, m: int, shape: tuple[int, ...], rng: Rng, left: float) -> Mask:
        """A square, at most a fraction `left` / 2 of the image away from an earlier one."""
        corner = [int(rng.integers(0, max(1, size - m + 1))) for size in shape]
        if mask is not None:
            first = [int(np.flatnonzero(mask.any(axis=1 - axis))[0]) for axis in (0, 1)]
            reach = [math.ceil(left * size / 2) for size in shape]
            steps = [int(rng.integers(-far, far + 1)) for far in reach]
            places = zip(first, steps, shape, strict=True)
            corner = [min(max(0, place + step), max(0, size - m)) for place, step, size in places]
        chosen = np.zeros(shape, dtype=np.bool_)
        chosen[corner[0] : corner[0] + m, corner[1] : corner[1] + m] = True
        return chosen

    def _region(self, shape: tuple[int, ...], rng: Rng, left: float) -> Mask:
        return _random_square(shape, rng, left)

    def _colours(self, shape: tuple[int, ...], rng: Rng) -> Values:
        return np.broadcast_to(rng.integers(0, 2, (shape[0], 1, 1)), shape).astype(np.float32)


def _direction(clean: Values, index: int, rng: Rng, number: int, left: float) -> Values:
    """Where to go from one image: each kind of step in turn, as far as its shape and its group allow."""
    image, shape = clean[index], clean.shape[1:]
    other = _other(clean, index, rng) if len(clean) > 1 else 1 - image
    if len(shape) != _IMAGE_DIMENSIONS:
        return other - image if number % 2 else rng.standard_normal(shape, dtype=np.float32)
    if number % 4 == 0:
        return np.asarray(other - image)
    if number % 4 == 1:
        return _smooth_noise(shape, rng)
    square = np.broadcast_to(_random_square(shape[1:], rng, left), shape)
    flat = np.broadcast_to(image[square].reshape(shape[0], -1).mean(axis=1)[:, None, None], shape)
    return np.where(square, (other if number % 4 == 2 else flat) - image, np.float32(0))


def _other(clean: Values, index: int, rng: Rng) -> Values:
    """Another image of the group."""
    return np.asarray(clean[(index + int(rng.integers(1, len(clean)))) % len(clean)])


def _smooth_noise(shape: tuple[int, ...], rng: Rng) -> Values:
    channels, height, width = shape
    coarse = rng.standard_normal((channels, -(-height // _BLOCK), -(-width // _BLOCK)), dtype=np.float32)
    return coarse.repeat(_BLOCK, axis=1).repeat(_BLOCK, axis=2)[:, :height, :width]


def _random_square(shape: tuple[int, ...], rng: Rng, left: float) -> Mask:
    """The mask of a random square, smaller from try to try."""
    height, width = shape
    side = max(1, round(min(height, width) * (0.2 + 0.4 * left)))
    top, start = int(rng.integers(0, height - side + 1)), int(rng.integers(0, width - side + 1))
    mask = np.zeros(shape, dtype=np.bool_)
    mask[top : top + side, start : start + side] = True
    return mask


def _extent(changed: Tensor) -> Tensor:
    """(P,), from the first to the last of the changed places; 0 where none is. `changed` is (P, places)."""
    places = torch.arange(changed.shape[1], device=changed.device)
    last = torch.where(changed, places, -1).amax(dim=1)
    first = torch.where(changed, places, changed.shape[1]).amin(dim=1)
    return (last - first + 1).clamp(min=0)


def _filled(clean: Tensor, painted: Sequence[tuple[Mask, Values]]) -> Tensor:
    """The images with this content in their masks, (height, width); the content is an image of its own."""
    mask, content = (torch.from_numpy(np.stack(each)).to(clean.device) for each in zip(*painted, strict=True))
    return torch.where(mask[:, None], content, clean)


def _finite(values: Tensor) -> Tensor:
    """The values, with 0 for those that are not finite."""
    return torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def per_image(values: Tensor, images: Tensor) -> Tensor:
    """(P,) values in a shape that spreads over the images."""
    return values.view(-1, *(1 for _ in images.shape[1:]))


def _rescale(perturbations: Tensor, factors: Tensor) -> Tensor:
    """Each perturbation times its own factor."""
    return perturbations * per_image(factors.to(perturbations.dtype), perturbations)


Threat = Ball | Masks
Attacker = Literal["l2-norm", "linf-norm", "l1-norm", "pixels", "patch"]
_BALLS: dict[str, Threat] = {"l2-norm": Ball(2), "linf-norm": Ball(math.inf), "l1-norm": Ball(1)}
THREATS = {**_BALLS, "pixels": Pixels(), "patch": Patch()}
