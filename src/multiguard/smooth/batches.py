"""Packing draws into batches: rows of consecutive images share a batch, since noise is keyed draw by draw."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Job:
    """All the draws of one image that are wanted: `first_draw`, `first_draw` + 1, ..., `draws` of them.

    Attributes:
        image_id: The name of the image, for messages.
        key: The 128 bits that name its noise.
        image: The image on the device, float32 in [0, 1] or uint8 (x / 255).
        first_draw: The index of the first draw.
        draws: How many draws.
    """

    image_id: str
    key: bytes
    image: Tensor
    first_draw: int
    draws: int


@dataclass(frozen=True, eq=False)
class Segment:
    """`rows` consecutive draws of one job, the first of them `start` draws into the job."""

    job: Job
    start: int
    rows: int


@dataclass(frozen=True, eq=False)
class Batch:
    """Segments of jobs whose images have one shape and one dtype."""

    segments: tuple[Segment, ...]

    @property
    def rows(self) -> int:
        """The number of noisy images in the batch."""
        return sum(segment.rows for segment in self.segments)

    def slots(self) -> NDArray[np.int64]:
        """For each row the position of its segment."""
        return np.repeat(np.arange(len(self.segments)), [segment.rows for segment in self.segments])

    def draws(self) -> NDArray[np.int64]:
        """For each row the index of its draw."""
        return np.concatenate([_draw_indices(segment) for segment in self.segments])

    def image_of(self, row: int) -> str:
        """The id of the image that a row belongs to."""
        return self.segments[int(self.slots()[row])].job.image_id


def whole(job: Job) -> Segment:
    """All the draws of a job."""
    return Segment(job, 0, job.draws)


def pack(segments: Iterable[Segment], size: Callable[[Job], int]) -> Iterator[Batch]:
    """Every row of every segment exactly once, in order, in batches as full as shapes allow.

    Args:
        segments: Rows wanted.
        size: The rows of a batch that a job opens; asked anew for each batch, since it shrinks when the
            device runs out of memory.
    """
    held: list[Segment] = []
    room = 0
    for segment in segments:
        if held and not _stack_together(held[0].job, segment.job):
            yield Batch(tuple(held))
            held = []
        start, end = segment.start, segment.start + segment.rows
        while start < end:
            room = room if held else size(segment.job)
            held.append(Segment(segment.job, start, min(room, end - start)))
            start, room = start + held[-1].rows, room - held[-1].rows
            if room == 0:
                yield Batch(tuple(held))
                held = []
    if held:
        yield Batch(tuple(held))


def _draw_indices(segment: Segment) -> NDArray[np.int64]:
    first = segment.job.first_draw + segment.start
    return np.arange(first, first + segment.rows, dtype=np.int64)


def _stack_together(one: Job, other: Job) -> bool:
    return one.image.shape == other.image.shape and one.image.dtype == other.image.dtype
