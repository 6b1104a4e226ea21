"""One batch: images + noise -> classifier -> votes of each row, without waiting for the device."""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FunctionType
from typing import ParamSpec, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from multiguard.data.image import image_hash
from multiguard.errors import InvalidInputError, ModelError
from multiguard.models.classifier import Classifier
from multiguard.smooth.noise_source import HOST_PHILOX, HostNoise, key_words
from multiguard.smooth.philox import device_noise
from multiguard.smooth.settings import DTYPES, Settings
from multiguard.smooth.stream import Batch, Job, Segment, Step

P = ParamSpec("P")
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


_BATCH_DIMENSIONS = 4  # (B, channels, height, width)
_MAX_GRAPHS = 64


def make_step(classifier: Classifier, settings: Settings) -> Step:
    """The function that turns (batch, size) into votes: (size, width + 1) integers on the device.

    The votes come from `rank_labels` or `pack_labels`. Rows beyond `batch.rows` are padding: they repeat the last row
    and keep one shape for a compiled graph. Threads may share a step; their batches take turns.
    """
    return _step(_make_voter(classifier, settings), settings)


def noisy_images(jobs: Sequence[Job], settings: Settings, draws: int = 1) -> Tensor:
    """What the classifier gets in the first draws of each of these jobs, whose images have one shape and one dtype."""
    plain = replace(settings, compiled=False, noise_compiled=False)
    batch = Batch(tuple(Segment(job, 0, draws) for job in jobs))
    return _step(torch.clone, plain)(batch, batch.rows)


def _step(function: Callable[[Tensor], Tensor], settings: Settings) -> Step:
    """A batch with its noise, given to a function."""
    return (_HostStep if settings.noise_source == HOST_PHILOX else _DeviceStep)(function, settings)


def rank_labels(scores: Tensor, k_max: int) -> Tensor:
    """The K' labels with the largest scores of each row, best first; ties go to the smaller index.

    The tie rule makes f a fixed function, which the certificate needs. The result is (B, K' + 1) int32; its last
    column is 1 where every score of the row is finite, else 0.

    >>> rank_labels(torch.tensor([[0.1, 0.9, 0.9]]), k_max=2).tolist()  # labels 1 and 2; all scores are finite
    [[1, 2, 1]]
    """
    order = torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :k_max]
    finite = torch.isfinite(scores).all(dim=1, keepdim=True)
    return torch.cat([order, finite.to(order.dtype)], dim=1).to(torch.int32)


def pack_labels(scores: Tensor, limit: float) -> Tensor:
    """The set of labels of each row whose score, as float32, is at least `limit`, one bit per label.

    The result is (B, ceil(c / 8) + 1) uint8: label i is bit i % 8, lowest first, of byte i // 8; bits beyond c are 0.
    The last column is 1 where every score of the row is finite, else 0.

    >>> pack_labels(torch.tensor([[0.1, 0.9, 0.9]]), limit=0.5).tolist()  # labels 1 and 2, bits 2 and 4
    [[6, 1]]
    """
    passes = (scores.to(torch.float32) >= limit).to(torch.int32)
    octets = functional.pad(passes, (0, -scores.shape[1] % 8)).reshape(len(scores), -1, 8)
    packed = (octets << torch.arange(8, dtype=torch.int32, device=scores.device)).sum(dim=2)
    finite = torch.isfinite(scores).all(dim=1, keepdim=True)
    return torch.cat([packed, finite.to(packed.dtype)], dim=1).to(torch.uint8)


def score_limit(classifier: Classifier, score_threshold: float) -> float:
    """The float32 that scores are compared with: the threshold itself, or its logit where scores are logits."""
    if classifier.output is None:
        kinds = "--output logits or probabilities (output=...)"
        raise ModelError(f"{classifier.name}: a score threshold needs to know what its scores are; declare {kinds}")
    logit = math.log(score_threshold) - math.log1p(-score_threshold)
    return float(np.float32(score_threshold if classifier.output == "probabilities" else logit))


def check_scores(scores: object, rows: int, labels: int) -> None:
    """Raises `ModelError` unless these are one floating-point score per row and label; no value is read."""
    expected = f"expected a floating-point tensor of shape ({rows}, {labels}), one score per image and label"
    if not isinstance(scores, Tensor):
        raise ModelError(f"it returned {type(scores).__name__}, {expected}")
    if tuple(scores.shape) != (rows, labels):
        fix = "; name its labels in the order of its scores (--labels)" if scores.ndim == 2 else ""
        raise ModelError(f"it returned shape {tuple(scores.shape)}, {expected}{fix}")
    if not scores.is_floating_point():
        raise ModelError(f"it returned {scores.dtype}, {expected}")


class _HostStep:
    """Noise made by NumPy, in one buffer that all batches share."""

    def __init__(self, function: Callable[[Tensor], Tensor], settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._noise = HostNoise(settings.noise, torch.get_num_threads())
        self._graph = _Graph(function, settings.compiled)
        self._buffer: NDArray[np.float32] = np.empty((0,), dtype=np.float32)
        self._pixels: dict[Job, NDArray[np.float32]] = {}

    def __call__(self, batch: Batch, size: int) -> Tensor:
        with self._lock:
            shape = batch.segments[0].job.image.shape
            if self._buffer.shape[1:] != shape or len(self._buffer) < size:
                self._buffer = np.zeros((size, *shape), dtype=np.float32)
            noisy = self._buffer[:size]
            self._perturb(batch, noisy[: batch.rows])
            noisy[batch.rows :] = noisy[batch.rows - 1]
            tensor = torch.from_numpy(noisy).to(self._settings.device)
            if self._settings.clamp:
                tensor.clamp_(0, 1)
            return self._graph(tensor.shape[1:], (tensor,))

    def _perturb(self, batch: Batch, out: NDArray[np.float32]) -> None:
        known, jobs = self._pixels, [segment.job for segment in batch.segments]
        self._pixels = {job: known[job] if job in known else to_pixels(job.image).cpu().numpy() for job in jobs}
        rows = [jobs[slot] for slot in batch.slots()]
        images, keys = [self._pixels[job] for job in rows], [job.key for job in rows]
        self._noise.perturb(images, keys, batch.draws().tolist(), out)
        for row in np.flatnonzero(~batch.noisy()):
            out[row] = images[row]


class _DeviceStep:
    """Noise made on the device, inside the classifier's graph where that is compiled."""

    def __init__(self, function: Callable[[Tensor], Tensor], settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        make_noisy = device_noise(settings.noise)

        def add_noise(slots: Tensor, words: Tensor, draws: Tensor, noisy_rows: Tensor, images: Tensor) -> Tensor:
            noisy = make_noisy(to_pixels(images[slots]), words, draws, noisy_rows)
            return noisy.clamp(0, 1) if settings.clamp else noisy

        perturb = _compile_if(settings.noise_compiled and not settings.compiled, add_noise)

        def vote_on(slots: Tensor, words: Tensor, draws: Tensor, noisy_rows: Tensor, images: Tensor) -> Tensor:
            return function(perturb(slots, words, draws, noisy_rows, images))

        self._graph = _Graph(vote_on, settings.compiled)
        self._table: tuple[tuple[Job, ...], Tensor, Tensor] | None = None

    def __call__(self, batch: Batch, size: int) -> Tensor:
        index = np.stack([batch.slots(), batch.draws(), batch.noisy()])
        padded = np.pad(index, ((0, 0), (0, size - batch.rows)), mode="edge")
        with self._lock:
            images, words = self._load(batch)
            slots, draws, noisy_rows = _send(padded, self._settings.device)
            rows = (slots, words[slots], draws, noisy_rows)
            return self._graph((images.shape[1:], images.dtype), rows, images)

    def _load(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The images of the batch and their key words on the device; kept while the images stay the same."""
        jobs = tuple(segment.job for segment in batch.segments)
        table = self._table
        if table is None or table[0] != jobs:
            words = np.array([key_words(job.key) for job in jobs], dtype=np.int32)
            images = torch.stack([job.image for job in (*jobs, jobs[-1])])  # torch.compile specializes on size 1
            if self._settings.compiled or self._settings.noise_compiled:
                torch._dynamo.maybe_mark_dynamic(images, 0)  # one graph for any number of images
            table = self._table = (jobs, images, _send(words, self._settings.device))
        return table[1:]


def _send(array: NDArray[np.generic], device: torch.device) -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def _make_voter(classifier: Classifier, settings: Settings) -> Callable[[Tensor], Tensor]:
    """From noisy images to votes."""
    labels, ranks = len(classifier.label_names), settings.k_max
    limit = None if settings.score_threshold is None else score_limit(classifier, settings.score_threshold)
    kind, dtype = settings.device.type, DTYPES[settings.precision]

    def vote(noisy: Tensor) -> Tensor:
        if settings.channels_last and noisy.ndim == _BATCH_DIMENSIONS:
            noisy = noisy.contiguous(memory_format=torch.channels_last)
        with torch.autocast(kind, dtype, enabled=dtype != torch.float32):
            scores = classifier(noisy)
        if not torch.compiler.is_compiling():
            check_scores(scores, len(noisy), labels)
        if limit is not None:
            return pack_labels(scores, limit)
        assert ranks is not None
        return rank_labels(scores, ranks)

    return vote


class _Graph:
    """A function of tensors, compiled on request.

    A compiled graph cannot check what the classifier returns, so the first two rows of each new kind of input run
    uncompiled first, as copies.
    """

    def __init__(self, function: Callable[..., Tensor], compiled: bool) -> None:
        self._eager = function
        self._compiled = _compile_if(compiled, function)
        self._seen: set[object] = set()

    def __call__(self, kind: object, rows: tuple[Tensor, ...], *tables: Tensor) -> Tensor:
        """The function of these tensors; `rows` have one entry per row of the batch."""
        if self._compiled is not self._eager and kind not in self._seen:
            self._eager(*(row[:2].clone() for row in rows), *tables)
            self._seen.add(kind)
        return self._compiled(*rows, *tables)


def _compile_if(wanted: bool, function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """The function, compiled if wanted; past the limit of graphs it raises, and never runs uncompiled silently."""
    if not wanted:
        return function
    assert isinstance(function, FunctionType)
    code = function.__code__.replace()  # a copy, since the compiler limits the number of graphs per code object
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    compiled = cast(Callable[P, Tensor], torch.compile(copy, dynamic=False))

    def run(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        try:
            with torch._dynamo.config.patch(recompile_limit=_MAX_GRAPHS, fail_on_recompile_limit_hit=True):
                return compiled(*args, **kwargs)
        except torch._dynamo.exc.FailOnRecompileLimitHit as error:
            raise ModelError(
                f"it was compiled for {_MAX_GRAPHS} image shapes, the limit; resize images to one size first, "
                "or use compile=False"
            ) from error

    return run
