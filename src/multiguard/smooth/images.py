"""What a caller hands in as an image, checked and brought to the device."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.errors import InvalidInputError

Image = NDArray[np.generic] | Tensor
_IMAGE = 3


def as_input(image_id: str, image: Image, image_size: tuple[int, int] | None) -> Tensor:
    """The image as a finite uint8 or float32 tensor of the classifier's size; anything else is refused by its id."""
    tensor = _as_tensor(image_id, image)
    if tensor.dtype != torch.uint8:
        if not tensor.is_floating_point():
            raise InvalidInputError(f"image {image_id!r} must be uint8 or floating point, not {tensor.dtype}.")
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidInputError(f"image {image_id!r} holds a NaN or an infinite value.")
        tensor = tensor.to(torch.float32)
    if tensor.ndim == 0 or tensor.numel() == 0:
        raise InvalidInputError(f"image {image_id!r} has shape {tuple(tensor.shape)}; it must hold values.")
    if image_size is not None and tensor.ndim == _IMAGE and tuple(tensor.shape[1:]) != image_size:
        raise InvalidInputError(
            f"image {image_id!r} is {tuple(tensor.shape[1:])} (height, width), but the classifier takes "
            f"{image_size}; resize it first."
        )
    return tensor


def _as_tensor(image_id: str, image: object) -> Tensor:
    if isinstance(image, Tensor):
        return image.detach()
    if not isinstance(image, np.ndarray) or image.dtype.kind not in "uif":
        given = f"an array of {image.dtype}" if isinstance(image, np.ndarray) else f"a {type(image).__name__}"
        raise InvalidInputError(
            f"image {image_id!r} must be a NumPy array or a tensor of numbers, not {given}; use np.asarray(image)."
        )
    return torch.from_numpy(np.ascontiguousarray(image))


def placed(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on the device: the caller may change the image while its rows still wait."""
    if device.type != "cuda" or tensor.device.type == "cuda":
        return tensor.to(device, copy=True)
    # What is pinned already would be read by the device later, when it may have changed.
    own = tensor.clone() if tensor.is_pinned() else tensor
    return own.pin_memory().to(device, non_blocking=True)
