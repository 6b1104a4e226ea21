"""Voting on a dataset: images are decoded ahead of the device, draws are packed, shards are written behind it."""

import hashlib
import json
import platform
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from multiguard.certify.arguments import check_count
from multiguard.data.image import image_hash
from multiguard.data.in_memory import as_dataset, first_input
from multiguard.data.sample import Dataset, Sample
from multiguard.errors import DataError, ImageError, ImageFailure, InvalidInputError, ModelError, VotesError
from multiguard.io.files import check_content
from multiguard.io.lock import folder_lock, this_rank
from multiguard.io.names import shorten_names
from multiguard.smooth.config import DEFAULT_DRAWS, check_choice
from multiguard.smooth.noise_source import resolve_seed
from multiguard.smooth.schedule import AdaptivePlan, Scheme, ShardImages, ShardVoter, ShardVotes, Stopping
from multiguard.smooth.smoother import Smoother
from multiguard.smooth.stream import check_draws, whole_number
from multiguard.version import __version__
from multiguard.votes import Manifest, Provenance, Votes, VotesWriter, read_votes

if TYPE_CHECKING:
    from multiguard.smooth.cluster import Team
    from multiguard.smooth.schedule import AdaptivePlan

Progress = Callable[[int, int], None]
OnError = Literal["stop", "record"]

_LOOKED_AT = 16  # images that the model is probed on


def no_progress(done: int, total: int) -> None:
    """Nothing."""


def no_stop() -> bool:
    """False."""
    return False


def vote_dataset(
    smoother: Smoother,
    data: Any,
    folder: str | Path,
    *,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    **options: Any,
) -> None:
    """Write the votes of a dataset into a folder; the same call resumes an interrupted run.

    A call with more draws extends the run in the folder, whose votes stay the first ones of each image. The noise of
    each draw does not depend on batches, shards or interruptions. An image that an adaptive run stopped after n draws
    has the first n draws of a run with fixed draws.

    Args:
        smoother: The smoothed classifier.
        data: The images to vote on, a `Dataset` with the classifier's labels; or any data that `as_dataset` takes.
        folder: The votes folder.
        progress: Called with the number of images done and the number of all images.
        stop: Called before each shard; once it returns True, the open shards are finished and the rest is left.
        options: Further keywords, all of them optional:
            draws: n, the number of draws per image: 1000 by default, for a `BandAblation` one per band.
            adaptive: When an image stops, an `AdaptivePlan`, in place of a fixed number of draws.
            pilot_draws: Draws per image with separate noise, stored to choose labels from.
            labelled: Whether the dataset's labels are the ground truth (default: True); otherwise pilot draws must
            choose the labels.
            noise_seed: The seed of the noise, recorded in the votes; by default that of the run in the folder, or a
            random one.
            shard_images: The number of images per file (default: 64).
            readers: The number of threads that decode images ahead of the device (default: 2).
            on_error: What to do if an image cannot be used or the classifier fails on it: "stop" (the default) raises;
            "record" continues and lists the image with the reason (`Votes.failures`). A later call with "stop" tries
            such images again. A failure that no image caused, or a failure on all images, raises in any case.

    >>> import tempfile
    >>> import multiguard
    >>> from multiguard.data import DigitsDataset
    >>> from multiguard.models import load
    >>> from multiguard.smooth import Smoother
    >>> dataset = DigitsDataset("test", images=3)
    >>> brightness = lambda images: images.flatten(1)[:, :10]  # any function of (B, 3, height, width) to (B, labels)
    >>> f = load(brightness, labels=dataset.label_names, output="logits", name="first ten pixels")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     vote_dataset(Smoother(f, sigma=0.5, k_max=3, device="cpu"), dataset, folder, draws=100, noise_seed=0)
    ...     votes = multiguard.read_votes(folder)
    ...     votes.ranked(0).shape
    (100, 3)
    """
    VoteRun(smoother, data, **options).write(folder, progress=progress or no_progress, stop=stop or no_stop)


def open_data(smoother: Smoother, data: Any) -> Dataset:
    """The data as a dataset with the classifier's labels, counted by its first input if they have no names."""
    classifier = smoother.classifier
    if classifier.num_labels is None:
        smoother.find_labels(first_input(data, classifier.feature_names))
    return as_dataset(data, classifier.label_names, classifier.feature_names)


def check_labels(dataset: Dataset) -> bool:
    """Whether labels are given; a dataset that should have labels, of which none has any, raises."""
    if not getattr(dataset, "labelled", True):
        return False
    known, reader = getattr(dataset, "labels", None), ImageReader(dataset, 1, record=True, pixels=False)
    if not any(map(len, known) if known is not None else map(reader.may_have_labels, range(len(dataset)))):
        raise InvalidInputError(
            f"none of the {len(dataset)} inputs has a label, so there is nothing to certify; give (X, None) to certify "
            "the labels that are predicted"
        )
    return True


class VoteRun:
    """A voting run whose arguments are checked and whose `provenance` is known; no draw is made yet.

    Arguments as in `vote_dataset`. A run that is not `resumable` is never resumed from files.
    """

    def __init__(
        self,
        smoother: Smoother,
        data: Any,
        *,
        draws: int | None = None,
        adaptive: AdaptivePlan | None = None,
        pilot_draws: int = 0,
        labelled: bool = True,
        noise_seed: int | None = None,
        shard_images: int = 64,
        readers: int = 2,
        on_error: OnError = "stop",
        resumable: bool = True,
    ) -> None:
        self.dataset = dataset = open_data(smoother, data)
        if labelled and not getattr(dataset, "labelled", True):
            raise InvalidInputError(
                "the data holds no labels (Y is None); give labelled=False and pilot_draws to choose them."
            )
        self._scheme = _scheme(smoother, draws, adaptive, pilot_draws, labelled, noise_seed)
        check_choice("on_error", on_error, get_args(OnError))
        self.smoother, self._record = smoother, on_error == "record"
        self._shard_images = whole_number("shard_images", shard_images)
        # Only images have a range: pixels of a dataset of images, or inputs that the classifier declares to be images.
        declared = smoother.classifier.image_size is not None or smoother.settings.clamp
        pixels = declared or getattr(dataset, "pixels", True)
        self._images = ImageReader(dataset, readers, record=self._record, pixels=pixels)
        self._checked = False  # whether `check` has seen the model
        self._resumable = resumable

    @cached_property
    def provenance(self) -> Provenance:
        """All that determines the votes; the first image is decoded for it, and kept for the voting."""
        first = self._images.peek(self._images.first).image
        self.smoother.find_labels(first)
        if self._resumable:
            self.smoother.classifier.check_named()
        return _make_provenance(self.smoother, self.dataset, self._scheme, image_hash(first))

    def check(self, positions: range | None = None) -> list[str]:
        """What looks wrong with the model on some of these images; see `Smoother.probe`, which raises."""
        self._checked = True
        images = [sample.image for sample in self.some_images(positions)]
        return self.smoother.probe(images) if images else []

    def some_images(self, positions: range | None = None) -> list[Sample]:
        """The first of these images that can be used, of one shape and type; they are kept for the voting."""
        samples: list[Sample] = []
        for position in (positions or range(len(self.provenance.image_ids)))[:_LOOKED_AT]:
            with suppress(ImageError):
                samples.append(self._images.peek(position))
        kinds = [(sample.image.shape, sample.image.dtype) for sample in samples]
        return [sample for sample, kind in zip(samples, kinds, strict=True) if kind == kinds[0]]

    def seconds(self) -> float:
        """About how long all draws will take, from one more batch of a full size."""
        sample, draws = self.some_images()[0], self.provenance.draws + self.provenance.pilot_draws
        rows = min(draws, self.smoother.rows(self.smoother.job(sample.image, 1, noise_seed=0, image_id=sample.id)))
        job, started = self.smoother.job(sample.image, rows, noise_seed=0, image_id=sample.id), time.perf_counter()
        list(self.smoother.run([job]))
        return (time.perf_counter() - started) / rows * draws * len(self.provenance.image_ids)

    def votes(self, progress: Progress = no_progress, folder: Path | None = None) -> Votes:
        """The votes, in memory: no file is opened; or in a folder, where the same run is resumed."""
        if folder is not None:
            check_content(folder, "votes")
            self.write(folder, progress=progress)
            return read_votes(folder)
        total, done, most = len(self.provenance.image_ids), count(1), self._shard_images
        parts = [range(first, min(first + most, total)) for first in range(0, total, most)]
        shards = (ShardImages(index, self._images.samples(part)) for index, part in enumerate(parts))
        found = dict[int, ShardVotes]()
        for votes in self._voted(shards, parts[0], self._scheme, lambda: progress(next(done), total)):
            found[votes.index] = votes
        whole = [found[index] for index in range(len(parts))]
        failures = [failure for part in whole for failure in part.failures]
        _check_any(failures, total)
        return Votes.of(self.provenance, [row for part in whole for row in part.rows], failures)

    def write(
        self,
        folder: str | Path,
        *,
        progress: Progress = no_progress,
        stop: Callable[[], bool] = no_stop,
        discard: Callable[[Path], None] | None = None,
        team: "Team | None" = None,
    ) -> Manifest:
        """Write the missing votes, by the actors of a team if there is one; `discard` is that of the writer."""
        total = len(self.provenance.image_ids)
        with folder_lock(Path(folder)):
            writer = self.writer(Path(folder), discard)
            done = total - sum(len(writer.manifest.positions(shard)) for shard in writer.missing())

            def on_images(images: int = 1) -> None:
                nonlocal done
                done += images
                progress(done, total)

            if team is not None:
                team.vote(writer, Path(folder), on_images, stop)
            else:
                self.vote_shards(writer, takewhile(lambda _: not stop(), writer.missing()), on_images)
            writer.finish()
            if writer.missing() and not stop():
                raise VotesError(
                    f"{len(writer.missing())} shards are missing, though they were voted on; the folder must be on a "
                    "disk that all machines share. The same command resumes"
                )
            _check_any(writer.manifest.failures, total)
            return writer.manifest

    def writer(self, folder: Path, discard: Callable[[Path], None] | None = None, *, main: bool = True) -> VotesWriter:
        """What writes the votes of this run into a folder."""
        if (rank := this_rank()).count > 1:
            raise InvalidInputError(
                f"votes are made in one process, and this is one of {rank.count} (WORLD_SIZE); start one, and give it "
                "--cluster to vote with several"
            )
        return VotesWriter(
            folder,
            self.provenance,
            shard_images=self._shard_images,
            keep_failures=self._record,
            main=main,
            any_noise_seed=self._scheme.any_noise_seed,
            same_images=lambda: self._voted_on(folder),
            discard=discard,
        )

    def _voted_on(self, folder: Path) -> bool:
        """Whether votes are on these images, by the first of them that has any: a run may know it by another one.

        The image by which a run is known may have been bad when the run began, or be gone now.
        """
        with suppress(VotesError):  # the writer raises it
            votes = read_votes(folder, partial=True)
            hashes = dict(zip(votes.ids, votes.image_hashes, strict=True))
            for position in (index for index, name in enumerate(self.dataset.ids) if name in hashes):
                with suppress(ImageError):
                    return image_hash(self._images.peek(position).image) == hashes[self.dataset.ids[position]]
        return False

    def vote_shards(self, writer: VotesWriter, shards: Iterable[int], on_image: Callable[[], object]) -> None:
        """Vote on these shards; each is written in a thread, at most one behind the device."""
        images = (
            ShardImages(index, self._images.samples(writer.manifest.positions(index)), writer.started(index))
            for index in shards
        )
        if not (missing := writer.missing()):
            return
        run, first = writer.manifest.provenance, writer.manifest.positions(missing[0])
        scheme = replace(self._scheme, noise_seed=run.noise_seed, stops=run.stops or (run.draws,))
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(lambda: None)
            for votes in self._voted(images, first, scheme, on_image):
                writing.result()
                writing = pool.submit(writer.write, votes.index, votes.rows, votes.failures)
            writing.result()

    def _voted(
        self, shards: Iterable[ShardImages], first: range, scheme: Scheme, on_image: Callable[[], object]
    ) -> Iterator[ShardVotes]:
        """The votes of these shards, as they come; of the classifier that is recorded, or `ModelError` is raised."""
        if not self._checked:
            for warning in self.check(first):
                warnings.warn(warning, stacklevel=6)
        classifier = self.smoother.classifier
        if classifier.state_hash() != self.provenance.classifier_hash:
            raise ModelError(
                f"the parameters or buffers of {classifier.name} have changed since its run was recorded; start a "
                "new run, and do not change them while it votes"
            )
        state = classifier.state_checksum()
        for votes in ShardVoter(self.smoother, shards, scheme, on_image, record_failures=self._record):
            self.smoother.end(state)
            yield votes


def _scheme(
    smoother: Smoother,
    draws: int | None,
    adaptive: AdaptivePlan | None,
    pilot_draws: int,
    labelled: bool,
    noise_seed: int | None,
) -> Scheme:
    """The draws of every image, checked."""
    positions, stopping = smoother.noise.positions, None
    asked = "adaptive" if adaptive is not None else None if draws == positions else draws
    for name, given in {"draws": asked, "pilot_draws": pilot_draws or None}.items():
        if positions is not None and given is not None:
            once = f"votes once for each of {positions} {smoother.noise.draw_words}"
            raise InvalidInputError(f"{name} is {given}, and {smoother.noise} {once}; leave it out")
    if draws is not None and adaptive is not None:
        raise InvalidInputError(
            "draws is a fixed number of draws, adaptive a plan of when to stop; give one of the two."
        )
    stops: tuple[int, ...] = (positions or (DEFAULT_DRAWS if draws is None else draws),)
    if adaptive is not None:
        labels = len(smoother.classifier.label_names)
        stops, stopping = adaptive.stops, Stopping(adaptive, smoother, labels, labelled=labelled)
    return Scheme(
        noise_seed=whole_number("noise_seed", resolve_seed(noise_seed)),
        any_noise_seed=noise_seed is None,
        stops=tuple(check_draws(number) for number in stops),
        stopping=stopping,
        pilot_draws=whole_number("pilot_draws", pilot_draws),
        labelled=bool(labelled),
    )


def _check_any(failures: Sequence[ImageFailure], total: int) -> None:
    """Raises `VotesError` if all images have failed."""
    if len(failures) == total:
        raise VotesError(
            f"none of {total} images could be voted on, such as {failures[0].image_id!r}: {failures[0].reason}; "
            "fix that and vote again without --on-error record (on_error='stop'), which tries them again."
        )


_MAX_KEPT = 64  # decoded images that wait for their shard


class ImageReader:
    """Decodes each image once, in threads ahead of the device; images that identify the run are kept for the voting."""

    def __init__(self, dataset: Dataset, readers: int, *, record: bool, pixels: bool) -> None:
        self._pixels = pixels  # whether values must lie in [0, 1]
        self._dataset, self._readers, self._record = dataset, check_count("readers", readers), record
        self._kept: dict[int, Sample | ImageError] = {}

    @cached_property
    def first(self) -> int:
        """The position of the first image that can be used; with `record` off, that must be image 0."""
        if len(self._dataset) == 0:
            raise InvalidInputError(f"the dataset {self._dataset.name!r} is empty; votes need at least one image.")
        for position in range(len(self._dataset)):
            with suppress(ImageError) if self._record else nullcontext():
                self.peek(position)
                return position
        raise DataError(f"no image of {self._dataset.name!r} can be used, such as {self._kept[0]}")

    def peek(self, position: int) -> Sample:
        """The image, kept so that `samples` need not decode it again; one that cannot be used raises `ImageError`."""
        outcome = self._kept.get(position) or self._decode(position)
        if isinstance(outcome, ImageError):
            self._kept[position] = outcome
            raise outcome
        if sum(isinstance(kept, Sample) for kept in self._kept.values()) < _MAX_KEPT:
            self._kept[position] = outcome
        return outcome

    def may_have_labels(self, position: int) -> bool:
        """Whether the image has labels; one that cannot be used may have some."""
        sample = self._decode(position)
        return isinstance(sample, ImageError) or len(sample.labels) > 0

    def samples(self, positions: range) -> Iterator[Sample | ImageFailure]:
        """The images in order, or their failures."""
        for position, reading in zip(positions, self._read_ahead(positions), strict=True):
            outcome = reading.result()
            if not isinstance(outcome, ImageError):
                yield outcome
                continue
            if not self._record:
                raise outcome
            if position > self.first:
                self._check_first()
            yield ImageFailure(self._dataset.ids[position], " ".join(outcome.reason.split()))

    def _read_ahead(self, positions: Iterable[int]) -> Iterator[Future[Sample | ImageError]]:
        """The images in order while threads decode them, a few ahead of the current one."""
        ahead: deque[Future[Sample | ImageError]] = deque()
        with ThreadPoolExecutor(self._readers) as pool:
            for position in positions:
                ahead.append(pool.submit(self._take, position))
                if len(ahead) > 4 * self._readers:
                    yield ahead.popleft()
            yield from ahead

    def _take(self, position: int) -> Sample | ImageError:
        return self._kept.pop(position, None) or self._decode(position)

    def _decode(self, position: int) -> Sample | ImageError:
        try:
            sample = self._dataset[position]
            if self._pixels:
                _check_pixels(sample)
        except ImageError as error:
            return error
        return sample

    def _check_first(self) -> None:
        """Raises `DataError` if the first image cannot be read any more: then no image is to blame."""
        try:
            self._dataset[self.first]
        except ImageError as error:
            raise DataError(
                f"{error}; but it could be read when the run began, so the images may be gone or out of reach. "
                "Make them available and run the same command again to resume"
            ) from error


def _check_pixels(sample: Sample) -> None:
    """Raises `ImageError` unless the values are pixels: a radius must be in units of [0, 1]."""
    image = sample.image
    if image.dtype != np.uint8 and not (image.min() >= 0 and image.max() <= 1):
        raise ImageError(
            f"image {sample.id!r}",
            f"holds values from {image.min():g} to {image.max():g}; an image of {image.dtype} must lie in [0, 1]: "
            "divide it by 255, and leave normalisation to the classifier.",
        )


_LIBRARIES = ("numpy", "timm", "transformers", "onnxruntime")


def execution(smoother: Smoother) -> dict[str, Any]:
    """How and where the classifier runs, by the names of `Provenance`."""
    settings, in_tensors = smoother.settings, smoother.classifier.takes == "tensors"
    machine, libraries = smoother.machine, [*(["torch"] if in_tensors else []), *_LIBRARIES]
    if machine["device"].endswith(", openvino"):
        libraries.append("openvino")
    found = {name: str(sys.modules[name].__version__) for name in libraries if name in sys.modules}
    versions = {"multiguard": __version__, "python": platform.python_version(), **found}
    return {**vars(settings), "rule": settings.rule_name, **machine, "versions": versions}


def _make_provenance(smoother: Smoother, dataset: Dataset, scheme: Scheme, first_image_hash: str) -> Provenance:
    """Everything that determines the votes of this run, read from the classifier as it is now."""
    classifier, stopping = smoother.classifier, scheme.stopping
    if tuple(dataset.label_names) != classifier.label_names:
        raise InvalidInputError(
            f"the dataset {dataset.name!r} and the classifier {classifier.name!r} must have the same labels in the "
            f"same order, not {' and '.join(shorten_names(each.label_names, 4) for each in (dataset, classifier))}."
        )
    return Provenance(
        model=classifier.name,
        weights_hash=classifier.weights_hash,
        classifier_hash=classifier.state_hash(),
        code_hash=classifier.code_hash,
        trained_noise=classifier.trained_noise,
        output=classifier.output,
        label_names=classifier.label_names,
        dataset=dataset.name,
        image_ids=dataset.ids,
        labelled=scheme.labelled,
        truth_hash=_truth_hash(dataset) if scheme.labelled else None,
        first_image_hash=first_image_hash,
        draws=scheme.stops[-1],
        earlier_draws=(),
        pilot_draws=scheme.pilot_draws,
        stops=scheme.stops if stopping else None,
        stopping=stopping.record if stopping else None,
        noise_seed=scheme.noise_seed,
        **execution(smoother),
    )


def _truth_hash(dataset: Dataset) -> str | None:
    """The sha256 of every image's labels, in order; None if they are known only after decoding."""
    if (labels := getattr(dataset, "labels", None)) is None:
        return None
    return hashlib.sha256(json.dumps([sorted(int(label) for label in each) for each in labels]).encode()).hexdigest()
