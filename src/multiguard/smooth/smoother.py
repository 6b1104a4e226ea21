"""The smoothed classifier g around a base classifier f: votes by Monte Carlo, and prediction."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch

from multiguard.certify import Rule
from multiguard.certify.arguments import check_alpha
from multiguard.errors import ImageFailure
from multiguard.models.classifier import Classifier
from multiguard.smooth.batches import BatchSize, Image, Job, Sizer, check_draws, copy_to_device, image_tensor
from multiguard.smooth.engine import make_step
from multiguard.smooth.noise import NoiseSource, Stream, noise_key, resolve_seed
from multiguard.smooth.prediction import Prediction, confirm_labels
from multiguard.smooth.settings import Precision, Settings, resolve_settings, whole_number
from multiguard.smooth.stream import VoteStream
from multiguard.votes.types import DrawVotes, LabelSets, as_array, packed_width, vote_dtype


class Smoother:
    """Draws votes whose noise is a function of (seed, image id, draw), whatever the batches.

    The smoother moves the classifier to the device and puts it in evaluation mode, again at the start of each run.
    Threads may share a smoother: their batches take turns. Options left at None follow the device: plain float32 on a
    CPU; bfloat16 autocast, channels last and torch.compile on CUDA.

    Args:
        classifier: The base classifier f, a fixed function of one noisy image.
        sigma: The noise is N(0, sigma^2) in the units of the input ([0, 1] for images), unnormalised.
        k_max: K', the number of ranked labels kept per draw, for `TopK`; by default 10, or all if there are fewer.
        score_threshold: For `Threshold`, keep the set of labels with at least this probability instead of ranked
            labels. Logits are compared with its logit.
        device: The device to run on; by default CUDA if available.
        batch_size: The rows per batch, or "auto". It halves when CUDA runs out of memory.
        clamp: Whether f clamps the noisy input to [0, 1] before anything else.
        precision: "float32", "bfloat16" or "float16" (autocast).
        channels_last: Whether images and weights are stored channels last.
        compile: Whether to compile the classifier together with its noise.
        noise: The noise source, to reproduce the noise of a CUDA run on a CPU.

    >>> from multiguard.models import load_classifier
    >>> f = load_classifier(lambda x: x.flatten(1)[:, :3], labels=["cat", "dog", "emu"], output="logits")
    >>> smoother = Smoother(f, sigma=0.5, k_max=2, device="cpu")
    >>> smoother.votes(np.array([2.0, 1.0, 0.0]), 1000, seed=0, image_id="example").shape
    (1000, 2)
    """

    def __init__(
        self,
        classifier: Classifier,
        *,
        sigma: float,
        k_max: int | None = None,
        score_threshold: float | None = None,
        device: str | torch.device | None = None,
        batch_size: BatchSize = "auto",
        clamp: bool = False,
        precision: Precision | None = None,
        channels_last: bool | None = None,
        compile: bool | None = None,  # noqa: A002 - torch's own word
        noise: NoiseSource | None = None,
    ) -> None:
        self.settings: Settings = resolve_settings(
            classifier, sigma, k_max, score_threshold, device, clamp, precision, channels_last, compile, noise
        )
        self.classifier, self.batch_size = classifier.eval().to(self.settings.device), batch_size
        if self.settings.channels_last:
            self.classifier = self.classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._sizer = Sizer(batch_size, self.settings.device)
        self._step = make_step(self.classifier, self.settings)

    def votes(
        self,
        image: Image,
        draws: int,
        *,
        seed: int | None = None,
        image_id: str,
        first_draw: int = 0,
        stream: Stream = "certify",
    ) -> DrawVotes:
        """The votes of each draw: (draws, K') uint8, or uint16 where c > 256; `LabelSets` with a score threshold.

        Memory does not grow with `draws`, except for the votes themselves.

        Args:
            image: An array of any shape: uint8 (a value is x / 255) or floating point.
            draws: n, the number of noisy copies to classify.
            seed: The seed of the noise; None draws a random one, which is not kept.
            image_id: The id of the image; it keys the noise.
            first_draw: The index of the first draw, to continue where an earlier call ended.
            stream: "certify", or "pilot" for draws that choose labels and never certify them.

        >>> from multiguard.models import load_classifier
        >>> f = load_classifier(lambda x: x.flatten(1)[:, :3], labels=["cat", "dog", "emu"], output="logits")
        >>> image = np.array([9.0, 5.0, -5.0])
        >>> Smoother(f, sigma=0.5, device="cpu").votes(image, 2, seed=0, image_id="a")  # ranked labels
        array([[0, 1, 2],
               [0, 1, 2]], dtype=uint8)
        >>> sets = Smoother(f, sigma=0.5, score_threshold=0.5, device="cpu").votes(image, 1, seed=0, image_id="a")
        >>> sets.hits()
        array([[ True,  True, False]])
        """
        seed = resolve_seed(seed)
        job = self.job(image, draws, seed=seed, image_id=image_id, first_draw=first_draw, stream=stream)
        return cast(DrawVotes, next(self._outcomes([job], most_rows=1 << (job.draws - 1).bit_length()))[1])

    def stream(
        self, images: Iterable[tuple[str, Image]], draws: int, *, seed: int | None = None
    ) -> Iterator[tuple[str, DrawVotes]]:
        """The id and votes of each (id, image), in order; draws of neighbouring images share batches.

        The next image is taken only when its rows are due, so `images` may be endless. It is copied, so one array may
        be reused for all images. Without a seed, one is drawn for all images.
        """
        seed = resolve_seed(seed)
        jobs = (self.job(image, draws, seed=seed, image_id=image_id) for image_id, image in images)
        for job, votes in self.run(jobs):
            yield job.image_id, votes

    def job(
        self, image: Image, draws: int, *, seed: int, image_id: str, first_draw: int = 0, stream: Stream = "certify"
    ) -> Job:
        """Draws to be made by `run`; the arguments are those of `votes`. The image is copied."""
        count = check_draws(draws, first_draw)
        key = noise_key(whole_number("seed", seed), image_id, stream)
        tensor = image_tensor(image_id, image, self.classifier.image_size)
        copy = copy_to_device(tensor, self.settings.device)
        return Job(image_id, key, copy, whole_number("first_draw", first_draw), count)

    def run(self, jobs: Iterable[Job], *, steady: bool = False) -> Iterator[tuple[Job, DrawVotes]]:
        """Each job with its votes, in order; jobs of any number of draws share batches.

        The next job is taken only when its rows are due, so `jobs` may wait for votes that this call has yielded. With
        `steady`, all batches have one size on a CPU, too, the last ones padded: the last bits of a score may depend on
        the size of its batch, but not on its row in it.
        """
        return cast(Iterator[tuple[Job, DrawVotes]], self._outcomes(jobs, steady))

    def attempt(self, jobs: Iterable[Job], *, steady: bool = False) -> Iterator[tuple[Job, DrawVotes | ImageFailure]]:
        """As `run`, but a job that the classifier fails on yields an image failure, and the others continue.

        Which jobs fail does not depend on the batches. If no image is to blame, it raises `ModelError`.
        """
        return self._outcomes(jobs, steady, record_failures=True)

    def predict(
        self,
        image: Image,
        rule: Rule,
        *,
        pilot_draws: int = 100,
        draws: int = 1000,
        alpha: float = 0.001,
        seed: int | None = None,
        image_id: str,
    ) -> Prediction:
        """The labels of the smoothed classifier; with probability 1 - alpha all radii, of labels and set, hold.

        Pilot draws choose the labels, fresh draws confirm them: labels chosen and confirmed by the same draws
        would be confirmed too often.

        Args:
            image: The image, as for `votes`.
            rule: The smoothed classifier: `TopK` or `Threshold`.
            pilot_draws: The number of draws that choose the labels.
            draws: The number of draws that confirm them.
            alpha: The probability of any false claim in the prediction.
            seed: The seed of the noise; by default a random one, which the prediction records.
            image_id: The id of the image; it keys the noise.

        >>> from multiguard.certify import TopK
        >>> from multiguard.models import load_classifier
        >>> f = load_classifier(lambda x: x.flatten(1)[:, :3], labels=["cat", "dog", "emu"], output="logits")
        >>> smoother = Smoother(f, sigma=0.5, device="cpu")
        >>> prediction = smoother.predict(np.array([2.0, 1.0, 0.0]), TopK(k=1, k_prime=1), seed=0, image_id="a")
        >>> prediction.labels, prediction.confirmed
        ((0,), (True,))
        """
        labels = len(self.classifier.label_names)
        self.settings.check_rule(rule, labels)
        check_alpha(alpha)
        check_draws(pilot_draws, name="pilot_draws")
        seed = resolve_seed(seed)
        pilot = self.votes(image, pilot_draws, seed=seed, image_id=image_id, stream="pilot")
        fresh = self.votes(image, draws, seed=seed, image_id=image_id)
        chosen = rule.returned(as_array(pilot, rule.name), labels)
        prediction = confirm_labels(
            chosen, as_array(fresh, rule.name), rule, num_labels=labels, sigma=self.settings.sigma, alpha=alpha
        )
        return replace(prediction, seed=seed)

    def _outcomes(
        self, jobs: Iterable[Job], steady: bool = False, **options: Any
    ) -> Iterator[tuple[Job, DrawVotes | ImageFailure]]:
        self.classifier.eval()
        labels, ranks = len(self.classifier.label_names), self.settings.k_max
        width, dtype = (packed_width(labels), np.uint8) if ranks is None else (ranks, vote_dtype(labels))
        padded = self.settings.compiled or (steady and self.settings.device.type == "cpu")
        stream = VoteStream(self._step, self._sizer, width=width, dtype=dtype, padded=padded, **options)
        for job, rows in stream.outcomes(jobs):
            if ranks is None and not isinstance(rows, ImageFailure):
                yield job, LabelSets(rows.astype(np.uint8, copy=False), labels)
            else:
                yield job, rows
