"""Voting shard by shard and look by look: the undecided images of all open shards share batches.

A round is one look at the images of a shard that still need it. Rounds follow each other in the batches without a
gap: those that go on come first, and a new shard is opened only where none waits. A thread judges finished rounds
while the device draws others. So the device runs dry at the end of the dataset alone, or where judging takes longer
than drawing.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from multiguard.data.sample import Sample
from multiguard.smooth.adaptive import Stopping
from multiguard.smooth.batches import Job
from multiguard.smooth.smoother import Smoother
from multiguard.votes import DrawVotes, LabelSets, VoteRow, picture_hash

_MOST_JUDGED = 4  # rounds that wait for their judgement before no new shard is opened: they hold pixels


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


@dataclass(eq=False)
class _Picture:
    """An image on its way: what was drawn of it so far, and its pixels while more may be."""

    image_id: str
    labels: tuple[int, ...]
    pixels: NDArray[np.generic] | None
    picture_hash: str
    votes: DrawVotes | None = None
    pilot: DrawVotes | None = None

    def row(self) -> VoteRow:
        assert self.votes is not None
        return VoteRow(self.image_id, self.labels, self.votes, self.pilot, self.picture_hash)


@dataclass(eq=False)
class _Round:
    """One look at the images of a shard that are not decided, and how many of its jobs are still out."""

    shard: int
    look: int
    missing: int
    active: list[_Picture] = field(default_factory=list)
    stopped: dict[str, VoteRow] = field(default_factory=dict)


class ShardVoting:
    """Votes on shards of a dataset; each comes out when its last image has stopped.

    Args:
        smoother: The smoothed classifier.
        shards: Each shard to vote on with the ids of its images.
        samples: The images of these shards, in order.
        scheme: What is drawn of each.
        stopped: Called for each image whose draws have ended.
    """

    def __init__(
        self,
        smoother: Smoother,
        shards: Sequence[tuple[int, Sequence[str]]],
        samples: Iterator[Sample],
        scheme: Scheme,
        stopped: Callable[[], None],
    ) -> None:
        self._smoother, self._scheme, self._stopped = smoother, scheme, stopped
        self._unopened = deque(shards)
        self._ids = dict(shards)
        self._samples = samples
        self._waiting: deque[_Round] = deque()
        self._judged: deque[tuple[_Round, Future[list[bool]]]] = deque()
        self._whole: deque[tuple[int, list[VoteRow]]] = deque()
        self._out: dict[Job, tuple[_Round, _Picture, bool]] = {}

    def __iter__(self) -> Iterator[tuple[int, list[VoteRow]]]:
        """Each shard with its rows, as soon as it is whole."""
        with ThreadPoolExecutor(1) as judge:
            while self._waiting or self._unopened or self._judged:
                for job, votes in self._smoother.run(self._jobs()):
                    done = self._landed(job, votes)
                    if done.missing == 0:
                        self._looked_at(done, judge)
                    yield from self._taken_out()
                yield from self._taken_out()

    def _taken_out(self) -> Iterator[tuple[int, list[VoteRow]]]:
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
                for picture in following.active:
                    yield self._look(following, picture)
            elif self._unopened and len(self._judged) < _MOST_JUDGED:
                yield from self._opened(*self._unopened.popleft())
            elif self._judged:
                wait([self._judged[0][1]])
            else:
                return

    def _opened(self, shard: int, ids: Sequence[str]) -> Iterator[Job]:
        """The first look at a new shard, and its pilot draws; images are read when they are due."""
        pilot = self._scheme.pilot_draws
        first = _Round(shard, 0, missing=len(ids) * (2 if pilot else 1))
        for sample in islice(self._samples, len(ids)):
            labels = sample.labels if self._scheme.labelled else ()
            picture = _Picture(sample.id, labels, sample.image, picture_hash(sample.image))
            first.active.append(picture)
            if pilot:
                yield self._pilot(first, picture)
            yield self._look(first, picture)

    def _pilot(self, of: _Round, picture: _Picture) -> Job:
        return self._sent(of, picture, 0, self._scheme.pilot_draws, pilot=True)

    def _look(self, of: _Round, picture: _Picture) -> Job:
        looks = (0, *self._scheme.looks)
        return self._sent(of, picture, looks[of.look], looks[of.look + 1] - looks[of.look], pilot=False)

    def _sent(self, of: _Round, picture: _Picture, first: int, draws: int, *, pilot: bool) -> Job:
        assert picture.pixels is not None
        job = self._smoother.job(
            picture.pixels,
            draws,
            seed=self._scheme.seed,
            image_id=picture.image_id,
            first_draw=first,
            stream="pilot" if pilot else "certify",
        )
        if not pilot and first + draws == self._scheme.looks[-1]:
            picture.pixels = None
        self._out[job] = (of, picture, pilot)
        return job

    def _landed(self, job: Job, votes: DrawVotes) -> _Round:
        """The round that the job belongs to, with the votes laid to its picture."""
        of, picture, pilot = self._out.pop(job)
        if pilot:
            picture.pilot = votes
        else:
            picture.votes = votes if picture.votes is None else _joined(picture.votes, votes)
            if self._is_last(of):
                self._stopped()
        of.missing -= 1
        return of

    def _looked_at(self, done: _Round, judge: Executor) -> None:
        """Have a finished round judged beside the device, where there is anything to judge."""
        if self._scheme.stopping is None or self._is_last(done):
            self._sort(done, [True] * len(done.active))
        else:
            rows = [picture.row() for picture in done.active]
            self._judged.append((done, judge.submit(self._scheme.stopping.decided, rows)))

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
        for picture, stops in zip(done.active, decided, strict=True):
            if stops:
                done.stopped[picture.image_id] = picture.row()
        going_on = [picture for picture, stops in zip(done.active, decided, strict=True) if not stops]
        if going_on:
            self._waiting.append(_Round(done.shard, done.look + 1, len(going_on), going_on, done.stopped))
        else:
            self._whole.append((done.shard, [done.stopped[image_id] for image_id in self._ids[done.shard]]))

    def _is_last(self, of: _Round) -> bool:
        return of.look == len(self._scheme.looks) - 1


def _joined(before: DrawVotes, after: DrawVotes) -> DrawVotes:
    if isinstance(before, LabelSets) and isinstance(after, LabelSets):
        return LabelSets(np.concatenate([before.packed, after.packed]), before.num_labels)
    assert not isinstance(before, LabelSets)
    assert not isinstance(after, LabelSets)
    return np.concatenate([before, after])
