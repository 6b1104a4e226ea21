"""What a user gives as an image, as a tensor on the device."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.data.image import image_hash
from multiguard.errors import InvalidInputError

Image = NDArray[np.generic] | Tensor
_IMAGE_DIMENSIONS = 3


def to_pixels(images: Tensor) -> Tensor:
    """float32 values; a uint8 value x becomes x / 255."""
    return images.to(torch.float32) / 255 if images.dtype == torch.uint8 else images


def image_tensor(image_id: str, image: Image, image_size: tuple[int, int] | None) -> Tensor:
    """The image as a finite float32 tensor, or uint8 pixels, of the classifier's size; any other raises an error.

    Only (channels, height, width) are pixels: other uint8 values, such as a row of a table, are taken as they are.
    """
    tensor = image.detach() if isinstance(image, Tensor) else _from_array(image_id, image)
    if tensor.dtype == torch.uint8 and tensor.ndim != _IMAGE_DIMENSIONS:
        tensor = tensor.to(torch.float32)
    if tensor.dtype != torch.uint8:
        if not tensor.is_floating_point():
            raise InvalidInputError(f"image {image_id!r} must be uint8 or floating point, not {tensor.dtype}.")
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidInputError(f"image {image_id!r} contains a NaN or infinite value.")
        tensor = tensor.to(torch.float32)
    if tensor.ndim == 0 or tensor.numel() == 0:
        raise InvalidInputError(f"image {image_id!r} has shape {tuple(tensor.shape)}; it must contain values.")
    if image_size is not None and tensor.ndim == _IMAGE_DIMENSIONS and tuple(tensor.shape[1:]) != image_size:
        raise InvalidInputError(
            f"image {image_id!r} is {tuple(tensor.shape[1:])} (height, width), but the classifier takes "
            f"{image_size}; resize it first."
        )
    return tensor


def content_id(image: Image) -> str:
    """The hash of the image's values, an id for an image that has none."""
    return image_hash(image.detach().cpu().numpy() if isinstance(image, Tensor) else np.asarray(image))


def _from_array(image_id: str, image: object) -> Tensor:
    if not isinstance(image, np.ndarray) or image.dtype.kind not in "uif":
        given = f"an array of {image.dtype}" if isinstance(image, np.ndarray) else f"a {type(image).__name__}"
        raise InvalidInputError(
            f"image {image_id!r} must be a NumPy array or a tensor of numbers, not {given}; use np.asarray(image)."
        )
    return torch.from_numpy(np.ascontiguousarray(image))


def copy_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on the device: the caller may overwrite the image while its rows still wait.

    NumPy copies on the host, in this thread. Torch would share the work with threads of its own, and wait for them
    longer than the copy takes where other processes are busy: those that decide on adaptive draws.
    """
    if tensor.device.type != "cpu":
        return tensor.to(device, copy=True)
    pinned = device.type == "cuda"
    copy = torch.empty_like(tensor, memory_format=torch.contiguous_format, pin_memory=pinned)
    np.copyto(copy.numpy(), tensor.resolve_neg().numpy())
    return copy.to(device, non_blocking=pinned)
