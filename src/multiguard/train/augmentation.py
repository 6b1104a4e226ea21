"""Crops, flips, colours, mixing and noise on the device, drawn per image from seeds that a key decides."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from multiguard.certify.noise import HIDDEN, Noise

ORDER, STEP, VALIDATION, MODEL = range(4)  # the second part of a key, after the seed
_STRETCH = 4 / 3  # the largest ratio of a crop's sides
_LUMA = (0.299, 0.587, 0.114)  # of red, green and blue in the brightness that is seen
_GREY = 0.05  # the fraction of recoloured images that lose all colour
_BOX = (0.1, 0.5)  # the fraction of an image's area that CutMix replaces


def derived_seed(*key: int) -> int:
    """Return a 63-bit seed that depends on every part of the key and on nothing else, such as earlier draws."""
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "big") >> 1


def add_noise(
    images: Tensor, noise: Noise | None, generator: torch.Generator, sigma_max: float | None = None
) -> Tensor:
    """Put the noise on images (B, channels, height, width), without clamping; None returns the same tensor.

    A band ablation keeps a random one of its bands in each image. With `sigma_max`, the sigma of Gaussian noise is
    drawn for each image, log-uniformly from the given one to this.
    """
    return images if noise is None else noise.sample(_Noise(images, generator, sigma_max))


class _Noise:
    """A `Sampler` that puts a new draw of a noise on each of the images."""

    def __init__(self, images: Tensor, generator: torch.Generator, sigma_max: float | None) -> None:
        self._images, self._sigma_max = images, sigma_max
        self._how: Any = {"generator": generator, "device": images.device}

    def gaussian(self, sigma: float) -> Tensor:
        """N(0, sigma^2) added to each value."""
        drawn = torch.randn(self._images.shape, dtype=self._images.dtype, **self._how)
        if self._sigma_max is None:
            return self._images.add(drawn, alpha=sigma)
        place = torch.rand(len(drawn), 1, 1, 1, dtype=drawn.dtype, **self._how)
        return self._images.addcmul(drawn, sigma * (self._sigma_max / sigma) ** place)

    def uniform(self, half_width: float) -> Tensor:
        """A uniform number added to each value."""
        drawn = torch.rand(self._images.shape, dtype=self._images.dtype, **self._how)
        return self._images.add(drawn.mul_(2).sub_(1), alpha=half_width)

    def pixels(self, keep: int, pixels: int) -> Tensor:
        """All but this many pixels hidden."""
        keys = torch.rand(len(self._images), pixels, **self._how)
        return self._hide(keys > keys.kthvalue(keep, dim=1, keepdim=True).values, self._images.shape[2:])

    def band(self, width: int, columns: int) -> Tensor:
        """All columns outside a random band hidden."""
        starts = torch.randint(columns, (len(self._images), 1), **self._how)
        places = torch.arange(columns, device=self._images.device) - starts
        return self._hide(torch.remainder(places, columns) >= width, (1, columns))

    def _hide(self, hidden: Tensor, shape: Sequence[int]) -> Tensor:
        return torch.where(hidden.view(-1, 1, *shape), HIDDEN, self._images)


def augment(
    images: Tensor,
    generator: torch.Generator,
    *,
    crop: float = 1.0,
    shift: int = 0,
    flip: bool = False,
    colour: float = 0.0,
) -> Tensor:
    """Crop, shift, flip and recolour each of the float images (B, 3, height, width) by a draw of its own.

    A crop keeps a uniformly drawn fraction of the area. Black fills in after a shift; with crops, the edge is repeated.
    Brightness, contrast and saturation are scaled by 1 - colour to 1 + colour, one image in twenty becomes grey, and
    the result is clamped to [0, 1].
    """
    moved = _move(images, crop, shift, flip, generator)
    return moved if colour == 0 else _recolour(moved, colour, generator)


def cutmix(images: Tensor, targets: Tensor, probability: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """With this probability a box of an image is replaced by another one's; targets mix by their areas (CutMix)."""
    if probability == 0:
        return images, targets
    count, _, height, width = images.shape
    draws = torch.rand(4, count, 1, 1, 1, generator=generator, device=images.device, dtype=images.dtype)
    other = torch.randperm(count, generator=generator, device=images.device)
    sides = (_BOX[0] + (_BOX[1] - _BOX[0]) * draws[0]).sqrt()
    inside = _in_box(sides, draws[1], height, -2) & _in_box(sides, draws[2], width, -1) & (draws[3] < probability)
    replaced = inside.to(targets.dtype).mean((1, 2, 3)).view(-1, 1)
    return torch.where(inside, images[other], images), (1 - replaced) * targets + replaced * targets[other]


def _in_box(sides: Tensor, place: Tensor, extent: int, axis: int) -> Tensor:
    """Along one axis, which pixels' centres lie in a box with this side, as a fraction, at a random place."""
    shape = [1, 1, 1, 1]
    shape[axis] = extent
    centres = ((torch.arange(extent, device=sides.device, dtype=sides.dtype) + 0.5) / extent).view(shape)
    start = (1 - sides) * place
    return (centres >= start) & (centres < start + sides)


def _recolour(images: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    draws = torch.rand(4, len(images), 1, 1, 1, generator=generator, device=images.device, dtype=images.dtype)
    brightness, contrast, saturation = 1 + strength * (2 * draws[:3] - 1)
    saturation = torch.where(draws[3] < _GREY, 0.0, saturation)
    images = images * brightness
    mean = images.mean((1, 2, 3), keepdim=True)
    images = mean + contrast * (images - mean)
    grey = (images * images.new_tensor(_LUMA).view(3, 1, 1)).sum(1, keepdim=True)
    recoloured: Tensor = grey + saturation * (images - grey)
    return recoloured.clamp(0, 1)


def _move(images: Tensor, crop: float, shift: int, flip: bool, generator: torch.Generator) -> Tensor:
    if crop >= 1 and shift == 0 and not flip:
        return images
    transforms = _draw_transforms(images, crop, shift, flip, generator)
    grid = functional.affine_grid(transforms, list(images.shape), align_corners=False)
    padding = "border" if crop < 1 else "zeros"  # a crop's outer samples lie half a pixel outside
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode=padding, align_corners=False)


def _draw_transforms(images: Tensor, crop: float, shift: int, flip: bool, generator: torch.Generator) -> Tensor:
    """(B, 2, 3) affine maps from result coordinates to image coordinates, both in [-1, 1]."""
    count, _, height, width = images.shape
    draws = torch.rand(7, count, generator=generator, device=images.device, dtype=images.dtype)
    scale_x, scale_y = _crop_sides(draws[0], draws[1], crop)
    center_x = (1 - scale_x) * (2 * draws[2] - 1) + _shift(draws[4], shift, width)
    center_y = (1 - scale_y) * (2 * draws[3] - 1) + _shift(draws[5], shift, height)
    mirror = torch.where(draws[6] < 0.5, -1.0, 1.0) if flip else torch.ones_like(draws[6])
    zero = torch.zeros_like(scale_x)
    return torch.stack((scale_x * mirror, zero, center_x, zero, scale_y, center_y), dim=1).view(count, 2, 3)


def _crop_sides(area_draw: Tensor, stretch_draw: Tensor, least_area: float) -> tuple[Tensor, Tensor]:
    """The width and height of each crop as fractions of the image's, neither above 1."""
    side = (least_area + (1 - least_area) * area_draw).sqrt()
    if least_area >= 1:
        return side, side
    stretch = torch.exp((2 * stretch_draw - 1) * (math.log(_STRETCH) / 2))
    return (side * stretch).clamp(max=1), (side / stretch).clamp(max=1)


def _shift(draw: Tensor, largest: int, extent: int) -> Tensor:
    """A number of pixels from -largest to largest, as a length on the [-1, 1] axis."""
    return ((2 * largest + 1) * draw).floor().sub(largest).mul(2 / extent)
