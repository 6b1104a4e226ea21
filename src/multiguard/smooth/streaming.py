"""Running batch after batch with bounded memory: results are collected a few batches behind the device."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.errors import InvalidInputError, ModelError
from multiguard.smooth.arguments import whole_number
from multiguard.smooth.batches import Batch, Job, Segment, pack, whole
from multiguard.smooth.faults import (
    NOT_FINITE,
    Fault,
    blamed,
    blank,
    device_dead,
    first_draw,
    out_of_memory,
    pieces,
    problem_of,
)
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

    def size(self, batch: Batch) -> int:
        """The rows that a batch is run with, padding among them."""
        return self.rows(batch.segments[0].job) if self.padded else batch.rows


def stream_votes(jobs: Iterable[Job], plan: Plan) -> Iterator[tuple[Job, Rows]]:
    """The votes (draws, width) of each job, in order, in the memory of a few batches and of the votes themselves.

    The noise of a draw does not depend on how draws are packed, nor on a batch that had to be halved. The first draw
    that the classifier fails on raises `ModelError` with its image.
    """
    for job, outcome in _Stream(plan, goes_on=False).outcomes(jobs):
        assert not isinstance(outcome, Fault)
        yield job, outcome


def attempt_votes(jobs: Iterable[Job], plan: Plan) -> Iterator[tuple[Job, Rows | Fault]]:
    """As `stream_votes`, but a job that the classifier fails on comes out with its first such draw; others go on.

    A batch that fails is run again image by image, and the image that fails alone in halves, down to the draw that
    fails alone: whether a job fails, and where, does not depend on what it shares its batches with. A classifier that
    then fails on a draw too that went well before (on a black image, where none did), or a device that is dead,
    raises `ModelError`: no job is at fault.
    """
    return _Stream(plan, goes_on=True).outcomes(jobs)


class _Tally:
    """The votes of one job as they arrive, or its fault."""

    def __init__(self, job: Job, plan: Plan) -> None:
        self.votes: Rows = np.empty((job.draws, plan.width), dtype=plan.dtype)
        self.fault: Fault | None = None
        self._missing = job.draws

    @property
    def complete(self) -> bool:
        return self.fault is not None or self._missing == 0

    def add(self, segment: Segment, votes: NDArray[np.integer]) -> None:
        self.votes[segment.start : segment.start + segment.rows] = votes
        self._missing -= segment.rows


class _Stream:
    """One run: the batches on their way, and the jobs that wait for votes, in order."""

    def __init__(self, plan: Plan, *, goes_on: bool) -> None:
        self._plan, self._goes_on = plan, goes_on
        self._flights: deque[_Flight] = deque()
        self._tallies: dict[Job, _Tally] = {}
        self._proven: Batch | None = None  # a draw that went well

    def outcomes(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Rows | Fault]]:
        """Each job with its votes or its fault, in order."""
        for batch in pack((self._opened(job) for job in jobs), self._plan.rows):
            for flight in self._launched(batch):
                self._flights.append(flight)
                if len(self._flights) > _BEHIND or flight.arrived is None:
                    self._land(self._flights.popleft())
                    yield from self._finished()
            yield from self._finished()
        self._land_all()
        yield from self._finished()

    def _opened(self, job: Job) -> Segment:
        self._tallies[job] = _Tally(job, self._plan)
        return whole(job)

    def _launched(self, batch: Batch) -> Iterator[_Flight]:
        """Run a batch; where the device has no room for it in halves, and where it fails in pieces."""
        waiting = deque([batch])
        while waiting:
            part = self._undecided(waiting.popleft())
            if part is None:
                continue
            if part.rows > self._plan.rows(part.segments[0].job):
                waiting.extendleft(reversed(list(pack(part.segments, self._plan.rows))))
                continue
            outcome = _tried(part, self._plan)
            if isinstance(outcome, _Flight):
                yield outcome
            elif out_of_memory(outcome):
                _shrink(part, self._plan)
                waiting.appendleft(part)
            else:
                waiting.extendleft(reversed(self._after(part, outcome)))

    def _undecided(self, batch: Batch) -> Batch | None:
        """What of a batch is not of jobs that have failed already."""
        tallies = [self._tallies.get(segment.job) for segment in batch.segments]
        open_ = [tally is not None and tally.fault is None for tally in tallies]
        if all(open_):
            return batch
        kept = tuple(segment for segment, wanted in zip(batch.segments, open_, strict=True) if wanted)
        return Batch(kept) if kept else None

    def _after(self, batch: Batch, error: Exception) -> list[Batch]:
        """What to run in place of a batch that failed; nothing where its one draw failed, which is then its job's."""
        if device_dead(error) or not self._goes_on:
            raise _guilty(batch, error, self._plan) from error
        self._land_all()  # an earlier draw may have failed otherwise
        if self._undecided(batch) is not batch:
            return [batch]
        if batch.rows > 1:
            return pieces(batch)
        self._fail(batch, problem_of(error))
        return []

    def _land_all(self) -> None:
        while self._flights:
            self._land(self._flights.popleft())

    def _land(self, flight: _Flight) -> None:
        """Lay the votes of a batch to their jobs."""
        if flight.arrived is not None:
            flight.arrived.synchronize()
        table, row = flight.votes.numpy(), 0
        for segment in flight.batch.segments:
            self._add(segment, table[row : row + segment.rows])
            row += segment.rows

    def _add(self, segment: Segment, table: NDArray[np.integer]) -> None:
        tally = self._tallies.get(segment.job)
        if tally is None or tally.fault is not None:
            return
        if not table[:, -1].all():
            self._fail(_one_draw(segment, int(np.argmin(table[:, -1]))), NOT_FINITE)
        else:
            tally.add(segment, table[:, :-1])
            self._proven = _one_draw(segment, 0)

    def _fail(self, draw: Batch, problem: str) -> None:
        """Lay the failure of one draw to its job, if the classifier still answers where no job is at fault."""
        if not self._goes_on:
            raise blamed(draw, problem)
        if not _answered(self._proven or blank(draw), self._plan):
            other = f"now for image {self._proven.image_of(0)!r}, which it took before" if self._proven else ""
            raise blamed(draw, f"{problem}, and so it does {other or 'for a black image'}")
        self._tallies[draw.segments[0].job].fault = Fault(first_draw(draw), problem)

    def _finished(self) -> Iterator[tuple[Job, Rows | Fault]]:
        """The jobs at the head of the line that nothing is missing of."""
        while self._tallies:
            job, tally = next(iter(self._tallies.items()))
            if not tally.complete:
                return
            del self._tallies[job]
            yield job, tally.fault or tally.votes


def _tried(batch: Batch, plan: Plan) -> _Flight | Exception:
    """The launched batch, or what the classifier raised."""
    try:
        with torch.no_grad():
            return _fly(batch, plan.step(batch, plan.size(batch)))
    except Exception as error:
        return error


def _answered(batch: Batch, plan: Plan) -> bool:
    """Whether the classifier gives finite scores on this batch."""
    outcome = _tried(batch, plan)
    if isinstance(outcome, Exception):
        return False
    if outcome.arrived is not None:
        outcome.arrived.synchronize()
    return bool(outcome.votes.numpy()[: batch.rows, -1].all())


def _one_draw(segment: Segment, row: int) -> Batch:
    return Batch((Segment(segment.job, segment.start + row, 1),))


def _guilty(batch: Batch, error: Exception, plan: Plan) -> ModelError:
    """The error with the first draw that fails alone, or with the batch's first image where the batch alone does."""
    for piece in [] if device_dead(error) else pieces(batch):
        outcome = _tried(piece, plan)
        if isinstance(outcome, Exception) and not out_of_memory(outcome):
            return _guilty(piece, outcome, plan)
    return blamed(batch, problem_of(error))


def _shrink(batch: Batch, plan: Plan) -> None:
    size = plan.size(batch)
    if size == 1:
        raise blamed(
            batch, "cannot be sampled: the device has no memory for even one noisy image; use a smaller image or model"
        )
    plan.sizer.halve(size)
    torch.cuda.empty_cache()


def _fly(batch: Batch, votes: Tensor) -> _Flight:
    if votes.device.type != "cuda":
        return _Flight(batch, votes, None)
    host = torch.empty(votes.shape, dtype=votes.dtype, pin_memory=True)
    host.copy_(votes, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record(torch.cuda.current_stream(votes.device))
    return _Flight(batch, host, arrived)


def _power_of_two(most: int) -> int:
    return 1 << (max(1, most).bit_length() - 1)
