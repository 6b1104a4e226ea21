"""Running batch after batch with bounded memory: results are collected a few batches behind the device."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.errors import InvalidInputError, ModelError, MultiGuardError
from multiguard.smooth.arguments import whole_number
from multiguard.smooth.batches import Batch, Job, Segment, pack, whole
from multiguard.smooth.step import Step

BatchSize = Literal["auto"] | int
Rows = NDArray[np.uint8 | np.uint16]

# A batch of about this many input numbers fills the device, and a CPU's caches, without crowding them.
_DEVICE_NUMBERS = 1 << 27
_CPU_NUMBERS = 1 << 19
_MOST_ROWS = 2048
_BEHIND = 8  # batches queued on the device before the host reads the oldest


class Sizer:
    """How many rows a batch has; the limit falls when the device runs out of memory and never rises again."""

    def __init__(self, batch_size: BatchSize, device: torch.device) -> None:
        self._numbers = _CPU_NUMBERS if device.type == "cpu" else _DEVICE_NUMBERS
        self._fixed = None if batch_size == "auto" else whole_number("batch_size", batch_size)
        if self._fixed is not None and self._fixed < 1:
            raise InvalidInputError(f"batch_size must be 'auto' or a whole number of at least 1, not {batch_size!r}.")
        self._limit = _MOST_ROWS if self._fixed is None else self._fixed

    def rows(self, job: Job) -> int:
        """The rows of a batch of images like this job's."""
        wanted = self._fixed or _power_of_two(self._numbers // max(1, job.image.numel()))
        return min(wanted, self._limit)

    def halve(self, rows: int) -> None:
        """Allow half of `rows` from now on."""
        self._limit = min(self._limit, max(1, rows // 2))


@dataclass(frozen=True, eq=False)
class _Flight:
    """A batch whose votes are on their way to the host."""

    batch: Batch
    votes: Tensor
    arrived: torch.cuda.Event | None


@dataclass(frozen=True, eq=False)
class Plan:
    """What a run needs beside its jobs.

    Attributes:
        step: Runs one batch.
        sizer: Chooses the rows of a batch.
        width: How many numbers the votes of a draw are.
        dtype: What they are kept in.
        padded: Whether a smaller batch is padded to the size of a full one.
        most_rows: No batch is larger; a run of few draws is not padded beyond it.
    """

    step: Step
    sizer: Sizer
    width: int
    dtype: type[np.uint8] | type[np.uint16]
    padded: bool
    most_rows: int = _MOST_ROWS

    def rows(self, job: Job) -> int:
        """The rows of a batch of images like this job's."""
        return min(self.sizer.rows(job), self.most_rows)


def stream_votes(jobs: Iterable[Job], plan: Plan) -> Iterator[tuple[Job, Rows]]:
    """The votes (draws, width) of each job, in order, in the memory of a few batches and of the votes themselves.

    The noise of a draw does not depend on how draws are packed, nor on a batch that had to be halved.
    """
    flights: deque[_Flight] = deque()
    tallies: deque[_Tally] = deque()
    for batch in pack((_opened(job, tallies, plan) for job in jobs), plan.rows):
        for flight in _launch(batch, plan):
            flights.append(flight)
            if len(flights) > _BEHIND or flight.arrived is None:
                yield from _land(flights.popleft(), tallies)
    while flights:
        yield from _land(flights.popleft(), tallies)


class _Tally:
    """The votes of one job as they arrive."""

    def __init__(self, job: Job, plan: Plan) -> None:
        self.job = job
        self.votes: Rows = np.empty((job.draws, plan.width), dtype=plan.dtype)
        self._missing = job.draws

    @property
    def complete(self) -> bool:
        return self._missing == 0

    def add(self, segment: Segment, votes: NDArray[np.integer]) -> None:
        self.votes[segment.start : segment.start + segment.rows] = votes
        self._missing -= segment.rows


def _opened(job: Job, tallies: "deque[_Tally]", plan: Plan) -> Segment:
    tallies.append(_Tally(job, plan))
    return whole(job)


def _launch(batch: Batch, plan: Plan) -> Iterator[_Flight]:
    """Run a batch; where the device has no room for it, run it in halves."""
    waiting = deque([batch])
    while waiting:
        part = waiting.popleft()
        rows = plan.rows(part.segments[0].job)
        if part.rows > rows:
            waiting.extendleft(reversed(list(pack(part.segments, plan.rows))))
            continue
        size = rows if plan.padded else part.rows
        flight = _try(part, plan.step, size)
        if flight is None:
            _shrink(part, plan.sizer, size)
            waiting.appendleft(part)
        else:
            yield flight


def _try(batch: Batch, step: Step, size: int) -> _Flight | None:
    """The launched batch, or None where the device is out of memory."""
    try:
        with torch.no_grad():
            return _fly(batch, step(batch, size))
    except Exception as error:
        if _out_of_memory(error):
            return None
        if isinstance(error, MultiGuardError):
            raise _blame(batch, str(error)) from error
        raise _blame(batch, f"it failed with {type(error).__name__}: {error}") from error


def _shrink(batch: Batch, sizer: Sizer, size: int) -> None:
    if size == 1:
        raise _blame(batch, "the device has no memory for even one noisy image; use a smaller image or model")
    sizer.halve(size)
    torch.cuda.empty_cache()


def _fly(batch: Batch, votes: Tensor) -> _Flight:
    if votes.device.type != "cuda":
        return _Flight(batch, votes, None)
    host = torch.empty(votes.shape, dtype=votes.dtype, pin_memory=True)
    host.copy_(votes, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record(torch.cuda.current_stream(votes.device))
    return _Flight(batch, host, arrived)


def _land(flight: _Flight, tallies: "deque[_Tally]") -> Iterator[tuple[Job, Rows]]:
    """Hand out the votes of a batch, and every job that they complete."""
    if flight.arrived is not None:
        flight.arrived.synchronize()
    table = flight.votes.numpy()[: flight.batch.rows]
    _check_finite(flight.batch, table[:, -1])
    open_tallies = {tally.job: tally for tally in tallies}
    row = 0
    for segment in flight.batch.segments:
        open_tallies[segment.job].add(segment, table[row : row + segment.rows, :-1])
        row += segment.rows
    while tallies and tallies[0].complete:
        done = tallies.popleft()
        yield done.job, done.votes


def _check_finite(batch: Batch, finite: NDArray[np.integer]) -> None:
    if not finite.all():
        row = int(np.argmin(finite))
        name, draw = batch.image_of(row), int(batch.draws()[row])
        raise ModelError(f"image {name!r}, draw {draw}: the classifier returned a score that is NaN or infinite.")


def _blame(batch: Batch, problem: str) -> ModelError:
    return ModelError(f"image {batch.image_of(0)!r}: the classifier cannot be sampled: {problem}.")


def _out_of_memory(error: BaseException | None) -> bool:
    """Whether the device ran out of memory, also where a library said so or a compiler wrapped it in its own way."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError) or "ALLOC_FAILED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _power_of_two(most: int) -> int:
    return 1 << (max(1, most).bit_length() - 1)
