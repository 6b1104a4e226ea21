"""The engine of torch classifiers: with noise made on the device, nothing waits for the device.

That noise is Philox4x32-10 in plain torch operations: one code, eager or compiled, on any device. Every element is
computed from its own counter alone, so a compiler can fuse it, and the batch size cannot change it. The rounds and
constants are from Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). Words are held
in int32, whose additions and truncations wrap as unsigned ones do.
"""

import math
import platform
import threading
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, ParamSpec, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from multiguard.certify.noise import HIDDEN, Noise
from multiguard.errors import InvalidInputError, ModelError
from multiguard.models.classifier import check_scores
from multiguard.models.torch_model import TorchClassifier, as_array
from multiguard.smooth.config import Precision, Settings, score_limit
from multiguard.smooth.engine import ArrayEngine, Engine, Image, Votes, image_array
from multiguard.smooth.noise_source import HOST_PHILOX, Pixels, key_words, noise_scale
from multiguard.smooth.stream import Batch, Job

P = ParamSpec("P")
DTYPES: dict[Precision, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_BATCH_DIMENSIONS = 4  # (B, channels, height, width)
_MAX_GRAPHS = 64


def to_pixels(images: Tensor) -> Tensor:
    """float32 values; a uint8 value x becomes x / 255."""
    return images.to(torch.float32) / 255 if images.dtype == torch.uint8 else images


def image_tensor(image_id: str, image: Image, image_size: tuple[int, int] | None) -> Tensor:
    """What `image_array` returns, as a tensor of its own."""
    return torch.from_numpy(np.array(image_array(image_id, image, image_size), order="C"))


def torch_device(device: str | torch.device | None) -> torch.device:
    """The device; by default CUDA if available. A device that torch does not know, or cannot use, is refused."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        found = f"it finds {torch.cuda.device_count()} CUDA devices"
        raise InvalidInputError(f"device is {device}, which torch cannot use here ({found}); take cpu") from error
    return torch.device(device)


def make_torch_engine(classifier: TorchClassifier, settings: Settings) -> Engine:
    """The engine with the noise of NumPy, or with that of the device."""
    classifier.placed = torch.device(settings.device)
    if settings.channels_last:
        classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network = _make_network(classifier, settings)
    if settings.noise_source != HOST_PHILOX:
        return TorchEngine(classifier, settings, network)
    graph = _Graph(network, settings.compiled)

    @torch.no_grad()
    def scores(noisy: Pixels) -> NDArray[Any]:
        tensor = torch.from_numpy(noisy).to(settings.device)
        return as_array(graph(tensor.shape[1:], (tensor,)))

    return ArrayEngine(classifier, settings, scores)


def rank_labels(scores: Tensor, k_max: int) -> Tensor:
    """The same as `engine.rank_labels`, of tensors.

    >>> rank_labels(torch.tensor([[0.1, 0.9, 0.9]]), k_max=2).tolist()  # labels 1 and 2; all scores are finite
    [[1, 2, 1]]
    """
    order = torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :k_max]
    finite = torch.isfinite(scores).all(dim=1, keepdim=True)
    return torch.cat([order, finite.to(order.dtype)], dim=1).to(torch.int32)


def pack_labels(scores: Tensor, limit: float) -> Tensor:
    """The same as `engine.pack_labels`, of tensors.

    >>> pack_labels(torch.tensor([[0.1, 0.9, 0.9]]), limit=0.5).tolist()  # labels 1 and 2, bits 2 and 4
    [[6, 1]]
    """
    passes = (scores.to(torch.float32) >= limit).to(torch.int32)
    octets = functional.pad(passes, (0, -scores.shape[1] % 8)).reshape(len(scores), -1, 8)
    packed = (octets << torch.arange(8, dtype=torch.int32, device=scores.device)).sum(dim=2)
    finite = torch.isfinite(scores).all(dim=1, keepdim=True)
    return torch.cat([packed, finite.to(packed.dtype)], dim=1).to(torch.uint8)


class TorchEngine:
    """Noise made on the device, inside the classifier's graph where that is compiled."""

    def __init__(self, classifier: TorchClassifier, settings: Settings, network: Callable[[Tensor], Tensor]) -> None:
        self._classifier, self._settings = classifier, settings
        self._turn = threading.Lock()
        make_noisy, ranks = device_noise(settings.noise), settings.k_max
        limit = None if settings.score_threshold is None else score_limit(classifier, settings.score_threshold)

        def add_noise(slots: Tensor, words: Tensor, draws: Tensor, noisy_rows: Tensor, images: Tensor) -> Tensor:
            noisy = make_noisy(to_pixels(images[slots]), words, draws, noisy_rows)
            return noisy.clamp(0, 1) if settings.clamp else noisy

        perturb = _compile_if(settings.noise_compiled and not settings.compiled, add_noise)

        def vote_on(slots: Tensor, words: Tensor, draws: Tensor, noisy_rows: Tensor, images: Tensor) -> Tensor:
            scores = network(perturb(slots, words, draws, noisy_rows, images))
            return rank_labels(scores, cast(int, ranks)) if limit is None else pack_labels(scores, limit)

        self._add_noise: Callable[..., Tensor] = add_noise
        self._graph = _Graph(vote_on, settings.compiled)
        self._table: tuple[tuple[Job, ...], Tensor, Tensor] | None = None

    def prepare(self, batch: Batch, size: int) -> None:
        """Nothing: the device has several batches at a time."""

    @torch.no_grad()
    def launch(self, batch: Batch, size: int, prepared: object = None) -> tuple[Votes, Any]:
        """The votes, on their way to the host from CUDA."""
        with self._turn:
            rows, images = self._rows(batch, size)
            votes = self._graph((images.shape[1:], images.dtype), rows, images)
        if votes.device.type != "cuda":
            return votes.cpu().numpy(), None
        host = torch.empty(votes.shape, dtype=votes.dtype, pin_memory=True)
        host.copy_(votes, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(votes.device))
        return host.numpy(), event

    @torch.no_grad()
    def noisy(self, batch: Batch) -> Pixels:
        """What the classifier gets."""
        with self._turn:
            rows, images = self._rows(batch, batch.rows)
            noisy: Pixels = self._add_noise(*rows, images).cpu().numpy()
        return noisy

    def scores(self, inputs: Pixels) -> NDArray[Any]:
        """The scores of these inputs."""
        scores = self._classifier.scores(inputs)
        check_scores(scores, len(inputs), len(self._classifier.label_names))
        return scores

    def _rows(self, batch: Batch, size: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """For each row its slot, key words, draw and whether it is noisy; and the images."""
        index = np.stack([batch.slots(), batch.draws(), batch.noisy()])
        padded = np.pad(index, ((0, 0), (0, size - batch.rows)), mode="edge")
        images, words = self._load(batch)
        slots, draws, noisy_rows = _send(padded, self._settings.device)
        return (slots, words[slots], draws, noisy_rows), images

    def _load(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The images of the batch and their key words on the device; kept while the images stay the same."""
        jobs = tuple(segment.job for segment in batch.segments)
        table = self._table
        if table is None or table[0] != jobs:
            words = np.array([key_words(job.key) for job in jobs], dtype=np.int32)
            stacked = np.stack([job.image for job in (*jobs, jobs[-1])])  # torch.compile specializes on size 1
            images = _send(stacked, self._settings.device)
            if self._settings.compiled or self._settings.noise_compiled:
                torch._dynamo.maybe_mark_dynamic(images, 0)  # one graph for any number of images
            table = self._table = (jobs, images, _send(words, self._settings.device))
        return table[1:]


def _send(array: NDArray[Any], device: str) -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.startswith("cuda") else tensor.to(device)


def _make_network(classifier: TorchClassifier, settings: Settings) -> Callable[[Tensor], Tensor]:
    """From noisy images to scores, in the precision and the layout of the settings."""
    labels, kind, dtype = len(classifier.label_names), settings.device.partition(":")[0], DTYPES[settings.precision]

    def network(noisy: Tensor) -> Tensor:
        if settings.channels_last and noisy.ndim == _BATCH_DIMENSIONS:
            noisy = noisy.contiguous(memory_format=torch.channels_last)
        with torch.autocast(kind, dtype, enabled=dtype != torch.float32):
            scores: Tensor = classifier(noisy)
        if not torch.compiler.is_compiling():
            check_scores(scores, len(noisy), labels)
        return scores

    return network


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


def torch_execution(device: str) -> dict[str, Any]:
    """How torch computes on this device, by the names of `Provenance`."""
    cuda = device.startswith("cuda")
    return {
        "tf32_matmul": _allows_tf32(torch.backends.cuda.matmul, torch.backends.cuda.matmul),
        "tf32_convolution": _allows_tf32(getattr(torch.backends.cudnn, "conv", None), torch.backends.cudnn),
        "device": torch.cuda.get_device_name(device) if cuda else f"{device} {platform.machine()}",
    }


def forbid_tf32() -> None:
    """Let float32 be float32 in this process, on every GPU."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def _allows_tf32(backend: Any, legacy: Any) -> bool:
    """Whether float32 may be rounded to TF32; torch refuses to read the old flag once the new one is set."""
    precision = getattr(backend, "fp32_precision", None)
    return bool(legacy.allow_tf32) if precision is None else precision == "tf32"


Words4 = tuple[Tensor, Tensor, Tensor, Tensor]

# From pixels (B, ...), the key words (B, 4), draws (B,) and whether each row has noise (B,) to noisy images.
Perturb = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9 - (1 << 32), 0xBB67AE85 - (1 << 32))  # as signed 32-bit numbers
_LOW = 0xFFFFFFFF
# sin(pi y) / y in powers of y^2: the polynomial that agrees at the Chebyshev nodes of 0 <= y^2 <= 1/4.
_SINE = (3.14159264, -5.167710077, 2.550077387, -0.5982904113, 0.07765591228)


def device_noise(noise: Noise) -> Perturb:
    """What adds this noise to images on their device; the arguments of the result are described at `Perturb`."""
    return noise.sample(_DeviceSampler())


class _DeviceSampler:
    """Each noise as operations on tensors."""

    def gaussian(self, sigma: float) -> Perturb:
        return _adder(standard_normal, noise_scale(sigma))

    def uniform(self, half_width: float) -> Perturb:
        return _adder(uniform, noise_scale(half_width))

    def pixels(self, keep: int, pixels: int) -> Perturb:
        def hidden(words: Tensor, draws: Tensor, size: Sequence[int]) -> Tensor:
            first, second, *_ = _words_at(words, draws, math.prod(size))
            keys = (_unsigned(first) << 31) | (_unsigned(second) >> 1)
            order = torch.sort(keys, dim=1, stable=True).indices[:, :keep]
            return torch.ones_like(keys, dtype=torch.bool).scatter(1, order, False).view(-1, 1, *size)

        return _hider(hidden)

    def band(self, width: int, columns: int) -> Perturb:
        def hidden(_: Tensor, draws: Tensor, __: Sequence[int]) -> Tensor:
            places = torch.arange(columns, device=draws.device) - draws.view(-1, 1)
            return (torch.remainder(places, columns) >= width).view(-1, 1, 1, columns)

        return _hider(hidden)


_OfRows = Callable[[Tensor, Tensor, Sequence[int]], Tensor]  # of the words, draws and shape of rows


def _adder(make: _OfRows, scale: float) -> Perturb:
    def add(pixels: Tensor, words: Tensor, draws: Tensor, noisy_rows: Tensor) -> Tensor:
        drawn = scale * make(words, draws, pixels.shape[1:])
        return pixels + drawn * noisy_rows.reshape(-1, *[1] * (pixels.ndim - 1))

    return add


def _hider(hide: _OfRows) -> Perturb:
    def ablate(pixels: Tensor, words: Tensor, draws: Tensor, noisy_rows: Tensor) -> Tensor:
        hidden = hide(words, draws, pixels.shape[2:]) & (noisy_rows.view(-1, 1, 1, 1) != 0)
        return torch.where(hidden, HIDDEN, pixels)

    return ablate


def philox4x32(counter: Words4, key: tuple[Tensor, Tensor]) -> Words4:
    """The four 32-bit words of Philox4x32-10 for each counter and key (int32), bit for bit as in Random123."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _KEY_STEPS[0], k1 + _KEY_STEPS[1]
    return c0, c1, c2, c3


def standard_normal(words: Tensor, draws: Tensor, shape: Sequence[int]) -> Tensor:
    """Independent N(0, 1) values (B, *shape): functions of their row's key and draw and of their index in the row.

    Elements 2b and 2b + 1 are the two values that Box-Muller makes of block b. The radius takes 63 bits, so no value
    exceeds 9.5; the angle takes 32.

    Args:
        words: (B, 4) int32, the key of each row (`noise_source.key_words`).
        draws: (B,) int64, the draw of each row, below 2^32.
        shape: The shape of one row.
    """
    element = torch.arange(math.prod(shape), dtype=torch.int32, device=words.device).view(1, *shape)
    rows = (-1, *(1 for _ in shape))
    key = [word.view(rows) for word in words.unbind(1)]
    counter = (element >> 1, draws.to(torch.int32).view(rows), key[2], key[3])
    first, second, third, _ = philox4x32(counter, (key[0], key[1]))
    turned = third - (element & 1) * (1 << 30)  # a full turn has 2^32 steps, and int32 wraps
    return _radius(first, second) * _cosine(turned.to(torch.float32) * 2.0**-31)


def uniform(words: Tensor, draws: Tensor, shape: Sequence[int]) -> Tensor:
    """Independent U(-1, 1) values (B, *shape), each from a word of its own; the arguments of `standard_normal`."""
    first, *_ = _words_at(words, draws, math.prod(shape))
    return first.to(torch.float32).view(-1, *shape) * 2.0**-31


def _words_at(words: Tensor, draws: Tensor, count: int) -> Words4:
    """The words (B, count) of counters 0, 1, 2, ... of each row's key and draw."""
    element = torch.arange(count, dtype=torch.int32, device=words.device).view(1, -1)
    key = [word.view(-1, 1) for word in words.unbind(1)]
    return philox4x32((element, draws.to(torch.int32).view(-1, 1), key[2], key[3]), (key[0], key[1]))


def _multiply(word: Tensor, constant: int) -> tuple[Tensor, Tensor]:
    """The high and the low 32 bits of a product; wrapping in 64 bits keeps both right."""
    product = _unsigned(word) * constant
    return (product >> 32).to(torch.int32), product.to(torch.int32)


def _unsigned(word: Tensor) -> Tensor:
    return word.to(torch.int64) & _LOW


def _cosine(half_turns: Tensor) -> Tensor:
    """cos(pi t) for t in [-1, 1], within 2e-7: a polynomial costs a fraction of a cosine of any angle.

    cos(pi t) = sin(pi y) with y = 1/2 - |t|, and y times a polynomial in y^2 is sin(pi y) within 7e-9.
    """
    y = 0.5 - half_turns.abs()
    square, ratio = y * y, torch.full_like(y, _SINE[-1])
    for coefficient in _SINE[-2::-1]:
        ratio = ratio * square + coefficient
    return ratio * y


def _radius(high: Tensor, low: Tensor) -> Tensor:
    """sqrt(-2 ln u), u = (i + 1/2) / 2^63 in (0, 1]."""
    bits = (_unsigned(high) << 31) | (_unsigned(low) >> 1)
    uniform = (bits.to(torch.float32) + 0.5) * 2.0**-63
    # A fast logarithm may be slightly above 0 at u = 1, and its root would be NaN.
    return torch.sqrt(torch.clamp_min(-2.0 * torch.log(uniform), 0.0))
