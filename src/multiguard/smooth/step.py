"""One batch: image + noise -> classifier -> the labels of each row, without waiting for the device."""

import math
import threading
from collections.abc import Callable
from types import FunctionType
from typing import ParamSpec, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from multiguard.errors import ModelError
from multiguard.models.classifier import Classifier
from multiguard.smooth.batches import Batch, Job
from multiguard.smooth.noise import HOST_PHILOX, HostNoise, key_words
from multiguard.smooth.philox import standard_normal
from multiguard.smooth.settings import DTYPES, Settings

P = ParamSpec("P")
_IMAGE = 4  # (B, channels, height, width)
_MOST_GRAPHS = 64


class Step(Protocol):
    """Turns a batch into its votes; threads may share it, their batches run one after the other."""

    def __call__(self, batch: Batch, size: int) -> Tensor:
        """(size, width + 1) whole numbers on the device: the votes of each row, and 1 where all its scores are finite.

        The votes are K' ranks in int32 (`rank_labels`) or a set in ceil(c / 8) uint8 (`pack_labels`). Rows beyond
        `batch.rows` are padding, which keeps one shape for a compiled graph.
        """


def make_step(classifier: Classifier, settings: Settings) -> Step:
    """The step of the chosen noise source."""
    return (HostStep if settings.noise == HOST_PHILOX else DeviceStep)(classifier, settings)


def rank_labels(scores: Tensor, k_max: int) -> Tensor:
    """The K' labels of largest score of each row, best first; of equal scores the smaller index comes first.

    The rule for ties makes f a fixed function, which the certificate needs.

    Returns:
        (B, K' + 1) int32; the last column is 1 where every score of the row is finite and 0 elsewhere.
    """
    order = torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :k_max]
    finite = torch.isfinite(scores).all(dim=1, keepdim=True)
    return torch.cat([order, finite.to(order.dtype)], dim=1).to(torch.int32)


def pack_labels(scores: Tensor, limit: float) -> Tensor:
    """The set of labels of each row whose score, as float32, is at least `limit`, one bit a label.

    Returns:
        (B, ceil(c / 8) + 1) uint8: label i is bit i % 8, lowest first, of byte i // 8; bits beyond c are 0. The last
        column is 1 where every score of the row is finite and 0 elsewhere.
    """
    passes = (scores.to(torch.float32) >= limit).to(torch.int32)
    bytes_of_bits = functional.pad(passes, (0, -scores.shape[1] % 8)).reshape(len(scores), -1, 8)
    places = torch.arange(8, dtype=torch.int32, device=scores.device)
    packed = (bytes_of_bits << places).sum(dim=2)
    finite = torch.isfinite(scores).all(dim=1, keepdim=True)
    return torch.cat([packed, finite.to(packed.dtype)], dim=1).to(torch.uint8)


def score_limit(classifier: Classifier, score_threshold: float) -> float:
    """What a score is compared with, a float32: the probability itself, or its logit where scores are logits."""
    logit = math.log(score_threshold) - math.log1p(-score_threshold)
    return float(np.float32(score_threshold if classifier.output == "probabilities" else logit))


def to_pixels(images: Tensor) -> Tensor:
    """float32 values; a uint8 image's x becomes x / 255."""
    return images.to(torch.float32) / 255 if images.dtype == torch.uint8 else images


class _Graph:
    """A function of tensors, compiled where that is wanted.

    A compiled graph cannot check what the classifier returns, so copies of two rows of each new kind of input
    run uncompiled before it.
    """

    def __init__(self, function: Callable[..., Tensor], compiled: bool) -> None:
        self._eager = function
        self._compiled = _maybe_compiled(function, compiled)
        self._seen: set[object] = set()

    def __call__(self, kind: object, few: tuple[Tensor, ...], rows: tuple[Tensor, ...]) -> Tensor:
        if self._compiled is not self._eager and kind not in self._seen:
            self._eager(*(tensor.clone() for tensor in few))
            self._seen.add(kind)
        return self._compiled(*rows)


class HostStep:
    """Noise made by NumPy into one buffer that every batch uses again."""

    def __init__(self, classifier: Classifier, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._noise = HostNoise(torch.get_num_threads())
        self._graph = _Graph(_voter(classifier, settings), settings.compiled)
        self._buffer: NDArray[np.float32] = np.empty((0,), dtype=np.float32)
        self._pixels: dict[Job, NDArray[np.float32]] = {}

    def __call__(self, batch: Batch, size: int) -> Tensor:
        """See `Step`; padding rows repeat the last row."""
        with self._lock:
            noisy = self._rows(size, batch.segments[0].job.image.shape)
            self._perturb(batch, noisy[: batch.rows])
            noisy[batch.rows :] = noisy[batch.rows - 1]
            tensor = torch.from_numpy(noisy).to(self._settings.device)
            if self._settings.clamp:
                tensor.clamp_(0, 1)
            return self._graph(tensor.shape[1:], (tensor[:2],), (tensor,))

    def _rows(self, rows: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
        if self._buffer.shape[1:] != shape or len(self._buffer) < rows:
            self._buffer = np.zeros((rows, *shape), dtype=np.float32)
        return self._buffer[:rows]

    def _perturb(self, batch: Batch, out: NDArray[np.float32]) -> None:
        known = self._pixels
        jobs = [segment.job for segment in batch.segments]
        self._pixels = {job: known[job] if job in known else _as_array(job) for job in jobs}
        rows = [jobs[slot] for slot in batch.slots()]
        images, keys = [self._pixels[job] for job in rows], [job.key for job in rows]
        self._noise.perturb(images, keys, batch.draws().tolist(), self._settings.sigma, out)


class DeviceStep:
    """Noise made on the device, in the graph of the classifier where that is compiled."""

    def __init__(self, classifier: Classifier, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        of_noisy = _voter(classifier, settings)
        perturb = _maybe_compiled(_perturber(settings), settings.noise_compiled and not settings.compiled)

        def vote(images: Tensor, words: Tensor, draws: Tensor) -> Tensor:
            return of_noisy(perturb(images, words, draws))

        self._graph = _Graph(vote, settings.compiled)
        self._table: tuple[tuple[Job, ...], Tensor, Tensor] | None = None

    def __call__(self, batch: Batch, size: int) -> Tensor:
        """See `Step`; padding rows repeat the last row."""
        index = np.stack([batch.slots(), batch.draws()])
        padded = np.pad(index, ((0, 0), (0, size - batch.rows)), mode="edge")
        with self._lock:
            images, words = self._place(batch)
            slots, draws = _send(padded, self._settings.device)
            # Outside the graph: it would be compiled anew for each number of images that share a batch.
            rows = (images[slots], words[slots], draws)
            kind = (images.shape[1:], images.dtype)
            return self._graph(kind, (rows[0][:2], rows[1][:2], rows[2][:2]), rows)

    def _place(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The images of the batch and their key words on the device; kept while they stay the same."""
        jobs = tuple(segment.job for segment in batch.segments)
        table = self._table
        if table is None or table[0] != jobs:
            words = np.array([key_words(job.key) for job in jobs], dtype=np.int32)
            images = torch.stack([job.image for job in jobs])
            table = self._table = (jobs, images, _send(words, self._settings.device))
        return table[1:]


def _perturber(settings: Settings) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def perturb(images: Tensor, words: Tensor, draws: Tensor) -> Tensor:
        noisy = to_pixels(images) + settings.sigma * standard_normal(words, draws, images.shape[1:])
        return noisy.clamp(0, 1) if settings.clamp else noisy

    return perturb


def _voter(classifier: Classifier, settings: Settings) -> Callable[[Tensor], Tensor]:
    labels, rule = len(classifier.label_names), _score_rule(classifier, settings)
    kind, dtype = settings.device.type, DTYPES[settings.precision]

    def vote(noisy: Tensor) -> Tensor:
        if settings.channels_last and noisy.ndim == _IMAGE:
            noisy = noisy.contiguous(memory_format=torch.channels_last)
        with torch.autocast(kind, dtype, enabled=dtype != torch.float32):
            scores = classifier(noisy)
        if not torch.compiler.is_compiling():
            check_scores(scores, len(noisy), labels)
        return rule(scores)

    return vote


def _score_rule(classifier: Classifier, settings: Settings) -> Callable[[Tensor], Tensor]:
    """From scores to votes, by the rule of the settings."""
    if settings.score_threshold is not None:
        limit = score_limit(classifier, settings.score_threshold)
        return lambda scores: pack_labels(scores, limit)
    ranks = settings.k_max
    assert ranks is not None
    return lambda scores: rank_labels(scores, ranks)


def check_scores(scores: object, rows: int, labels: int) -> None:
    """Refuse what is not one floating-point score per row and label, without looking at any value."""
    wanted = f"a floating-point tensor of shape ({rows}, {labels}), one score per image and label"
    if not isinstance(scores, Tensor):
        raise ModelError(f"it returned {type(scores).__name__}, not {wanted}")
    if tuple(scores.shape) != (rows, labels):
        raise ModelError(f"it returned shape {tuple(scores.shape)}, not {wanted}")
    if not scores.is_floating_point():
        raise ModelError(f"it returned {scores.dtype}, not {wanted}")


def _as_array(job: Job) -> NDArray[np.float32]:
    return to_pixels(job.image).cpu().numpy()


def _send(array: NDArray[np.generic], device: torch.device) -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def _maybe_compiled(function: Callable[P, Tensor], wanted: bool) -> Callable[P, Tensor]:
    """The function, compiled where wanted; compiled, it never runs uncompiled unsaid: past its limit it raises."""
    if not wanted:
        return function
    compiled = torch.compile(_with_own_code(function), dynamic=False)

    def run(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        try:
            with torch._dynamo.config.patch(recompile_limit=_MOST_GRAPHS, fail_on_recompile_limit_hit=True):
                return compiled(*args, **kwargs)
        except torch._dynamo.exc.FailOnRecompileLimitHit as error:
            raise ModelError(
                f"it was compiled for {_MOST_GRAPHS} shapes, the most there may be; bring images to one size first, "
                "or use compile=False"
            ) from error

    return run


def _with_own_code(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """The same function with a code object of its own.

    The compiler keeps its graphs, and its limit on their number, by code object: without this a ninth smoother in
    one process would silently run uncompiled.
    """
    assert isinstance(function, FunctionType)
    code, closure = function.__code__.replace(), function.__closure__
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
