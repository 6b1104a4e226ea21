"""Voting on a dataset: pictures are read ahead, draws are packed, shards are written behind the device."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from multiguard.data.sample import Dataset, Sample
from multiguard.errors import DataError, InvalidInputError
from multiguard.smooth.arguments import checked_draws, whole_number
from multiguard.smooth.provenance import describe_run
from multiguard.smooth.smoother import Smoother
from multiguard.votes import VoteRow, VotesWriter

Progress = Callable[[int, int], None]


def vote_dataset(
    smoother: Smoother,
    dataset: Dataset,
    folder: str | Path,
    *,
    draws: int,
    seed: int,
    shard_images: int = 64,
    readers: int = 2,
    progress: Progress | None = None,
) -> None:
    """Write the votes of a dataset into a folder; the same call goes on where an interrupted one stopped.

    The noise of each draw is the same whatever the batches, the shards or the interruptions.

    Args:
        smoother: The smoothed classifier.
        dataset: The images, each of them voted on; its labels must be the classifier's. A random part of a
            dataset is a dataset whose name says how the part was drawn.
        folder: Where the votes go.
        draws: n, the draws of each image.
        seed: The seed of the noise.
        shard_images: How many images go into one file.
        readers: How many threads decode pictures ahead of the device.
        progress: Called with the number of images done and of all images.
    """
    draws, seed = checked_draws(draws), whole_number("seed", seed)
    if whole_number("readers", readers) < 1:
        raise InvalidInputError(f"readers must be at least 1, not {readers}: someone has to decode the pictures.")
    provenance = describe_run(smoother, dataset, draws=draws, seed=seed)
    writer = VotesWriter(folder, provenance, shard_images=whole_number("shard_images", shard_images))
    todo = [position for shard in writer.missing() for position in writer.manifest.positions(shard)]
    rows = _rows(smoother, dataset, todo, draws, seed, readers)
    _write_shards(writer, _counted(rows, progress, len(dataset) - len(todo), len(dataset)))


def _write_shards(writer: VotesWriter, rows: Iterator[VoteRow]) -> None:
    """Write each shard in a thread of its own while the device goes on, never more than one behind."""
    with ThreadPoolExecutor(1) as pool:
        writing: Future[None] | None = None
        for shard in writer.missing():
            held = [next(rows) for _ in writer.manifest.positions(shard)]
            if writing is not None:
                writing.result()
            writing = pool.submit(writer.write, shard, held)
        if writing is not None:
            writing.result()


def _rows(
    smoother: Smoother, dataset: Dataset, positions: Sequence[int], draws: int, seed: int, readers: int
) -> Iterator[VoteRow]:
    labels: deque[tuple[int, ...]] = deque()

    def images() -> Iterator[tuple[str, np.ndarray]]:
        for sample in read_ahead(dataset, positions, readers):
            _check_pixels(sample)
            labels.append(sample.labels)
            yield sample.id, sample.image

    for image_id, ranked in smoother.stream(images(), draws, seed=seed):
        yield VoteRow(image_id, labels.popleft(), ranked)


def read_ahead(dataset: Dataset, positions: Sequence[int], readers: int) -> Iterator[Sample]:
    """The samples in order, decoded by threads a few samples ahead; an unreadable one raises in its turn."""
    waiting = deque(positions)
    pool = ThreadPoolExecutor(readers)
    try:
        ahead = deque(
            pool.submit(dataset.__getitem__, waiting.popleft()) for _ in range(min(len(waiting), 4 * readers))
        )
        while ahead:
            sample = ahead.popleft().result()
            if waiting:
                ahead.append(pool.submit(dataset.__getitem__, waiting.popleft()))
            yield sample
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _check_pixels(sample: Sample) -> None:
    """Refuse a picture whose values are not pixels: its radius would not be in units of [0, 1]."""
    image = sample.image
    if image.dtype != np.uint8 and not (image.min() >= 0 and image.max() <= 1):
        raise DataError(
            f"image {sample.id!r} holds values from {image.min():g} to {image.max():g}; a picture of {image.dtype} "
            "must lie in [0, 1]: divide it by 255, and leave normalisation to the classifier."
        )


def _counted(rows: Iterator[VoteRow], progress: Progress | None, done: int, total: int) -> Iterator[VoteRow]:
    for row in rows:
        done += 1
        if progress is not None:
            progress(done, total)
        yield row
