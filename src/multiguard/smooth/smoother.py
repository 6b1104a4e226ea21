"""The smoothed classifier g around a base classifier f: votes by Monte Carlo, and prediction."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.certify import hits_from_ranked
from multiguard.errors import InvalidInputError
from multiguard.models.classifier import Classifier
from multiguard.smooth.arguments import checked_draws, real_number, whole_number
from multiguard.smooth.batches import Job
from multiguard.smooth.noise import NoiseSource, Stream, noise_key
from multiguard.smooth.prediction import Prediction, confirm, most_frequent
from multiguard.smooth.settings import Precision, Settings, resolve_settings
from multiguard.smooth.step import make_step
from multiguard.smooth.streaming import BatchSize, Plan, Sizer, stream_votes
from multiguard.votes import Ranked

Image = NDArray[np.generic] | Tensor
_PICTURE = 3


class Smoother:
    """Draws votes whose noise is a function of (seed, image id, draw), whatever the batches.

    The smoother takes the classifier over: it moves it to the device and puts it in evaluation mode, again at the
    start of each run. Threads may share it: their batches take turns. What is left at None follows the device:
    float32 and nothing else on a CPU; bfloat16 autocast, channels last and torch.compile on CUDA.

    Args:
        classifier: The base classifier f, a fixed function of one noisy image.
        sigma: The noise is N(0, sigma^2) in the units of the input ([0, 1] for pictures), unnormalised.
        k_max: K', how many ranked labels of each draw are kept; by default 10, or all where there are fewer.
        device: Where to run; by default CUDA where there is one.
        batch_size: Rows of a batch, or "auto". It halves when CUDA runs out of memory.
        clamp: Whether f clamps the noisy input to [0, 1] before anything else.
        precision: "float32", "bfloat16" or "float16" (autocast).
        channels_last: Memory layout of pictures and weights.
        compile: Whether to compile the classifier together with its noise.
        noise: The source of noise, to repeat on a CPU the noise of a CUDA run.
    """

    def __init__(
        self,
        classifier: Classifier,
        *,
        sigma: float,
        k_max: int | None = None,
        device: str | torch.device | None = None,
        batch_size: BatchSize = "auto",
        clamp: bool = False,
        precision: Precision | None = None,
        channels_last: bool | None = None,
        compile: bool | None = None,  # noqa: A002 - the word that torch uses for it
        noise: NoiseSource | None = None,
    ) -> None:
        self.settings: Settings = resolve_settings(
            classifier,
            sigma=sigma,
            k_max=k_max,
            device=device,
            clamp=clamp,
            precision=precision,
            channels_last=channels_last,
            compile=compile,
            noise=noise,
        )
        self.classifier = _taken_over(classifier, self.settings)
        self.batch_size = batch_size
        self._sizer = Sizer(batch_size, self.settings.device)
        self._step = make_step(self.classifier, self.settings)

    def votes(
        self,
        image: Image,
        draws: int,
        *,
        seed: int,
        image_id: str,
        first_draw: int = 0,
        stream: Stream = "certify",
    ) -> Ranked:
        """The ranked top-K' labels of each draw: (draws, K') uint8, or uint16 where c > 256.

        Memory does not grow with `draws` but for the votes themselves.

        Args:
            image: (m, ...) of any shape: uint8 (a value is x / 255) or floating point.
            draws: n, how many noisy copies to classify.
            seed: The seed of the whole run.
            image_id: The name of the image; it keys the noise.
            first_draw: The index of the first draw, to go on where an earlier call ended.
            stream: "certify", or "pilot" for draws that choose a set and never certify it.
        """
        job = self._job(image_id, image, draws, seed, first_draw, stream)
        most_rows = 1 << (job.draws - 1).bit_length()
        return next(ranked for _, ranked in stream_votes([job], self._plan(most_rows)))

    def stream(self, images: Iterable[tuple[str, Image]], draws: int, *, seed: int) -> Iterator[tuple[str, Ranked]]:
        """The id and votes of each (id, image), in order; draws of neighbouring images share batches.

        Takes the next image only when its rows are due, so that `images` may be endless, and copies it, so that
        one array may be filled anew for each image.
        """
        jobs = (self._job(image_id, image, draws, seed, 0, "certify") for image_id, image in images)
        for job, ranked in stream_votes(jobs, self._plan()):
            yield job.image_id, ranked

    def predict(
        self,
        image: Image,
        *,
        k: int,
        k_prime: int,
        pilot_draws: int = 100,
        draws: int = 1000,
        alpha: float = 0.001,
        seed: int,
        image_id: str,
    ) -> Prediction:
        """The smoothed classifier's k labels; with probability 1 - alpha all radii, of each label and of the set, hold.

        Pilot draws choose the labels, fresh draws confirm them: labels chosen and confirmed by the same draws
        would be confirmed too often.
        """
        self._check_k(k, k_prime, alpha)
        pilot = self.votes(image, pilot_draws, seed=seed, image_id=image_id, stream="pilot")
        labels = most_frequent(self._hits(pilot, k_prime), k)
        fresh = self.votes(image, draws, seed=seed, image_id=image_id)
        return confirm(labels, self._hits(fresh, k_prime), k=k, k_prime=k_prime, sigma=self.settings.sigma, alpha=alpha)

    def _hits(self, ranked: Ranked, k_prime: int) -> NDArray[np.bool_]:
        return hits_from_ranked(ranked, k_prime=k_prime, num_labels=len(self.classifier.label_names))

    def _plan(self, most_rows: int | None = None) -> Plan:
        self.classifier.eval()
        labels, settings = len(self.classifier.label_names), self.settings
        plan = Plan(self._step, self._sizer, settings.k_max, labels, settings.compiled)
        return plan if most_rows is None else replace(plan, most_rows=most_rows)

    def _job(self, image_id: str, image: Image, draws: int, seed: int, first_draw: int, stream: Stream) -> Job:
        count = checked_draws(draws, first_draw)
        key = noise_key(whole_number("seed", seed), image_id, stream)
        tensor = _as_input(image_id, image, self.classifier.image_size)
        return Job(image_id, key, _placed(tensor, self.settings.device), whole_number("first_draw", first_draw), count)

    def _check_k(self, k: int, k_prime: int, alpha: float) -> None:
        labels = len(self.classifier.label_names)
        if not 1 <= whole_number("k", k) <= labels:
            raise InvalidInputError(f"k must lie between 1 and the classifier's {labels} labels, not {k}.")
        if not 1 <= whole_number("k_prime", k_prime) <= self.settings.k_max:
            raise InvalidInputError(
                f"k_prime must be between 1 and k_max = {self.settings.k_max}, the ranks kept, not {k_prime}."
            )
        if not 0 < real_number("alpha", alpha) < 1:
            raise InvalidInputError(f"alpha must lie strictly between 0 and 1, not {alpha!r}.")


def _taken_over(classifier: Classifier, settings: Settings) -> Classifier:
    classifier = classifier.eval().to(settings.device)
    if settings.channels_last:
        classifier = classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return classifier


def _as_input(image_id: str, image: Image, image_size: tuple[int, int] | None) -> Tensor:
    tensor = _as_tensor(image_id, image)
    if tensor.dtype != torch.uint8:
        if not tensor.is_floating_point():
            raise InvalidInputError(f"image {image_id!r} must be uint8 or floating point, not {tensor.dtype}.")
        if not bool(torch.isfinite(tensor).all()):
            raise InvalidInputError(f"image {image_id!r} holds a NaN or an infinite value.")
        tensor = tensor.to(torch.float32)
    if tensor.ndim == 0 or tensor.numel() == 0:
        raise InvalidInputError(f"image {image_id!r} has shape {tuple(tensor.shape)}; it must hold values.")
    if image_size is not None and tensor.ndim == _PICTURE and tuple(tensor.shape[1:]) != image_size:
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


def _placed(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on the device: the caller may change the image while its rows still wait."""
    if device.type != "cuda" or tensor.device.type == "cuda":
        return tensor.to(device, copy=True)
    # What is pinned already would be read by the device later, when it may have changed.
    own = tensor.clone() if tensor.is_pinned() else tensor
    return own.pin_memory().to(device, non_blocking=True)
