"""Voting on a dataset: images are read ahead, draws are packed, shards are written behind the device."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from multiguard.data.sample import Dataset, Sample
from multiguard.errors import DataError, ImageError, InvalidInputError, VotesError
from multiguard.io.lock import folder_lock
from multiguard.smooth.adaptive import AdaptivePlan, Stopping
from multiguard.smooth.arguments import checked_draws, whole_number
from multiguard.smooth.provenance import as_begun, describe_run, first_image
from multiguard.smooth.rounds import OpenShard, Scheme, ShardVoting, VotedShard
from multiguard.smooth.smoother import Smoother
from multiguard.smooth.team import Team
from multiguard.votes import ImageFailure, Manifest, VotesWriter

Progress = Callable[[int, int], None]
OnError = Literal["stop", "record"]
_Voting = Callable[[Iterable[OpenShard], Callable[[], object]], Iterable[VotedShard]]


def vote_dataset(
    smoother: Smoother,
    dataset: Dataset,
    folder: str | Path,
    *,
    draws: int | None = None,
    adaptive: AdaptivePlan | None = None,
    pilot_draws: int = 0,
    labelled: bool = True,
    seed: int,
    shard_images: int = 64,
    readers: int = 2,
    on_error: OnError = "stop",
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> None:
    """Write the votes of a dataset into a folder; the same call goes on where an interrupted one stopped.

    Under torchrun all processes share the work, and the folder ends as if one had done it alone; the call returns in
    the main process when all is done, in the others when there is nothing more for them to do.

    The noise of each draw is the same whatever the batches, the shards or the interruptions; an image that an adaptive
    run left after n draws has the first n draws of a run of fixed length.

    Args:
        smoother: The smoothed classifier.
        dataset: The images, each of them voted on; its labels must be the classifier's. A random part of a
            dataset is a dataset whose name says how the part was drawn.
        folder: Where the votes go.
        draws: n, the draws of each image, fixed beforehand; or give `adaptive`.
        adaptive: Looks at growing numbers of draws, at each of which an image may stop.
        pilot_draws: Draws of each image, of other noise, stored beside the others for choosing labels.
        labelled: Whether the dataset's labels are the ground truth. Without it the votes carry no labels, and pilot
            draws are needed to choose them.
        seed: The seed of the noise.
        shard_images: How many images go into one file.
        readers: How many threads decode images ahead of the device.
        on_error: What to do where an image cannot be read (`ImageError`) or the classifier fails on it: "stop"
            raises; "record" goes on with the others and lists it with its reason (`Votes.failures`). A later call with
            "stop" tries such images again. What is no image's fault, or fails on all of them, raises all the same.
        progress: Called with the number of images done and of all images.
        stop: Asked before each shard; at a yes the shards under way are finished, and the rest is left to a later call.
    """
    if whole_number("readers", readers) < 1:
        raise InvalidInputError(f"readers must be at least 1, not {readers}: someone has to decode the images.")
    scheme = checked_scheme(
        smoother, draws=draws, adaptive=adaptive, pilot_draws=pilot_draws, labelled=labelled, seed=seed
    )
    first = first_image(dataset, checked_on_error(on_error))
    provenance = describe_run(smoother, dataset, scheme, first)
    images = whole_number("shard_images", shard_images)
    reading = _Reading(dataset, readers, on_error, first.position)

    def voting(shards: Iterable[OpenShard], stopped: Callable[[], object]) -> Iterable[VotedShard]:
        return ShardVoting(smoother, shards, scheme, stopped, goes_on=on_error == "record")

    def writer(*, main: bool) -> VotesWriter:
        run = as_begun(provenance, Path(folder), dataset)
        return VotesWriter(folder, run, shard_images=images, keep_failures=on_error == "record", main=main)

    with folder_lock(Path(folder)):
        team = Team.here()
        if team.rank.is_main:
            _lead(team, writer(main=True), reading, voting, progress or _ignored, stop or _never)
        else:
            _follow(team, partial(writer, main=False), reading, voting, stop or _never)


def _ignored(done: int, total: int) -> None:
    pass


def _never() -> bool:
    return False


def _lead(
    team: Team, writer: VotesWriter, reading: "_Reading", voting: _Voting, told: Progress, stop: Callable[[], bool]
) -> None:
    """Say what there is to do, do a part of it, wait for the others and seal the votes."""
    todo, total = writer.missing(), len(reading.dataset)
    done = total - sum(len(writer.manifest.positions(shard)) for shard in todo)
    with team.leading(todo, done, stop) as work:
        shards = (reading.opened(writer.manifest, shard) for shard in work)
        _write_shards(writer, voting(shards, lambda: told(work.count(), total)))
        work.leave()
        work.wait(lambda images: told(images, total))
    writer.finish()
    if writer.missing() and not stop():
        raise VotesError(
            f"{len(writer.missing())} shards are missing, for another process was stopped; the same command goes on."
        )
    _require_votes(writer.manifest)


def _follow(
    team: Team, joined: Callable[[], VotesWriter], reading: "_Reading", voting: _Voting, stop: Callable[[], bool]
) -> None:
    """Do a part of what the main process says there is to do."""
    with team.joined(stop) as work:
        if work is None:
            return
        if work.todo:
            writer = joined()
            shards = (reading.opened(writer.manifest, shard) for shard in work)
            _write_shards(writer, voting(shards, work.count))
        work.leave()


def checked_on_error(on_error: str) -> OnError:
    """What to do where an image cannot be voted on; another word raises `InvalidInputError`."""
    for known in get_args(OnError):
        if on_error == known:
            return known  # type: ignore[no-any-return]
    raise InvalidInputError(f"on_error must be one of {', '.join(get_args(OnError))}, not {on_error!r}.")


def checked_scheme(
    smoother: Smoother, *, draws: int | None, adaptive: AdaptivePlan | None, pilot_draws: int, labelled: bool, seed: int
) -> Scheme:
    """What is drawn of every image, after all of it has been found to make sense; arguments as in `vote_dataset`."""
    labels = len(smoother.classifier.label_names)
    stopping = None if adaptive is None else Stopping(adaptive, smoother.settings, labels, labelled=labelled)
    return Scheme(
        seed=whole_number("seed", seed),
        looks=_looks(draws, adaptive),
        stopping=stopping,
        pilot_draws=whole_number("pilot_draws", pilot_draws),
        labelled=bool(labelled),
    )


def _looks(draws: int | None, adaptive: AdaptivePlan | None) -> tuple[int, ...]:
    if draws is not None and adaptive is None:
        return (checked_draws(draws),)
    if draws is None and adaptive is not None:
        return tuple(checked_draws(number) for number in adaptive.looks.draws)
    raise InvalidInputError("draws must be a fixed number, or adaptive a plan of looks: give one of the two.")


def _write_shards(writer: VotesWriter, shards: Iterable[VotedShard]) -> None:
    """Write each shard in a thread of its own while the device goes on, never more than one behind."""
    with ThreadPoolExecutor(1) as pool:
        writing: Future[None] | None = None
        for shard in shards:
            if writing is not None:
                writing.result()
            writing = pool.submit(writer.write, shard.index, shard.rows, shard.failures)
        if writing is not None:
            writing.result()


@dataclass(frozen=True, eq=False)
class _Reading:
    """How images are read: by how many threads, and what becomes of those that cannot be.

    Attributes:
        dataset: The images.
        readers: How many threads.
        on_error: Whether an image that cannot be used raises in its turn, or comes out as a failure.
        first: The position of an image that could be read when the run began.
    """

    dataset: Dataset
    readers: int
    on_error: OnError
    first: int

    def opened(self, run: Manifest, shard: int) -> OpenShard:
        """A shard whose images are read when they are due."""
        positions = run.positions(shard)
        return OpenShard(shard, self._samples(positions), len(positions))

    def _samples(self, positions: range) -> Iterator[Sample | ImageFailure]:
        """The samples in order, or their failures."""
        for position, reading in zip(positions, read_ahead(self.dataset, positions, self.readers), strict=True):
            try:
                sample = reading.result()
                _check_pixels(sample)
            except ImageError as error:
                if self.on_error == "stop":
                    raise
                self._require_others()
                yield ImageFailure(self.dataset.ids[position], " ".join(error.reason.split()))
            else:
                yield sample

    def _require_others(self) -> None:
        """Pass only if an image that could be read when the run began still can be; else no image is at fault."""
        try:
            self.dataset[self.first]
        except ImageError as error:
            raise DataError(
                f"{error}; but it could be read when the run began, so that the images may be gone or out of reach. "
                "Bring them back; the same command goes on"
            ) from error


def read_ahead(dataset: Dataset, positions: Iterable[int], readers: int) -> Iterator[Future[Sample]]:
    """The samples in order as they are being decoded by threads, a few ahead of the one asked for."""
    waiting = deque(positions)
    pool = ThreadPoolExecutor(readers)
    try:
        ahead = deque(
            pool.submit(dataset.__getitem__, waiting.popleft()) for _ in range(min(len(waiting), 4 * readers))
        )
        while ahead:
            reading = ahead.popleft()
            if waiting:
                ahead.append(pool.submit(dataset.__getitem__, waiting.popleft()))
            yield reading
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _check_pixels(sample: Sample) -> None:
    """Refuse an image whose values are not pixels: its radius would not be in units of [0, 1]."""
    image = sample.image
    if image.dtype != np.uint8 and not (image.min() >= 0 and image.max() <= 1):
        raise ImageError(
            f"image {sample.id!r}",
            f"holds values from {image.min():g} to {image.max():g}; an image of {image.dtype} must lie in [0, 1]: "
            "divide it by 255, and leave normalisation to the classifier.",
        )


def _require_votes(run: Manifest) -> None:
    """Refuse a run that has ended without votes on any image."""
    failures = run.failures
    if len(failures) == len(run.provenance.image_ids):
        first = failures[0]
        raise VotesError(
            f"not one of {len(failures)} images could be voted on, such as {first.image_id!r}: {first.reason}; mend "
            "that and vote again without --on-error record (on_error='stop'), which tries them anew."
        )
