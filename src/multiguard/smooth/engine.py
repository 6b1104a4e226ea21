"""One batch: images + noise -> classifier -> votes of each row, in NumPy arrays; `torch_engine` is the other engine."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from multiguard.data.image import image_hash
from multiguard.errors import InvalidInputError
from multiguard.models.classifier import Classifier, check_scores
from multiguard.models.onnx import processors
from multiguard.smooth.config import Settings, score_limit
from multiguard.smooth.noise_source import HostNoise, Pixels
from multiguard.smooth.stream import Batch, Job

Image = Any  # an array, or a torch tensor
Votes = NDArray[np.integer]
_IMAGE_DIMENSIONS = 3


class Engine(Protocol):
    """From a batch to the votes of its rows, (size, width + 1) integers: the result of `rank_labels` or `pack_labels`.

    Rows beyond `batch.rows` are padding: they repeat the last row. Threads may share an engine; their batches take
    turns.
    """

    def prepare(self, batch: Batch, size: int) -> "Future[Pixels] | None":
        """Begin with a batch that `launch` will be given next."""

    def launch(self, batch: Batch, size: int, prepared: "Future[Pixels] | None" = None) -> tuple[Votes, Any]:
        """The votes, and the event that says when they have arrived on the host; None where they have."""

    def noisy(self, batch: Batch) -> Pixels:
        """What the classifier gets."""

    def scores(self, inputs: Pixels) -> NDArray[Any]:
        """The scores of these inputs, in plain float32; others than one per label raise `ModelError`."""


def to_pixels(image: NDArray[Any]) -> Pixels:
    """float32 values; a uint8 value x becomes x / 255."""
    return image.astype(np.float32) / np.float32(255) if image.dtype == np.uint8 else image


def image_array(image_id: str, image: Image, image_size: tuple[int, int] | None) -> NDArray[Any]:
    """The image as finite float32 values, or uint8 pixels, of the classifier's size; any other raises an error.

    Only (channels, height, width) are pixels: other uint8 values, such as a row of a table, are taken as they are.
    """
    array: Any = _host_array(image)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "uif":
        given = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else f"a {type(image).__name__}"
        raise InvalidInputError(
            f"image {image_id!r} must be a NumPy array or a tensor of numbers, not {given}; use np.asarray(image)."
        )
    if array.dtype == np.uint8 and array.ndim != _IMAGE_DIMENSIONS:
        array = array.astype(np.float32)
    if array.dtype != np.uint8:
        if array.dtype.kind != "f":
            raise InvalidInputError(f"image {image_id!r} must be uint8 or floating point, not {array.dtype}.")
        if not np.isfinite(array).all():
            raise InvalidInputError(f"image {image_id!r} contains a NaN or infinite value.")
        array = array.astype(np.float32, copy=False)
    if array.ndim == 0 or array.size == 0:
        raise InvalidInputError(f"image {image_id!r} has shape {array.shape}; it must contain values.")
    if image_size is not None and array.shape[1:] != image_size and array.ndim >= _IMAGE_DIMENSIONS:
        fix = "resize it first"
        if array.ndim > _IMAGE_DIMENSIONS:
            fix = "give one image of a batch, such as images[0]"
        elif array.shape[2] < array.shape[0]:
            fix = "its channels come last: use image.transpose(2, 0, 1)"
        raise InvalidInputError(
            f"image {image_id!r} has shape {array.shape}, but the classifier takes (channels, height, width) with "
            f"{image_size[0]} x {image_size[1]} pixels; {fix}."
        )
    return cast(NDArray[Any], array)


def _host_array(image: Image) -> Any:
    """A tensor as an array on the host; anything else as it is."""
    if not hasattr(image, "detach"):
        return image
    tensor = image.detach().cpu().resolve_neg()
    half = tensor.is_floating_point() and tensor.element_size() < 4  # bfloat16 is unknown to NumPy
    return (tensor.float() if half else tensor).numpy()


def content_id(image: Image) -> str:
    """The hash of the image's values, an id for an image that has none."""
    return image_hash(np.asarray(_host_array(image)))


def rank_labels(scores: NDArray[Any], k_max: int) -> Votes:
    """The K' labels with the largest scores of each row, best first; ties go to the smaller index.

    The tie rule makes f a fixed function, which the certificate needs. The result is (B, K' + 1) int32; its last
    column is 1 where every score of the row is finite, else 0.

    >>> rank_labels(np.array([[0.1, 0.9, 0.9]]), k_max=2).tolist()  # labels 1 and 2; all scores are finite
    [[1, 2, 1]]
    """
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k_max]
    return np.column_stack([order, np.isfinite(scores).all(axis=1)]).astype(np.int32)


def pack_labels(scores: NDArray[Any], limit: float) -> Votes:
    """The set of labels of each row whose score, as float32, is at least `limit`, one bit per label.

    The result is (B, ceil(c / 8) + 1) uint8: label i is bit i % 8, lowest first, of byte i // 8; bits beyond c are 0.
    The last column is 1 where every score of the row is finite, else 0.

    >>> pack_labels(np.array([[0.1, 0.9, 0.9]]), limit=0.5).tolist()  # labels 1 and 2, bits 2 and 4
    [[6, 1]]
    """
    packed = np.packbits(scores.astype(np.float32) >= np.float32(limit), axis=1, bitorder="little")
    return np.column_stack([packed, np.isfinite(scores).all(axis=1)]).astype(np.uint8)


def make_engine(classifier: Classifier, settings: Settings) -> Engine:
    """The engine that runs a classifier."""
    if classifier.takes == "tensors":
        from multiguard.smooth.torch_engine import make_torch_engine

        return make_torch_engine(classifier.module(), settings)
    return ArrayEngine(classifier, settings, classifier.scores)


class ArrayEngine:
    """Noise by NumPy, made in a thread while the classifier works on the batch before; then its scores and votes."""

    def __init__(self, classifier: Classifier, settings: Settings, network: Callable[[Pixels], NDArray[Any]]) -> None:
        self._classifier, self._settings, self._network = classifier, settings, network
        self._limit = None if settings.score_threshold is None else score_limit(classifier, settings.score_threshold)
        self._noise = HostNoise(settings.noise, processors())
        self._maker = ThreadPoolExecutor(1, "noise")
        self._turn = threading.Lock()
        self._free: list[Pixels] = []  # buffers that no batch uses
        self._pixels: dict[Job, Pixels] = {}

    def prepare(self, batch: Batch, size: int) -> Future[Pixels]:
        """The noisy inputs, which a thread makes."""
        return self._maker.submit(self._fill, batch, size)

    def launch(self, batch: Batch, size: int, prepared: Future[Pixels] | None = None) -> tuple[Votes, None]:
        """The votes."""
        noisy = (prepared or self.prepare(batch, size)).result()
        if len(noisy) != size:
            noisy = self.prepare(batch, size).result()
        with self._turn:
            scores = self._network(noisy)
        check_scores(scores, len(noisy), len(self._classifier.label_names))
        votes = self._votes(scores)
        self._free.append(noisy)
        return votes, None

    def noisy(self, batch: Batch) -> Pixels:
        """What the classifier gets."""
        return self.prepare(batch, batch.rows).result()

    def scores(self, inputs: Pixels) -> NDArray[Any]:
        """The scores of these inputs."""
        scores = self._classifier.scores(inputs)
        check_scores(scores, len(inputs), len(self._classifier.label_names))
        return scores

    def _votes(self, scores: NDArray[Any]) -> Votes:
        if self._limit is not None:
            return pack_labels(scores, self._limit)
        assert self._settings.k_max is not None
        return rank_labels(scores, self._settings.k_max)

    def _fill(self, batch: Batch, size: int) -> Pixels:
        shape = (size, *batch.segments[0].job.image.shape)
        while self._free and self._free[-1].shape != shape:
            self._free.pop()
        noisy = self._free.pop() if self._free else np.empty(shape, dtype=np.float32)
        known, jobs = self._pixels, [segment.job for segment in batch.segments]
        self._pixels = {job: known[job] if job in known else to_pixels(job.image) for job in jobs}
        rows = [jobs[slot] for slot in batch.slots()]
        images, keys = [self._pixels[job] for job in rows], [job.key for job in rows]
        self._noise.perturb(images, keys, batch.draws().tolist(), noisy[: batch.rows])
        for row in np.flatnonzero(~batch.noisy()):
            noisy[row] = images[row]
        noisy[batch.rows :] = noisy[batch.rows - 1]
        return np.clip(noisy, 0, 1, out=noisy) if self._settings.clamp else noisy
