"""Voting on a dataset: pictures are read ahead, draws are packed, shards are written behind the device."""

import platform
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from multiguard.data.sample import Dataset, Sample
from multiguard.errors import InvalidInputError
from multiguard.smooth.arguments import checked_draws
from multiguard.smooth.smoother import Smoother
from multiguard.version import __version__
from multiguard.votes import Provenance, VoteRow, VotesWriter

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
    checked_draws(draws)
    provenance = describe_run(smoother, dataset, draws=draws, seed=seed)
    writer = VotesWriter(folder, provenance, shard_images=shard_images)
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
            labels.append(sample.labels)
            yield sample.id, sample.image

    for image_id, ranked in smoother.stream(images(), draws, seed=seed):
        yield VoteRow(image_id, labels.popleft(), ranked)


def read_ahead(dataset: Dataset, positions: Sequence[int], readers: int) -> Iterator[Sample]:
    """The samples in order, decoded by threads a few samples ahead; an unreadable one raises in its turn."""
    waiting = deque(positions)
    pool = ThreadPoolExecutor(max(1, readers))
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


def _counted(rows: Iterator[VoteRow], progress: Progress | None, done: int, total: int) -> Iterator[VoteRow]:
    for row in rows:
        done += 1
        if progress is not None:
            progress(done, total)
        yield row


def describe_run(smoother: Smoother, dataset: Dataset, *, draws: int, seed: int) -> Provenance:
    """All that determines the votes of this run; refuses a dataset whose labels are not the classifier's."""
    classifier, settings = smoother.classifier, smoother.settings
    if tuple(dataset.label_names) != classifier.label_names:
        raise InvalidInputError(
            f"the dataset {dataset.name!r} and the classifier {classifier.name!r} must have the same labels "
            f"in the same order; not {_brief(dataset.label_names)} and {_brief(classifier.label_names)}."
        )
    return Provenance(
        model=classifier.name,
        weights_hash=classifier.weights_hash,
        output=classifier.output,
        label_names=classifier.label_names,
        dataset=dataset.name,
        image_ids=tuple(dataset.ids),
        sigma=settings.sigma,
        draws=draws,
        seed=seed,
        k_max=settings.k_max,
        noise=settings.noise,
        precision=settings.precision,
        channels_last=settings.channels_last,
        compiled=settings.compiled,
        clamp=settings.clamp,
        device=_device_name(settings.device),
        versions=_versions(),
    )


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} {platform.machine()}"


def _versions() -> dict[str, str]:
    return {
        "multiguard": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _brief(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return f"{len(names)} labels ({shown}{', ...' if len(names) > 4 else ''})"
