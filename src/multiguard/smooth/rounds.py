"""Voting shard by shard and look by look: the undecided images of all open shards share batches.

A round is one look at the images of a shard that still need draws. Rounds follow each other without a gap between
batches: continued rounds come first, and a new shard is opened only if none waits. A thread evaluates finished rounds
while the device draws others, so the device idles only at the end, or if evaluation is slower than drawing.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from multiguard.data.image import image_hash
from multiguard.data.sample import Sample
from multiguard.errors import ImageFailure, InvalidInputError, ModelError
from multiguard.smooth.adaptive import Stopping
from multiguard.smooth.batches import Job
from multiguard.smooth.noise import Stream
from multiguard.smooth.smoother import Smoother
from multiguard.votes import DrawVotes, LabelSets, VoteRow
from multiguard.votes.types import Ranked

_MAX_EVALUATING = 4  # rounds under evaluation before no new shard is opened: their images wait in memory
_MAX_FAILURES = 100  # images that fail in a row before the model is blamed instead


@dataclass(frozen=True, eq=False)
class Scheme:
    """The draws of every image, as in `vote_dataset`."""

    seed: int  # the seed of the noise
    looks: tuple[int, ...]  # the numbers of draws at which an image may stop; a fixed n is the only look
    stopping: Stopping | None  # decides that at every look but the last; None with a fixed n
    pilot_draws: int
    labelled: bool
    any_seed: bool = False  # whether the seed was drawn at random, so that a run to be resumed keeps its own


@dataclass(frozen=True, eq=False)
class ShardImages:
    """A shard to vote on: its index in the run, and its images in order, decoded when they are due, or failed."""

    index: int
    samples: Iterable[Sample | ImageFailure]


@dataclass(frozen=True, eq=False)
class ShardVotes:
    """A finished shard: its rows and its failures, each in the order of the images."""

    index: int
    rows: list[VoteRow]
    failures: list[ImageFailure]


@dataclass(eq=False)
class _Image:
    """An image in progress: its votes so far, and its pixels as long as more draws are possible."""

    image_id: str
    labels: tuple[int, ...]
    pixels: NDArray[np.generic] | None
    image_hash: str
    votes: DrawVotes | None = None
    pilot: DrawVotes | None = None

    def row(self) -> VoteRow:
        assert self.votes is not None
        return VoteRow(self.image_id, self.labels, self.votes, self.pilot, self.image_hash)


@dataclass(eq=False)
class _Round:
    """One look at the undecided images of a shard."""

    shard: int
    look: int = 0
    active: list[_Image] = field(default_factory=list)
    results: dict[str, VoteRow | ImageFailure | None] = field(default_factory=dict)  # of all images, in order
    missing: int = 1  # the jobs that are not back yet, and one more as long as there are jobs to send

    def votes(self) -> ShardVotes:
        results = self.results.values()
        rows = [result for result in results if isinstance(result, VoteRow)]
        return ShardVotes(self.shard, rows, [result for result in results if isinstance(result, ImageFailure)])


class ShardVoter:
    """Votes on shards of a dataset; a shard is yielded when its last image has stopped.

    The next of `shards` is taken only when there is room for it. `on_image` is called for each image that is done or
    has failed. With `record_failures`, an image that the classifier fails on becomes an image failure, without votes;
    otherwise it raises. A hundred failures in a row raise in any case.
    """

    def __init__(
        self,
        smoother: Smoother,
        shards: Iterable[ShardImages],
        scheme: Scheme,
        on_image: Callable[[], object],
        *,
        record_failures: bool = False,
    ) -> None:
        self._smoother, self._scheme, self._on_image, self._record = smoother, scheme, on_image, record_failures
        self._unopened, self._more = iter(shards), True  # whether there may be more of them
        self._last_look = len(scheme.looks) - 1
        self._waiting: deque[_Round] = deque()
        self._evaluating: deque[tuple[_Round, Future[list[bool]]]] = deque()
        self._complete: deque[ShardVotes] = deque()
        self._sent: dict[Job, tuple[_Round, _Image, bool]] = {}
        self._failures = 0  # in a row

    def __iter__(self) -> Iterator[ShardVotes]:
        """Each shard with its votes, as soon as it is complete."""
        run = self._smoother.attempt if self._record else self._smoother.run
        with ThreadPoolExecutor(1) as evaluator:
            self._evaluator = evaluator
            while self._waiting or self._more or self._evaluating:
                for job, outcome in run(self._jobs(), steady=True):
                    self._receive(job, outcome)
                    while self._complete:
                        yield self._complete.popleft()
                while self._complete:
                    yield self._complete.popleft()

    def _jobs(self) -> Iterator[Job]:
        """The jobs of one round after the other; votes that arrive meanwhile bring new rounds.

        It ends where everything left to do depends on votes that have not arrived.
        """
        while True:
            self._continue_rounds()
            if self._waiting:
                current = self._waiting.popleft()
                for image in tuple(current.active):  # an image that fails is removed from it
                    yield from self._send(current, image)
                self._count_back(current)
            elif self._more and len(self._evaluating) < _MAX_EVALUATING:
                yield from self._open(next(self._unopened, None))
            elif self._evaluating:
                wait([self._evaluating[0][1]])
            else:
                return

    def _open(self, shard: ShardImages | None) -> Iterator[Job]:
        """The first look at a new shard, and its pilot draws; each image is decoded when it is due."""
        if shard is None:
            self._more = False
            return
        first = _Round(shard.index)
        for sample in shard.samples:
            started = sample if isinstance(sample, ImageFailure) else self._start(first, sample)
            if isinstance(started, ImageFailure):
                first.results[started.image_id] = started
                self._on_image()
            else:
                yield from started
        self._count_back(first)

    def _start(self, first: _Round, sample: Sample) -> list[Job] | ImageFailure:
        """The jobs of an image's first look, or its failure if the classifier does not accept it."""
        labels = sample.labels if self._scheme.labelled else ()
        image = _Image(sample.id, labels, sample.image, image_hash(sample.image))
        try:
            jobs = self._send(first, image)
        except InvalidInputError as error:
            if not self._record:
                raise
            return ImageFailure(sample.id, " ".join(str(error).split()))
        first.active.append(image)
        first.results[sample.id] = None
        return jobs

    def _send(self, current: _Round, image: _Image) -> list[Job]:
        """The jobs of an image in this round: the draws up to the next look, after pilot draws in the first round."""
        jobs = []
        if current.look == 0 and self._scheme.pilot_draws:
            jobs.append(self._job(current, image, 0, self._scheme.pilot_draws, pilot=True))
        before, after = (0, *self._scheme.looks)[current.look : current.look + 2]
        jobs.append(self._job(current, image, before, after - before, pilot=False))
        if current.look == self._last_look:
            image.pixels = None
        return jobs

    def _job(self, current: _Round, image: _Image, first: int, draws: int, *, pilot: bool) -> Job:
        assert image.pixels is not None
        stream: Stream = "pilot" if pilot else "certify"
        seed, image_id = self._scheme.seed, image.image_id
        job = self._smoother.job(image.pixels, draws, seed=seed, image_id=image_id, first_draw=first, stream=stream)
        self._sent[job] = (current, image, pilot)
        current.missing += 1
        return job

    def _receive(self, job: Job, outcome: DrawVotes | ImageFailure) -> None:
        """Give the votes of a job to its image, or remove the image from its round if it failed."""
        current, image, pilot = self._sent.pop(job)
        if isinstance(current.results[image.image_id], ImageFailure):
            pass
        elif isinstance(outcome, ImageFailure):
            current.active.remove(image)
            failure = ImageFailure(image.image_id, f"pilot {outcome.reason}") if pilot else outcome
            current.results[image.image_id] = failure
            self._on_image()
            self._count_failure(failure)
        elif pilot:
            image.pilot = outcome
        else:
            self._failures = 0
            image.votes = outcome if image.votes is None else _concatenate(image.votes, outcome)
            if current.look == self._last_look:
                self._on_image()
        self._count_back(current)

    def _count_failure(self, failure: ImageFailure) -> None:
        self._failures += 1
        if self._failures >= _MAX_FAILURES:
            raise ModelError(
                f"{self._failures} images in a row failed, the last of them {failure.image_id!r}, {failure.reason}. "
                "The model or the machine is probably to blame: fix it and vote without --on-error record "
                "(on_error='stop'), which tries recorded images again."
            )

    def _count_back(self, current: _Round) -> None:
        """Count a job that is back; after the last one, evaluate the round in the thread, if there is a decision."""
        current.missing -= 1
        if current.missing:
            return
        if self._scheme.stopping is None or current.look == self._last_look or not current.active:
            self._split(current, [True] * len(current.active))
        else:
            rows = [image.row() for image in current.active]
            self._evaluating.append((current, self._evaluator.submit(self._scheme.stopping.decided, rows)))

    def _continue_rounds(self) -> None:
        """Continue with the rounds whose evaluation has ended."""
        while self._evaluating and self._evaluating[0][1].done():
            current, evaluation = self._evaluating.popleft()
            decided = evaluation.result()
            for _ in filter(None, decided):
                self._on_image()
            self._split(current, decided)

    def _split(self, current: _Round, decided: Sequence[bool]) -> None:
        """Split the images of a round into those that stop and those that continue."""
        outcomes = list(zip(current.active, decided, strict=True))
        current.results.update({image.image_id: image.row() for image, stops in outcomes if stops})
        if continued := [image for image, stops in outcomes if not stops]:
            self._waiting.append(_Round(current.shard, current.look + 1, continued, current.results))
        else:
            self._complete.append(current.votes())


def _concatenate(before: DrawVotes, after: DrawVotes) -> DrawVotes:
    if isinstance(before, LabelSets):
        return LabelSets(np.concatenate([before.packed, cast(LabelSets, after).packed]), before.num_labels)
    return np.concatenate([before, cast(Ranked, after)])
