"""Crop, shift and flip on the device: one affine resampling a batch, another draw for every image."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Augmentation:
    """What may happen to a training image before the noise.

    Attributes:
        least_area: A crop keeps a uniformly drawn share of the area between this and 1; 1 for no crop.
        stretch: A crop's width over its height is up to this factor off the square, either way.
        shift: The image is moved by up to this many pixels each way; black fills in, or, beside crops, the edge.
        flip: Whether half of the images are mirrored left to right.
    """

    least_area: float = 0.5
    stretch: float = 4 / 3
    shift: int = 0
    flip: bool = True

    @property
    def idle(self) -> bool:
        """Whether nothing at all may happen."""
        return self.least_area >= 1 and self.shift == 0 and not self.flip


def augment(images: Tensor, how: Augmentation, generator: torch.Generator) -> Tensor:
    """The float images (B, 3, height, width), each cropped, shifted and flipped by its own draw."""
    if how.idle:
        return images
    transforms = _draw_transforms(images, how, generator)
    grid = functional.affine_grid(transforms, list(images.shape), align_corners=False)
    beyond = "border" if how.least_area < 1 else "zeros"  # a crop's outer samples lie half a pixel outside
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode=beyond, align_corners=False)


def _draw_transforms(images: Tensor, how: Augmentation, generator: torch.Generator) -> Tensor:
    """(B, 2, 3) maps from places of the result to places of the image, both in [-1, 1]."""
    count, _, height, width = images.shape
    draws = torch.rand(7, count, generator=generator, device=images.device, dtype=images.dtype)
    scale_x, scale_y = _crop_sides(draws[0], draws[1], how)
    center_x = (1 - scale_x) * (2 * draws[2] - 1) + _pixels(draws[4], how.shift, width)
    center_y = (1 - scale_y) * (2 * draws[3] - 1) + _pixels(draws[5], how.shift, height)
    mirror = torch.where(draws[6] < 0.5, -1.0, 1.0) if how.flip else torch.ones_like(draws[6])
    zero = torch.zeros_like(scale_x)
    rows = torch.stack((scale_x * mirror, zero, center_x, zero, scale_y, center_y), dim=1)
    return rows.view(count, 2, 3)


def _crop_sides(area_draw: Tensor, stretch_draw: Tensor, how: Augmentation) -> tuple[Tensor, Tensor]:
    """The width and the height of each crop as shares of the image's, neither above 1."""
    side = (how.least_area + (1 - how.least_area) * area_draw).sqrt()
    if how.least_area >= 1:
        return side, side
    stretch = torch.exp((2 * stretch_draw - 1) * (math.log(how.stretch) / 2))
    return (side * stretch).clamp(max=1), (side / stretch).clamp(max=1)


def _pixels(draw: Tensor, most: int, extent: int) -> Tensor:
    """Whole pixels from -most to most, as lengths on the [-1, 1] axis."""
    return ((2 * most + 1) * draw).floor().sub(most).mul(2 / extent)
