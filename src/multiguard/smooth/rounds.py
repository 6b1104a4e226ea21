"""Voting shard by shard and look by look: the undecided images of all open shards share batches.

A round is one look at the images of a shard that still need it. Rounds follow each other in the batches without a
gap: those that go on come first, and a new shard is opened only where none waits. A thread judges finished rounds
while the device draws others. So the device runs dry at the end of the dataset alone, or where judging takes longer
than drawing.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from multiguard.data.sample import Sample
from multiguard.errors import InvalidInputError, ModelError
from multiguard.smooth.adaptive import Stopping
from multiguard.smooth.batches import Job
from multiguard.smooth.faults import Fault
from multiguard.smooth.smoother import Smoother
from multiguard.votes import DrawVotes, ImageFailure, LabelSets, VoteRow, image_hash

_MOST_JUDGED = 4  # rounds that wait for their judgement before no new shard is opened: they hold pixels
_MOST_FAULTS = 100  # images in a row that the classifier fails on before that is taken for no image's fault


@dataclass(frozen=True, eq=False)
class Scheme:
    """What is drawn of every image.

    Attributes:
        seed: The seed of the noise.
        looks: The numbers of draws at which an image may stop; one number where n is fixed.
        stopping: Says at a look that is not the last whether an image stops; None where n is fixed.
        pilot_draws: Draws that choose labels, beside the others; 0 for none.
        labelled: Whether rows carry the labels of their samples.
    """

    seed: int
    looks: tuple[int, ...]
    stopping: Stopping | None
    pilot_draws: int
    labelled: bool


@dataclass(frozen=True, eq=False)
class OpenShard:
    """A shard to vote on: its place in the run, and its images in order, each read when it is due, or failed."""

    index: int
    samples: Iterable[Sample | ImageFailure]
    images: int


@dataclass(frozen=True, eq=False)
class VotedShard:
    """A shard whose images have all stopped or failed: the rows and the failures, each in the order of the images."""

    index: int
    rows: list[VoteRow]
    failures: list[ImageFailure]


@dataclass(eq=False)
class _Image:
    """An image on its way: what was drawn of it so far, and its pixels while more may be."""

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
    """One look at the images of a shard that are not decided, and how many of its jobs are still out."""

    shard: int
    look: int
    missing: int
    active: list[_Image] = field(default_factory=list)
    ended: dict[str, VoteRow | ImageFailure | None] = field(default_factory=dict)  # all images of the shard, in order


class ShardVoting:
    """Votes on shards of a dataset; each comes out when its last image has stopped.

    Args:
        smoother: The smoothed classifier.
        shards: The shards to vote on; one is taken when there is room for it, not before.
        scheme: What is drawn of each image.
        stopped: Called for each image whose draws have ended, or that failed.
        goes_on: Whether an image that the classifier cannot be sampled on leaves its round as a failure, its votes so
            far thrown away; if not, it raises. A hundred of them in a row raise all the same.
    """

    def __init__(
        self,
        smoother: Smoother,
        shards: Iterable[OpenShard],
        scheme: Scheme,
        stopped: Callable[[], object],
        *,
        goes_on: bool = False,
    ) -> None:
        self._smoother, self._scheme, self._stopped, self._goes_on = smoother, scheme, stopped, goes_on
        self._unopened = iter(shards)
        self._more = True  # whether there may be unopened shards
        self._waiting: deque[_Round] = deque()
        self._judged: deque[tuple[_Round, Future[list[bool]]]] = deque()
        self._whole: deque[VotedShard] = deque()
        self._out: dict[Job, tuple[_Round, _Image, bool]] = {}
        self._faults = 0  # in a row, up to now

    def __iter__(self) -> Iterator[VotedShard]:
        """Each shard with its rows, as soon as it is whole."""
        with ThreadPoolExecutor(1) as judge:
            self._judge = judge
            while self._waiting or self._more or self._judged:
                for job, outcome in self._outcomes():
                    done = self._landed(job, outcome)
                    if done.missing == 0:
                        self._looked_at(done)
                    yield from self._taken_out()
                yield from self._taken_out()

    def _outcomes(self) -> Iterator[tuple[Job, DrawVotes | Fault]]:
        take = self._smoother.attempt if self._goes_on else self._smoother.run
        return take(self._jobs(), steady=True)

    def _taken_out(self) -> Iterator[VotedShard]:
        while self._whole:
            yield self._whole.popleft()

    def _jobs(self) -> Iterator[Job]:
        """The jobs of one round after the other; votes that land meanwhile bring new rounds.

        It ends where all that is left to do hangs on votes that have not landed.
        """
        while True:
            self._settle()
            if self._waiting:
                following = self._waiting.popleft()
                for image in tuple(following.active):  # one that fails leaves it
                    yield self._look(following, image)
            elif self._more and len(self._judged) < _MOST_JUDGED:
                yield from self._opened(next(self._unopened, None))
            elif self._judged:
                wait([self._judged[0][1]])
            else:
                return

    def _opened(self, shard: OpenShard | None) -> Iterator[Job]:
        """The first look at a new shard, and its pilot draws; images are read when they are due."""
        if shard is None:
            self._more = False
            return
        jobs = 2 if self._scheme.pilot_draws else 1
        first = _Round(shard.index, 0, missing=shard.images * jobs)
        for sample in shard.samples:
            begun = sample if isinstance(sample, ImageFailure) else self._begun(first, sample)
            if isinstance(begun, ImageFailure):
                self._failed(first, begun, jobs)
            else:
                yield from begun

    def _begun(self, first: _Round, sample: Sample) -> list[Job] | ImageFailure:
        """The jobs of an image's first look, or the failure of one that the classifier does not take."""
        labels = sample.labels if self._scheme.labelled else ()
        image = _Image(sample.id, labels, sample.image, image_hash(sample.image))
        try:
            pilot = [self._pilot(first, image)] if self._scheme.pilot_draws else []
            jobs = [*pilot, self._look(first, image)]
        except InvalidInputError as error:
            if not self._goes_on:
                raise
            return ImageFailure(sample.id, " ".join(str(error).split()))
        first.active.append(image)
        first.ended[sample.id] = None
        return jobs

    def _failed(self, of: _Round, failure: ImageFailure, jobs: int) -> None:
        """Leave an image out that no job was sent for, so that so many of its round are not waited for."""
        of.ended[failure.image_id] = failure
        of.missing -= jobs
        self._stopped()
        if of.missing == 0:
            self._looked_at(of)

    def _pilot(self, of: _Round, image: _Image) -> Job:
        return self._sent(of, image, 0, self._scheme.pilot_draws, pilot=True)

    def _look(self, of: _Round, image: _Image) -> Job:
        looks = (0, *self._scheme.looks)
        return self._sent(of, image, looks[of.look], looks[of.look + 1] - looks[of.look], pilot=False)

    def _sent(self, of: _Round, image: _Image, first: int, draws: int, *, pilot: bool) -> Job:
        assert image.pixels is not None
        job = self._smoother.job(
            image.pixels,
            draws,
            seed=self._scheme.seed,
            image_id=image.image_id,
            first_draw=first,
            stream="pilot" if pilot else "certify",
        )
        if not pilot and first + draws == self._scheme.looks[-1]:
            image.pixels = None
        self._out[job] = (of, image, pilot)
        return job

    def _landed(self, job: Job, outcome: DrawVotes | Fault) -> _Round:
        """The round that the job belongs to, with the votes laid to its image, or without it if it failed."""
        of, image, pilot = self._out.pop(job)
        of.missing -= 1
        if isinstance(of.ended[image.image_id], ImageFailure):
            return of
        if isinstance(outcome, Fault):
            of.active.remove(image)
            of.ended[image.image_id] = ImageFailure(image.image_id, f"pilot {outcome}" if pilot else str(outcome))
            self._stopped()
            self._count_fault(image.image_id, outcome)
        elif pilot:
            image.pilot = outcome
        else:
            self._faults = 0
            image.votes = outcome if image.votes is None else _joined(image.votes, outcome)
            if self._is_last(of):
                self._stopped()
        return of

    def _count_fault(self, image_id: str, fault: Fault) -> None:
        self._faults += 1
        if self._faults >= _MOST_FAULTS:
            raise ModelError(
                f"{self._faults} images in a row failed, the last of them {image_id!r}, {fault}. That is rather the "
                "model's or the machine's fault: mend it, and vote without --on-error record (on_error='stop'), which "
                "tries recorded images again."
            )

    def _looked_at(self, done: _Round) -> None:
        """Have a finished round judged beside the device, where there is anything to judge."""
        if self._scheme.stopping is None or self._is_last(done) or not done.active:
            self._sort(done, [True] * len(done.active))
        else:
            rows = [image.row() for image in done.active]
            self._judged.append((done, self._judge.submit(self._scheme.stopping.decided, rows)))

    def _settle(self) -> None:
        """Go on with the rounds whose judgement has come."""
        while self._judged and self._judged[0][1].done():
            done, judgement = self._judged.popleft()
            decided = judgement.result()
            for _ in filter(None, decided):
                self._stopped()
            self._sort(done, decided)

    def _sort(self, done: _Round, decided: Sequence[bool]) -> None:
        """Part the images of a round into those that stop and those that go on."""
        for image, stops in zip(done.active, decided, strict=True):
            if stops:
                done.ended[image.image_id] = image.row()
        going_on = [image for image, stops in zip(done.active, decided, strict=True) if not stops]
        if going_on:
            self._waiting.append(_Round(done.shard, done.look + 1, len(going_on), going_on, done.ended))
        else:
            self._whole.append(_voted(done))

    def _is_last(self, of: _Round) -> bool:
        return of.look == len(self._scheme.looks) - 1


def _voted(done: _Round) -> VotedShard:
    rows = [ended for ended in done.ended.values() if isinstance(ended, VoteRow)]
    return VotedShard(done.shard, rows, [ended for ended in done.ended.values() if isinstance(ended, ImageFailure)])


def _joined(before: DrawVotes, after: DrawVotes) -> DrawVotes:
    if isinstance(before, LabelSets) and isinstance(after, LabelSets):
        return LabelSets(np.concatenate([before.packed, after.packed]), before.num_labels)
    assert not isinstance(before, LabelSets)
    assert not isinstance(after, LabelSets)
    return np.concatenate([before, after])
