"""Which draws are made when: shard by shard and stop by stop; undecided images of all open shards share batches.

A round takes the images of a shard that still need draws to the next number of draws at which they may stop. Rounds
follow each other without a gap between batches: continued rounds come first, and a new shard is opened only if none
waits. Threads evaluate finished rounds while the device draws others.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import Rule, settled_by_betting
from multiguard.certify.arguments import check_alpha, check_count, check_forecast_margin, check_radii
from multiguard.data.image import image_hash
from multiguard.data.sample import Sample
from multiguard.errors import ImageFailure, InvalidInputError, ModelError
from multiguard.smooth.noise_source import Stream
from multiguard.smooth.stream import Job
from multiguard.votes import DrawVotes, LabelSets, VoteRow
from multiguard.votes.types import Ranked, as_array

if TYPE_CHECKING:
    from multiguard.smooth.smoother import Smoother

# The numbers of draws at which an image may stop; at some of them the method betting chooses its bets again.
_STOPS = (50, 100, 200, 300, 500, 700, *(m * 10**e for e in range(2, 8) for m in (10, 14, 20, 30, 50, 70)))
# A process that has made no decision for these seconds ends, also if its parent was killed.
_IDLE_SECONDS = 30
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_MAX_EVALUATING = 4  # rounds under evaluation before no new shard is opened: their images wait in memory
_MAX_FAILURES = 100  # images that fail in a row before the model is blamed instead


@dataclass(frozen=True)
class AdaptivePlan:
    """When an image stops: once every claim at the radii is proved by the method betting, or a forecast gives it up.

    Certificates of the votes by this method hold whatever the plan is, for any rule, alpha and radius: it decides only
    where draws are spent. A run may be extended later, with a larger `max_draws`.

    The forecast of further draws assumes them to be `forecast_margin` standard deviations better than those so far.
    With `math.inf` an image stops only if all its claims are proved.

    >>> from multiguard.certify import TopK
    >>> AdaptivePlan(TopK(k=5, k_prime=3), radii=(0.25, 0.5), max_draws=1000).stops
    (50, 100, 200, 300, 500, 700, 1000)
    """

    rule: Rule  # the smoothed classifier
    radii: tuple[float, ...]  # where claims must be settled
    max_draws: int = 10_000  # the most draws that an image takes
    alpha: float = 0.001  # the error allowed
    forecast_margin: float = 1.0

    @property
    def stops(self) -> tuple[int, ...]:
        """The numbers of draws at which an image may stop."""
        return (*(draws for draws in _STOPS if draws < self.max_draws), self.max_draws)


class Stopping:
    """Decides which images stop; without labels (`labelled`), pilot draws choose those to protect."""

    def __init__(self, plan: AdaptivePlan, smoother: "Smoother", num_labels: int, *, labelled: bool) -> None:
        smoother.settings.check_rule(plan.rule, num_labels)
        self._plan, self._labelled, self._smoother = plan, labelled, smoother
        check_count("max_draws", plan.max_draws)
        radii = tuple(check_radii(plan.radii).tolist())
        smoother.noise.down(1.0, radii)  # refuses radii that its attacker does not have, such as half a pixel
        self._options: dict[str, Any] = {"num_labels": num_labels, "noise": smoother.noise, "radii": radii}
        self._options["alpha"] = alpha = check_alpha(plan.alpha)
        margin = check_forecast_margin(plan.forecast_margin)
        self._options |= {"draws": plan.max_draws, "forecast_margin": margin}
        # What must agree for a run to resume, as well as its stops; an infinite forecast margin is None in JSON.
        finite = margin if math.isfinite(margin) else None
        self.record = {"radii": radii, "alpha": alpha, "forecast_margin": finite, **plan.rule.options}

    def decided(self, rows: Sequence[VoteRow]) -> list[bool]:
        """For each image whether its draws may end, computed in worker processes or in this one."""
        rule, options = self._plan.rule, self._options
        votes, labels = [as_array(row.votes, rule) for row in rows], [self._protected(row) for row in rows]
        if (processes := _processes(self._smoother.settings.device)) > 1:
            from joblib.externals.loky import get_reusable_executor
            from joblib.externals.loky.process_executor import BrokenProcessPool

            executor = get_reusable_executor(processes, timeout=_IDLE_SECONDS, env=_ONE_THREAD)
            size = math.ceil(len(rows) / processes) or 1  # few tasks, since sending one has a fixed cost
            tasks = [slice(first, first + size) for first in range(0, len(rows), size)]
            try:
                parts = [executor.submit(settled_by_betting, votes[t], labels[t], rule, **options) for t in tasks]
                return [stops for part in parts for stops in part.result()]
            except BrokenProcessPool:  # one was killed, for want of memory perhaps: this process can do it too
                pass
        return settled_by_betting(votes, labels, rule, **options)

    def _protected(self, row: VoteRow) -> tuple[int, ...]:
        if self._labelled:
            return row.labels
        assert row.pilot is not None
        return self._plan.rule.returned(as_array(row.pilot, self._plan.rule), self._options["num_labels"])


def _processes(device: str) -> int:
    """How many processes decide: one decision takes some milliseconds, in which a GPU draws dozens of times.

    On a CPU only this one, which has no processor to spare.
    """
    if device == "cpu":
        return 1
    from joblib.externals.loky import cpu_count

    return int(cpu_count()) - 1


@dataclass(frozen=True, eq=False)
class Scheme:
    """The draws of every image, as in `vote_dataset`."""

    noise_seed: int  # the seed of the noise
    stops: tuple[int, ...]  # the numbers of draws at which an image may stop; a fixed n is the only one
    stopping: Stopping | None  # decides that at each but the last; None with a fixed n
    pilot_draws: int
    labelled: bool
    any_noise_seed: bool = False  # whether the seed was drawn at random, so that a run to be resumed keeps its own


@dataclass(frozen=True, eq=False)
class ShardImages:
    """A shard to vote on: its index in the run, and its images in order, decoded when they are due, or failed."""

    index: int
    samples: Iterable[Sample | ImageFailure]
    started: Mapping[str, VoteRow] = field(default_factory=dict)  # votes to continue, by image id; of the same noise


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
    bare: DrawVotes | None = None

    @property
    def draws(self) -> int:
        return 0 if self.votes is None else len(self.votes)

    def row(self) -> VoteRow:
        assert self.votes is not None
        return VoteRow(self.image_id, self.labels, self.votes, self.pilot, self.image_hash, self.bare)


@dataclass(eq=False)
class _Round:
    """The undecided images of a shard on their way to their next stops."""

    shard: int
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
        smoother: "Smoother",
        shards: Iterable[ShardImages],
        scheme: Scheme,
        on_image: Callable[[], object],
        *,
        record_failures: bool = False,
    ) -> None:
        self._smoother, self._scheme, self._on_image, self._record = smoother, scheme, on_image, record_failures
        self._unopened, self._more = iter(shards), True  # whether there may be more of them
        self._most_draws = scheme.stops[-1]
        self._waiting: deque[_Round] = deque()
        self._evaluating: deque[tuple[_Round, list[_Image], Future[list[bool]]]] = deque()
        self._complete: deque[ShardVotes] = deque()
        self._sent: dict[Job, tuple[_Round, _Image, Stream]] = {}
        self._failures = 0  # in a row

    def __iter__(self) -> Iterator[ShardVotes]:
        """Each shard with its votes, as soon as it is complete."""
        with ThreadPoolExecutor(_MAX_EVALUATING) as evaluator:
            self._evaluator = evaluator
            while self._waiting or self._more or self._evaluating:
                for job, outcome in self._smoother.run(self._jobs(), steady=True, record_failures=self._record):
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
                wait([self._evaluating[0][2]])
            else:
                return

    def _open(self, shard: ShardImages | None) -> Iterator[Job]:
        """The first round of a new shard, and its pilot draws; each image is decoded when it is due."""
        if shard is None:
            self._more = False
            return
        first = _Round(shard.index)
        for sample in shard.samples:
            started = (
                sample if isinstance(sample, ImageFailure) else self._start(first, sample, shard.started.get(sample.id))
            )
            if isinstance(started, ImageFailure):
                first.results[started.image_id] = started
                self._on_image()
            else:
                yield from started
        self._count_back(first)

    def _start(self, first: _Round, sample: Sample, started: VoteRow | None) -> list[Job] | ImageFailure:
        """The jobs of an image's first round, or its failure if the classifier does not accept it.

        Votes to continue count only if they are of these very pixels. In an adaptive run they are evaluated first.
        """
        labels = sample.labels if self._scheme.labelled else ()
        image = _Image(sample.id, labels, sample.image, image_hash(sample.image))
        if started is not None and started.image_hash == image.image_hash:
            image.votes, image.pilot, image.bare = started.votes, started.pilot, started.bare
        try:
            jobs = [] if image.votes is not None and self._scheme.stopping is not None else self._send(first, image)
        except InvalidInputError as error:
            if not self._record:
                raise
            return ImageFailure(sample.id, " ".join(str(error).split()))
        first.active.append(image)
        first.results[sample.id] = None
        return jobs

    def _send(self, current: _Round, image: _Image) -> list[Job]:
        """The jobs of an image in this round: the draws up to its next stop.

        In its first round pilot draws come before them, and the image without noise comes after them.
        """
        jobs, first = [], image.votes is None
        if first and self._scheme.pilot_draws:
            jobs.append(self._job(current, image, 0, self._scheme.pilot_draws, "pilot"))
        following = min(draws for draws in self._scheme.stops if draws > image.draws)
        jobs.append(self._job(current, image, image.draws, following - image.draws, "certify"))
        if first:
            jobs.append(self._job(current, image, 0, 1, "bare"))
        if following == self._most_draws:
            image.pixels = None
        return jobs

    def _job(self, current: _Round, image: _Image, first: int, draws: int, stream: Stream) -> Job:
        assert image.pixels is not None
        seed, image_id = self._scheme.noise_seed, image.image_id
        job = self._smoother.job(
            image.pixels, draws, noise_seed=seed, image_id=image_id, first_draw=first, stream=stream
        )
        self._sent[job] = (current, image, stream)
        current.missing += 1
        return job

    def _receive(self, job: Job, outcome: DrawVotes | ImageFailure) -> None:
        """Give the votes of a job to its image, or remove the image from its round if it failed."""
        current, image, stream = self._sent.pop(job)
        if stream == "bare":  # its failure is no failure of the image: no claim depends on it
            image.bare = None if isinstance(outcome, ImageFailure) else outcome
        elif isinstance(current.results[image.image_id], ImageFailure):
            pass
        elif isinstance(outcome, ImageFailure):
            current.active.remove(image)
            failure = ImageFailure(image.image_id, f"pilot {outcome.reason}") if stream == "pilot" else outcome
            current.results[image.image_id] = failure
            self._on_image()
            self._count_failure(failure)
        elif stream == "pilot":
            image.pilot = outcome
        else:
            self._failures = 0
            image.votes = outcome if image.votes is None else _concatenate(image.votes, outcome)
            if image.draws == self._most_draws:
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
        """Count a job that is back; after the last one, evaluate the round in a thread, if there is a decision."""
        current.missing -= 1
        if current.missing:
            return
        open_ = [image for image in current.active if image.draws < self._most_draws]
        if self._scheme.stopping is None or not open_:
            self._split(current, set())
        else:
            evaluation = self._evaluator.submit(self._scheme.stopping.decided, [image.row() for image in open_])
            self._evaluating.append((current, open_, evaluation))

    def _continue_rounds(self) -> None:
        """Continue with the rounds whose evaluation has ended."""
        while self._evaluating and self._evaluating[0][2].done():
            current, open_, evaluation = self._evaluating.popleft()
            decided = evaluation.result()
            for _ in filter(None, decided):
                self._on_image()
            self._split(current, {image.image_id for image, stops in zip(open_, decided, strict=True) if not stops})

    def _split(self, current: _Round, undecided: Set[str]) -> None:
        """Split the images of a round into those that stop and those that continue."""
        stopped = {image.image_id: image.row() for image in current.active if image.image_id not in undecided}
        current.results.update(stopped)
        if undecided:
            continued = [image for image in current.active if image.image_id in undecided]
            self._waiting.append(_Round(current.shard, continued, current.results))
        else:
            self._complete.append(current.votes())


def _concatenate(before: DrawVotes, after: DrawVotes) -> DrawVotes:
    if isinstance(before, LabelSets):
        return LabelSets(np.concatenate([before.packed, cast(LabelSets, after).packed]), before.num_labels)
    return np.concatenate([before, cast(Ranked, after)])
