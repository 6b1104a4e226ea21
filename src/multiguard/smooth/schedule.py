"""Packing draws into batches: rows of consecutive images share a batch, since noise is keyed draw by draw. No torch."""

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from multiguard.certify.arguments import check_count
from multiguard.errors import InvalidInputError

BatchSize = Literal["auto"] | int

MAX_ROWS = 2048  # of an automatic batch
_MAX_DRAWS = 1 << 32
# A batch of about this many input values fills the device, or a CPU's caches, without crowding it.
_DEVICE_VALUES = 1 << 27
_CPU_VALUES = 1 << 19


@dataclass(frozen=True, eq=False)
class Job:
    """The draws `first_draw`, `first_draw` + 1, ... of one image, `draws` of them."""

    image_id: str  # for messages
    key: bytes  # the 128-bit noise key
    image: Any  # an array or a tensor on the device: float32, or uint8 pixels (x / 255 is meant)
    first_draw: int
    draws: int
    noisy: bool = True  # False for the image as it is, whose votes certify nothing


@dataclass(frozen=True, eq=False)
class Segment:
    """`rows` consecutive draws of one job; the first of them is `start` draws into the job."""

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
        """For each row the index of its segment."""
        return np.repeat(np.arange(len(self.segments)), [segment.rows for segment in self.segments])

    def draws(self) -> NDArray[np.int64]:
        """For each row the index of its draw."""
        return np.concatenate([each.job.first_draw + each.start + np.arange(each.rows) for each in self.segments])

    def noisy(self) -> NDArray[np.bool_]:
        """For each row whether it has noise."""
        return np.array([segment.job.noisy for segment in self.segments], dtype=np.bool_)[self.slots()]

    def parts(self) -> list["Batch"]:
        """Smaller batches: one per image, or the two halves of one image's draws; none for a single draw."""
        if len(self.segments) > 1:
            return [Batch((segment,)) for segment in self.segments]
        (only,) = self.segments
        half = only.rows // 2
        spans = [(only.start, half), (only.start + half, only.rows - half)]
        return [Batch((Segment(only.job, start, rows),)) for start, rows in spans if half]

    def black(self) -> "Batch":
        """The same draws of black images: a classifier that fails on these fails on any image."""
        jobs = [replace(segment.job, image=0 * segment.job.image) for segment in self.segments]
        return Batch(tuple(replace(segment, job=job) for segment, job in zip(self.segments, jobs, strict=True)))


def pack(segments: Iterable[Segment], size: Callable[[Job], int]) -> Iterator[Batch]:
    """Every row of every segment exactly once, in order, in batches as full as the image shapes allow.

    Args:
        segments: The rows to pack; the next segment is taken only when its rows are due.
        size: The number of rows of a batch that starts with this job; called for each batch, since the size shrinks
            when the device runs out of memory.

    >>> jobs = [Job(name, bytes(16), np.zeros((3, 4, 4)), first_draw=0, draws=5) for name in ("cat", "dog")]
    >>> batches = pack([Segment(job, 0, job.draws) for job in jobs], size=lambda job: 4)
    >>> [[(segment.job.image_id, segment.rows) for segment in batch.segments] for batch in batches]
    [[('cat', 4)], [('cat', 1), ('dog', 3)], [('dog', 2)]]
    """
    waiting: list[Segment] = []
    room = 0
    for segment in segments:
        if waiting and _kind(waiting[0].job) != _kind(segment.job):
            yield Batch(tuple(waiting))
            waiting = []
        start, end = segment.start, segment.start + segment.rows
        while start < end:
            room = room if waiting else size(segment.job)
            waiting.append(Segment(segment.job, start, min(room, end - start)))
            start, room = start + waiting[-1].rows, room - waiting[-1].rows
            if room == 0:
                yield Batch(tuple(waiting))
                waiting = []
    if waiting:
        yield Batch(tuple(waiting))


def _kind(job: Job) -> tuple[Any, Any]:
    return job.image.shape, job.image.dtype


class Sizer:
    """The number of rows per batch; the limit falls when the device runs out of memory and never rises again."""

    def __init__(self, batch_size: BatchSize, *, on_cpu: bool) -> None:
        self._values = _CPU_VALUES if on_cpu else _DEVICE_VALUES
        self._fixed = None if batch_size == "auto" else check_count("batch_size", batch_size)
        self.limit = self._fixed or MAX_ROWS

    def rows(self, job: Job) -> int:
        """The rows of a batch of images like this job's."""
        fitting = max(1, self._values // max(1, prod(job.image.shape)))
        return min(self._fixed or 1 << (fitting.bit_length() - 1), self.limit)

    def halve(self, rows: int) -> None:
        """Allow half of `rows` from now on."""
        self.limit = min(self.limit, max(1, rows // 2))


def check_draws(draws: int, first_draw: int = 0, *, name: str = "draws") -> int:
    """The number of draws: at least 1, all of their indices below 2^32, the most that the noise can number."""
    count, first = check_count(name, draws), whole_number("first_draw", first_draw)
    if first < 0 or first + count > _MAX_DRAWS:
        raise InvalidInputError(
            f"draw indices must lie in 0 .. 2^32 - 1; first_draw = {first} with {name} = {count} does not fit."
        )
    return count


def whole_number(name: str, value: object) -> int:
    """The value as an int, NumPy's integers included; anything else is refused by its name."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise InvalidInputError(f"{name} must be a whole number, not {value!r}.") from error
