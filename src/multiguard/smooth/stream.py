"""Draws packed into batches, and batches run with bounded memory: votes are collected a few behind the device.

Rows of consecutive images share a batch, since noise is keyed draw by draw. A batch that fails is run again in parts,
down to the one draw that fails alone: which images fail never depends on the batches.
"""

import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from multiguard.certify.arguments import check_count
from multiguard.errors import ImageFailure, InvalidInputError, ModelError, MultiGuardError
from multiguard.models.classifier import cached_rows

if TYPE_CHECKING:
    from multiguard.smooth.engine import Engine

BatchSize = Literal["auto"] | int

MAX_ROWS = 2048  # of an automatic batch
_MAX_DRAWS = 1 << 32
_DEVICE_VALUES = 1 << 27  # input values of a batch that fill an accelerator without crowding it


@dataclass(frozen=True, eq=False)
class Job:
    """The draws of one image from `first_draw` on."""

    image_id: str  # for messages
    key: bytes  # the 128-bit noise key
    image: NDArray[Any]  # float32, or uint8 pixels (x / 255 is meant)
    first_draw: int
    draws: int
    noisy: bool = True  # False for the image as it is, whose votes certify nothing


@dataclass(frozen=True, eq=False)
class Segment:
    """`rows` consecutive draws of a job, from `start` draws into it."""

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

    The next segment is taken only when its rows are due; `size` is called for each batch, since it may shrink.

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
    """The rows per batch: on a CPU for the caches of each lane. The limit falls when memory runs out, and stays."""

    def __init__(self, batch_size: BatchSize, *, on_cpu: bool, lanes: int = 1) -> None:
        self._lanes = lanes if on_cpu else 0
        self._fixed = None if batch_size == "auto" else check_count("batch_size", batch_size)
        self.limit = self._fixed or MAX_ROWS

    def rows(self, job: Job) -> int:
        """The rows of a batch of images like this job's."""
        if self._fixed:
            return min(self._fixed, self.limit)
        if self._lanes:
            return min(self._lanes * cached_rows(job.image.shape), self.limit)
        fitting = max(1, _DEVICE_VALUES // max(1, prod(job.image.shape)))
        return min(1 << (fitting.bit_length() - 1), self.limit)

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


Rows = NDArray[np.uint8 | np.uint16]

_QUEUED = 8  # batches on the device before the host reads the oldest
_NOT_FINITE = "returned a score that is NaN or infinite"
_LONGEST = 300  # characters of an error message
# What the device, its libraries or a compiler report when they break: the process may then do nothing right any more.
_LIBRARY_ERRORS = [f"{library}_status" for library in ("cudnn", "cublas", "cusolver")]
_DEVICE_ERRORS = ("cuda error", "hip error", "triton error", *_LIBRARY_ERRORS, "cufft")
_COMPILER_ERRORS = ("InductorError", "BackendCompilerFailed")
# From a library of the device, torch on a CPU, the system, onnxruntime.
_MEMORY_ERRORS = ("alloc_failed", "can't allocate memory", "cannot allocate memory", "failed to allocate memory")


@dataclass(frozen=True, eq=False)
class _Pending:
    """A batch whose votes are on their way to the host."""

    batch: Batch
    votes: NDArray[np.integer]
    event: Any  # None where they have arrived


@dataclass(eq=False)
class _Tally:
    """The votes of one job as they arrive, or its failure."""

    votes: Rows
    missing: int
    failure: ImageFailure | None = None


class VoteStream:
    """Turns jobs into votes: batches queue on the device, and jobs wait for their votes in order.

    A vote is `width` integers. With `padded`, smaller batches are padded to a full one, of at most `most_rows` rows.
    With `record_failures`, a job that the classifier fails on yields an image failure, with the first draw that fails
    alone, while the others continue; otherwise that draw raises `ModelError`. An image without noise never raises: its
    failure is recorded, since no claim depends on it. Where no image is to blame, `ModelError` is raised in any case:
    the device is dead, or the classifier now also fails on a draw that succeeded before (on a black image, if none
    has).
    """

    def __init__(
        self,
        engine: "Engine",
        sizer: Sizer,
        *,
        width: int,
        dtype: type[np.uint8] | type[np.uint16],
        padded: bool,
        most_rows: int = MAX_ROWS,
        record_failures: bool = False,
    ) -> None:
        self._engine, self._sizer, self._most_rows, self._padded = engine, sizer, most_rows, padded
        self._width, self._dtype, self._record = width, dtype, record_failures
        self._queue: deque[_Pending] = deque()
        self._tallies: dict[Job, _Tally] = {}
        self._success: Batch | None = None  # the latest draw that succeeded

    def outcomes(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Rows | ImageFailure]]:
        """Each job with its votes (draws, width) or its failure, in order; the next job is taken when its rows are due.

        The noise of a draw depends neither on how draws are packed nor on a batch that had to be halved.
        """
        for batch, prepared in self._ahead(pack(map(self._open, jobs), self._rows)):
            for pending in self._launch(batch, prepared):
                self._queue.append(pending)
                if len(self._queue) > _QUEUED or pending.event is None:
                    self._collect(self._queue.popleft())
                    yield from self._completed_jobs()
            yield from self._completed_jobs()
        self._collect_all()
        yield from self._completed_jobs()

    def _ahead(self, batches: Iterator[Batch]) -> Iterator[tuple[Batch, "Future[Any] | None"]]:
        """Each batch once the next one is in preparation: its noise is made while the classifier runs."""
        before: tuple[Batch, Future[Any] | None] | None = None
        for batch in batches:
            current = batch, self._engine.prepare(batch, self._size(batch))
            if before is not None:
                yield before
            before = current
        if before is not None:
            yield before

    def _open(self, job: Job) -> Segment:
        self._tallies[job] = _Tally(np.empty((job.draws, self._width), dtype=self._dtype), job.draws)
        return Segment(job, 0, job.draws)

    def _rows(self, job: Job) -> int:
        return min(self._sizer.rows(job), self._most_rows)

    def _size(self, batch: Batch) -> int:
        """The rows that a batch is run with, padding included."""
        return self._rows(batch.segments[0].job) if self._padded else batch.rows

    def _launch(self, batch: Batch, prepared: "Future[Any] | None") -> Iterator[_Pending]:
        """Run a batch; in halves if memory runs out, in parts if it fails: then one of them must fail alone."""
        waiting, failed = deque([batch]), None
        while waiting:
            part = self._without_failed_jobs(waiting.popleft())
            if part is None:
                continue
            if part.rows > self._rows(part.segments[0].job):
                waiting.extendleft(reversed(list(pack(part.segments, self._rows))))
                continue
            outcome = self._run(part, prepared if part is batch else None)
            if isinstance(outcome, _Pending):
                yield outcome
            elif _is_out_of_memory(outcome):
                if (size := self._size(part)) == 1:
                    raise _make_error(part, "has no memory for even one noisy image; use a smaller image or model")
                self._sizer.halve(size)
                waiting.appendleft(part)
            else:
                failed = failed or outcome
                waiting.extendleft(reversed(self._batches_to_retry(part, outcome)))
        if failed and not self._record and batch.noisy().all():
            raise _make_error(batch, _describe_error(failed)) from failed

    def _without_failed_jobs(self, batch: Batch) -> Batch | None:
        """The segments of a batch whose jobs have not failed yet; None if there are none."""
        tallies = [(segment, self._tallies.get(segment.job)) for segment in batch.segments]
        kept = tuple(segment for segment, tally in tallies if tally is not None and tally.failure is None)
        return batch if len(kept) == len(batch.segments) else Batch(kept) if kept else None

    def _batches_to_retry(self, batch: Batch, error: Exception) -> list[Batch]:
        """What to run in place of a failed batch; nothing after a single draw, whose job has then failed."""
        if _is_device_error(error):
            raise _make_error(batch, _describe_error(error)) from error
        self._collect_all()  # an earlier draw of the same job may have failed as well
        if self._without_failed_jobs(batch) is not batch:
            return [batch]
        if batch.rows > 1:
            return batch.parts()
        self._fail(batch, _describe_error(error), error)
        return []

    def _collect_all(self) -> None:
        while self._queue:
            self._collect(self._queue.popleft())

    def _collect(self, pending: _Pending) -> None:
        """Add the votes of a batch to their jobs, once they have arrived."""
        if pending.event is not None:
            pending.event.synchronize()
        row = 0
        for segment in pending.batch.segments:
            self._add(segment, pending.votes[row : row + segment.rows])
            row += segment.rows

    def _add(self, segment: Segment, table: NDArray[np.integer]) -> None:
        tally = self._tallies.get(segment.job)
        if tally is None or tally.failure is not None:
            return
        if not table[:, -1].all():
            self._fail(_single_draw(segment, int(np.argmin(table[:, -1]))), _NOT_FINITE)
        else:
            tally.votes[segment.start : segment.start + segment.rows] = table[:, :-1]
            tally.missing -= segment.rows
            self._success = _single_draw(segment, 0)

    def _fail(self, draw: Batch, problem: str, error: Exception | None = None) -> None:
        """Record the failure of one draw for its job, if the classifier still works elsewhere."""
        if not self._record and draw.noisy().all():
            raise _make_error(draw, problem) from error
        if not self._succeeds(self._success or draw.black()):
            other = f"image {_image_id(self._success)!r}, which worked before" if self._success else "a black image"
            raise _make_error(draw, f"{problem}; it now also fails on {other}, so no image is to blame")
        reason = f"draw {draw.draws()[0]}: the classifier {problem}"
        self._tallies[draw.segments[0].job].failure = ImageFailure(_image_id(draw), reason)

    def _completed_jobs(self) -> Iterator[tuple[Job, Rows | ImageFailure]]:
        """The first jobs in order, as far as they are complete."""
        while self._tallies:
            job, tally = next(iter(self._tallies.items()))
            if tally.missing and tally.failure is None:
                return
            del self._tallies[job]
            yield job, tally.failure or tally.votes

    def _run(self, batch: Batch, prepared: "Future[Any] | None" = None) -> _Pending | Exception:
        """The launched batch, or what the classifier raised."""
        try:
            return _Pending(batch, *self._engine.launch(batch, self._size(batch), prepared))
        except Exception as error:
            return error

    def _succeeds(self, batch: Batch) -> bool:
        """Whether the classifier returns finite scores for this batch."""
        outcome = self._run(batch)
        if not isinstance(outcome, _Pending):
            return False
        if outcome.event is not None:
            outcome.event.synchronize()
        return bool(outcome.votes[: batch.rows, -1].all())


def _single_draw(segment: Segment, row: int) -> Batch:
    return Batch((Segment(segment.job, segment.start + row, 1),))


def _image_id(batch: Batch) -> str:
    return batch.segments[0].job.image_id


def _make_error(batch: Batch, problem: str) -> ModelError:
    """An error that names the image of a batch, and the draw where there is only one."""
    draw = f", draw {batch.draws()[0]}" if batch.rows == 1 else ""
    return ModelError(f"image {_image_id(batch)!r}{draw}: the classifier {problem}.")


def _describe_error(error: Exception) -> str:
    """The message of an exception, in one line of bounded length."""
    name = "" if isinstance(error, MultiGuardError) else f"{type(error).__name__}: "
    message = " ".join(f"{name}{error}".split())
    return f"failed: {message if len(message) <= _LONGEST else message[:_LONGEST] + ' ...'}"


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, also where a library reported it or a compiler wrapped it."""
    while error is not None:
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # Python's and torch's
            return True
        if any(words in str(error).lower() for words in _MEMORY_ERRORS):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_device_error(error: BaseException | None) -> bool:
    """Whether the device or its software broke, so that no image is to blame."""
    while error is not None:
        if type(error).__name__ in _COMPILER_ERRORS or any(words in str(error).lower() for words in _DEVICE_ERRORS):
            return True
        error = error.__cause__ or error.__context__
    return False
