"""The l2-ball around an image, in the very numbers that the classifier is given."""

import torch
from torch import Tensor

_INWARD = 1e-6  # what float32 may add to a norm when a change is added to an image


def lengths(change: Tensor) -> Tensor:
    """(P,) float64, the l2-norm of each change."""
    found: Tensor = torch.linalg.vector_norm(change.flatten(1).to(torch.float64), dim=1)
    return found


def norms(clean: Tensor, image: Tensor) -> Tensor:
    """(P,) float64, the l2-norm of what was added to each image, without rounding the difference."""
    return lengths(image.to(torch.float64) - clean.to(torch.float64))


def scaled(change: Tensor, factors: Tensor) -> Tensor:
    """Each change times its own factor."""
    return change * factors.to(change.dtype).view(-1, *(1 for _ in change.shape[1:]))


def unit(change: Tensor) -> Tensor:
    """Each change at length 1; one of length 0, or that is not finite, becomes 0."""
    finite = torch.nan_to_num(change, nan=0.0, posinf=0.0, neginf=0.0)
    return scaled(finite, 1 / lengths(finite).clamp(min=1e-30))


def within(clean: Tensor, image: Tensor, radius: Tensor, *, box: bool, onto: bool = False) -> Tensor:
    """The image moved so that what is added to the clean one has, in float32 as it is, at most the norm allowed.

    Args:
        clean: (P, ...) the images as they are.
        image: (P, ...) what they are to become.
        radius: (P,) float64, the norms allowed.
        box: Whether to stay in [0, 1] as well.
        onto: Whether a shorter change is made as long as allowed.
    """
    change = image - clean
    if onto:
        change = scaled(unit(change), radius)
    if box:
        change = (clean + change).clamp(0, 1) - clean
    inward = torch.full_like(radius, _INWARD)
    found = _shrunk(clean, change, radius, inward)
    while bool((outside := norms(clean, found) > radius).any()):
        inward = torch.where(outside, 2 * inward, inward)
        found = _shrunk(clean, change, radius, inward)
    return found


def _shrunk(clean: Tensor, change: Tensor, radius: Tensor, inward: Tensor) -> Tensor:
    """The image after the change, which is cut to a little less than the radius where it is longer."""
    factors = (radius * (1 - inward).clamp(min=0) / lengths(change).clamp(min=1e-30)).clamp(max=1.0)
    return clean + scaled(change, factors)
