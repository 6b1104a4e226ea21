"""An adaptive run has the first draws of the fixed run, stops where its rule says, and keeps the device full."""

import math
import subprocess
import sys
import threading
from concurrent.futures import wait
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from toy import Images, linear

from multiguard.certify import Looks, StoppingRule, ThresholdStoppingRule
from multiguard.data.sample import Sample
from multiguard.errors import DataError, InvalidInputError, VotesError
from multiguard.models import load_classifier
from multiguard.smooth import DEVICE_PHILOX, AdaptivePlan, Smoother, rounds, streaming, vote_dataset
from multiguard.smooth.rounds import OpenShard, Scheme, ShardVoting
from multiguard.votes import most_frequent, passing, read_votes

LOOKS = Looks((20, 50, 120, 300), (0.1, 0.1, 0.2, 0.6))
TOP_K = AdaptivePlan(LOOKS, radii=(0.1, 0.4), alpha=0.01, k=2, k_prime=2)
PASSING = AdaptivePlan(LOOKS, radii=(0.8,), alpha=0.01, threshold=0.5)
TOP_K_RULE = {"radii": (0.1, 0.4), "num_labels": 5, "k": 2, "k_prime": 2, "sigma": 0.5, "alpha": 0.01}
PASSING_RULE = {"radii": (0.8,), "num_labels": 5, "threshold": 0.5, "sigma": 0.5, "alpha": 0.01}


def smoother(**options) -> Smoother:
    return Smoother(linear(), **{"sigma": 0.5, "device": "cpu", "batch_size": 64, **options})


def draws_by_the_rule(one: Smoother, images: Images, seed: int, *, labelled: bool) -> list[int]:
    """Slow and obvious: one image at a time, one look after the other, its votes drawn anew at each."""
    top_k = one.settings.rule == "top-k"
    rule = StoppingRule(LOOKS, **TOP_K_RULE) if top_k else ThresholdStoppingRule(LOOKS, **PASSING_RULE)
    found = []
    for sample in images:
        labels = sample.labels
        if not labelled:
            pilot = one.votes(sample.image, 30, seed=seed, image_id=sample.id, stream="pilot")
            labels = (
                most_frequent(pilot, k=2, k_prime=2, num_labels=5) if top_k else passing(pilot.hits(), threshold=0.5)
            )
        for draws in LOOKS.draws:
            votes = one.votes(sample.image, draws, seed=seed, image_id=sample.id)
            if rule.decided([votes if top_k else votes.hits()], [labels])[0]:
                break
        found.append(draws)
    return found


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize(("rule", "plan"), [("top-k", TOP_K), ("threshold", PASSING)])
def test_every_image_stops_where_the_rule_says_with_the_first_draws_of_a_fixed_run(tmp_path, rule, plan, labelled):
    images, one = Images(20), smoother(rule=rule)
    more = {"seed": 3, "shard_images": 6, "pilot_draws": 30, "labelled": labelled}
    vote_dataset(one, images, tmp_path / "adaptive", adaptive=plan, **more)
    vote_dataset(one, images, tmp_path / "fixed", draws=300, **more)
    adaptive, fixed = read_votes(tmp_path / "adaptive"), read_votes(tmp_path / "fixed")
    draws = [adaptive.draws_of(position) for position in range(20)]
    assert draws == draws_by_the_rule(one, images, 3, labelled=labelled)
    assert len(set(draws)) >= 3, "images must stop at different looks for this test to mean anything"
    for position, count in enumerate(draws):
        if rule == "top-k":
            same = np.array_equal(adaptive.ranked(position, looks=LOOKS.draws), fixed.ranked(position)[:count])
            assert np.array_equal(adaptive.pilot_ranked(position), fixed.pilot_ranked(position))
        else:
            same = np.array_equal(adaptive.hits(position, looks=LOOKS.draws), fixed.hits(position)[:count])
            assert np.array_equal(adaptive.pilot_hits(position), fixed.pilot_hits(position))
        assert same


@pytest.mark.parametrize("shard_images", [1, 4, 100])
@pytest.mark.parametrize("batch_size", [1, 7, 512])
def test_votes_do_not_depend_on_shards_or_batches(tmp_path, shard_images, batch_size):
    images = Images(9)
    vote_dataset(smoother(), images, tmp_path / "a", adaptive=TOP_K, seed=0)
    other = smoother(batch_size=batch_size)
    vote_dataset(other, images, tmp_path / "b", adaptive=TOP_K, seed=0, shard_images=shard_images)
    assert same_votes(tmp_path / "a", tmp_path / "b")


def same_votes(one: Path, other: Path) -> bool:
    a, b = read_votes(one), read_votes(other)
    pairs = [(a.ranked(i, looks=a.looks), b.ranked(i, looks=b.looks)) for i in range(len(a))]
    return a.ids == b.ids and a.labels == b.labels and all(np.array_equal(*pair) for pair in pairs)


def test_the_record_says_what_was_asked(tmp_path):
    vote_dataset(smoother(), Images(2), tmp_path / "a", adaptive=TOP_K, seed=0)
    run = read_votes(tmp_path / "a").provenance
    assert (run.draws, run.looks, run.look_fractions) == (300, LOOKS.draws, LOOKS.shares)
    assert run.stopping == {"radii": (0.1, 0.4), "alpha": 0.01, "forecast_margin": 2.0, "k": 2, "k_prime": 2}
    proof = AdaptivePlan(LOOKS, radii=[np.float64(0.1)], threshold=0.5, forecast_margin=math.inf)
    vote_dataset(smoother(rule="threshold"), Images(2), tmp_path / "b", adaptive=proof, seed=0)
    run = read_votes(tmp_path / "b").provenance
    assert run.stopping == {"radii": (0.1,), "alpha": 0.001, "forecast_margin": None, "threshold": 0.5}


def test_another_plan_is_another_run(tmp_path):
    vote_dataset(smoother(), Images(2), tmp_path, adaptive=TOP_K, seed=0)
    for changed in (AdaptivePlan(LOOKS, (0.1,), 0.01, 2, 2), AdaptivePlan(LOOKS, (0.1, 0.4), 0.01, 2, 1)):
        with pytest.raises(VotesError, match="another run: stopping differ"):
            vote_dataset(smoother(), Images(2), tmp_path, adaptive=changed, seed=0)
    with pytest.raises(VotesError, match="another run: looks, look_fractions and stopping differ"):
        vote_dataset(smoother(), Images(2), tmp_path, draws=300, seed=0)


def test_progress_counts_images_that_have_stopped(tmp_path):
    calls: list[tuple[int, int]] = []
    vote_dataset(smoother(), Images(9), tmp_path, adaptive=TOP_K, seed=0, progress=lambda *c: calls.append(c))
    assert calls == [(done, 9) for done in range(1, 10)]


class ByNumber:
    """Stops an image at the look that its number says: 0 at the first, 1 at the second, ..."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def decided(self, rows):
        self.asked += [(row.image_id, row.draws) for row in rows]
        return [LOOKS.draws.index(row.draws) >= int(row.image_id.split("-")[1]) % 4 for row in rows]


@pytest.fixture(params=["at once", "some batches later"])
def landing(request, monkeypatch):
    """Votes reach the host at once, as on a CPU, or some batches behind, as from an accelerator."""
    if request.param == "at once":
        return
    fly = streaming._fly

    class Arrived:
        def synchronize(self) -> None:
            pass

    def late(batch, votes):
        flight = fly(batch, votes.clone())
        return streaming._Flight(flight.batch, flight.votes, Arrived())

    monkeypatch.setattr(streaming, "_fly", late)


def shards_of(images, size, read=None):
    """The images in shards of so many, each noted in `read` when it is asked for."""
    for shard in range(len(images) // size):
        samples = (images[position] for position in range(size * shard, size * (shard + 1)))
        noted = samples if read is None else (read.append(None) or sample for sample in samples)
        yield OpenShard(shard, noted, size)


@pytest.mark.usefixtures("landing")
@pytest.mark.parametrize("pilot_draws", [0, 13])
def test_the_device_stays_full_and_draws_nothing_twice(pilot_draws):
    sizes: list[int] = []
    seen: set[bytes] = set()

    def watch(images: Tensor) -> Tensor:
        sizes.append(len(images))
        seen.update(row.numpy().tobytes() for row in images)
        return images.flatten(1)[:, :5]

    f = load_classifier(watch, labels=list("abcde"), output="logits")
    images, rule = Images(64), ByNumber()
    shards = shards_of(images, 8)
    scheme = Scheme(0, LOOKS.draws, rule, pilot_draws, labelled=True)
    stopped: list[None] = []
    one = Smoother(f, sigma=0.5, device="cpu", batch_size=64)
    found = {shard.index: shard.rows for shard in ShardVoting(one, shards, scheme, lambda: stopped.append(None))}
    rows = {row.image_id: row for shard in range(8) for row in found[shard]}
    assert [row.image_id for shard in range(8) for row in found[shard]] == images.ids
    assert [len(found[shard]) for shard in range(8)] == [8] * 8
    assert [rows[image_id].draws for image_id in images.ids] == [LOOKS.draws[i % 4] for i in range(64)]
    total = 16 * sum(LOOKS.draws) + 64 * pilot_draws
    assert len(seen) == total
    assert set(sizes) == {64}, "padded, so that no score depends on how full its batch was"
    assert len(stopped) == 64
    assert len(sizes) <= math.ceil(total / 64) + len(LOOKS.draws) - 1, "only the last shard's looks may leave gaps"


def test_the_compiler_sees_no_more_shapes_in_mixed_batches_than_in_those_of_one_image(monkeypatch):
    one, seen = smoother(noise=DEVICE_PHILOX), {}
    graph = one._step._graph

    def watch(kind, few, rows):
        seen.setdefault(len(rows[0]), set()).add(tuple(tuple(tensor.shape) for tensor in rows))
        return graph(kind, few, rows)

    monkeypatch.setattr(one._step, "_graph", watch)
    images, scheme = Images(64), Scheme(0, LOOKS.draws, ByNumber(), 7, labelled=True)
    shards = shards_of(images, 8)
    list(ShardVoting(one, shards, scheme, lambda: None))
    mixed = dict(seen)
    seen.clear()
    for rows in mixed:
        one.votes(images[0].image, rows, seed=0, image_id="alone")
    assert 64 in mixed
    assert mixed == seen


def test_a_rule_is_asked_once_a_look_and_never_at_the_last():
    images, rule = Images(8), ByNumber()
    scheme = Scheme(0, LOOKS.draws, rule, 0, labelled=True)
    list(ShardVoting(smoother(), shards_of(images, 8), scheme, lambda: None))
    expected = [(id_, LOOKS.draws[look]) for look in range(3) for i, id_ in enumerate(images.ids) if i % 4 >= look]
    assert rule.asked == expected


def test_a_judge_that_falls_behind_holds_new_shards_back(monkeypatch):
    """Its images wait with their pixels: without a bound the whole dataset would."""
    blocked, read, read_when_blocked = threading.Event(), [], []

    class Slow(ByNumber):
        def decided(self, rows):
            assert blocked.wait(timeout=60)
            return super().decided(rows)

    def told(futures) -> None:
        read_when_blocked.append(len(read))
        blocked.set()
        wait(futures)

    monkeypatch.setattr(rounds, "wait", told)
    images = Images(40)
    shards = shards_of(images, 2, read)
    one, scheme = smoother(batch_size=16), Scheme(0, LOOKS.draws, Slow(), 0, labelled=True)
    assert len(list(ShardVoting(one, shards, scheme, lambda: None))) == 20
    assert read_when_blocked[0] <= 2 * (rounds._MOST_JUDGED + 2)


def test_a_judge_that_fails_is_heard():
    class Broken(ByNumber):
        def decided(self, rows):
            raise InvalidInputError("these votes cannot be judged")

    images, scheme = Images(8), Scheme(0, LOOKS.draws, Broken(), 0, labelled=True)
    with pytest.raises(InvalidInputError, match="cannot be judged"):
        list(ShardVoting(smoother(), shards_of(images, 8), scheme, lambda: None))


def test_pixels_are_let_go_when_no_more_draws_can_be_wanted():
    """A run of fixed length holds the pixels of a few images, however many a shard has."""
    held: list[int] = []

    class Voting(ShardVoting):
        def _landed(self, job, votes):
            of = super()._landed(job, votes)
            held.append(sum(image.pixels is not None for image in of.active))
            return of

    images = Images(40)
    list(Voting(smoother(), shards_of(images, 40), Scheme(0, (16,), None, 4, True), lambda: None))
    assert max(held) <= 4


@pytest.mark.usefixtures("landing")
def test_a_batch_that_finds_no_memory_is_halved_with_the_same_noise(tmp_path):
    exact = linear()

    def cramped(images: Tensor) -> Tensor:
        if len(images) > 9:
            raise torch.OutOfMemoryError("no room")
        return exact(images)

    f = load_classifier(cramped, labels=exact.label_names, output="logits", name="linear")
    small = Smoother(f, sigma=0.5, device="cpu", batch_size=64)
    vote_dataset(small, Images(9), tmp_path / "small", adaptive=TOP_K, seed=0, shard_images=2)
    vote_dataset(smoother(), Images(9), tmp_path / "large", adaptive=TOP_K, seed=0, shard_images=2)
    assert same_votes(tmp_path / "small", tmp_path / "large")


class Failing(Images):
    broken = True

    def __getitem__(self, index: int, /) -> Sample:
        if self.broken and index == 18:
            raise DataError("image-18.jpg: cannot be decoded")
        return super().__getitem__(index)


def test_an_interrupted_run_goes_on_and_ends_with_the_same_votes(tmp_path):
    images, arguments = Failing(20), {"adaptive": TOP_K, "seed": 0, "shard_images": 1}
    with pytest.raises(DataError, match="image-18"):
        vote_dataset(smoother(), images, tmp_path / "a", **arguments)
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "a").glob("*.parquet")}
    assert 1 <= len(before) <= 18
    images.broken = False
    vote_dataset(smoother(), images, tmp_path / "a", **arguments)
    assert {name: (tmp_path / "a" / name).stat().st_mtime_ns for name in before} == before
    vote_dataset(smoother(), Images(20), tmp_path / "b", **arguments)
    assert same_votes(tmp_path / "a", tmp_path / "b")


KILLED = """
import os, sys
sys.path[:0] = [sys.argv[2]]
from test_adaptive_voting import TOP_K, Images, smoother, vote_dataset
def die(done, total):
    if done == 13:
        os._exit(9)
vote_dataset(smoother(), Images(20), sys.argv[1], adaptive=TOP_K, seed=0, shard_images=1, progress=die)
"""


def test_a_killed_run_goes_on_and_ends_with_the_same_votes(tmp_path, monkeypatch):
    here = Path(__file__).parent
    for library in ("timm", "transformers", "onnxruntime"):
        monkeypatch.delitem(sys.modules, library, raising=False)  # other tests import them; the killed run does not
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "a", here], check=False)
    assert done.returncode == 9
    unfinished = len(read_votes(tmp_path / "a", partial=True))
    assert 0 < unfinished < 20
    for folder in ("a", "b"):
        vote_dataset(smoother(), Images(20), tmp_path / folder, adaptive=TOP_K, seed=0, shard_images=1)
    assert same_votes(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("rule", ["top-k", "threshold"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_stored_pilot_draws_are_never_among_those_that_certify(tmp_path, rule, adaptive):
    seen: set[bytes] = set()

    def watch(images: Tensor) -> Tensor:
        seen.update(row.numpy().tobytes() for row in images)
        return images.flatten(1)[:, :5]

    f = load_classifier(watch, labels=list("abcde"), output="logits", name="watched")
    one = Smoother(f, sigma=0.5, rule=rule, device="cpu", batch_size=64)
    how = {"adaptive": TOP_K if rule == "top-k" else PASSING} if adaptive else {"draws": 50}
    vote_dataset(one, Images(3), tmp_path, seed=0, pilot_draws=30, labelled=False, **how)
    votes = read_votes(tmp_path)
    assert len(seen) == sum(votes.draws_of(i) for i in range(3)) + 3 * 30
    for position, sample in enumerate(Images(3)):
        pilot = one.votes(sample.image, 30, seed=0, image_id=sample.id, stream="pilot")
        stored = votes.pilot_ranked(position) if rule == "top-k" else votes.pilot_hits(position)
        assert np.array_equal(stored, pilot if rule == "top-k" else pilot.hits())


def test_a_run_without_labels_stores_none(tmp_path):
    vote_dataset(smoother(), Images(3), tmp_path, draws=5, pilot_draws=5, labelled=False, seed=0)
    votes = read_votes(tmp_path)
    assert [row.labels for row in votes] == [()] * 3
    with pytest.raises(VotesError, match="no ground truth"):
        _ = votes.labels


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give one of the two"),
        ({"draws": 5, "adaptive": TOP_K}, "give one of the two"),
        ({"draws": 5, "labelled": False}, "give pilot_draws"),
        ({"draws": 5, "pilot_draws": -1}, "pilot_draws must be 0 or more"),
        ({"draws": 5, "pilot_draws": 1.5}, "pilot_draws must be a whole number, not 1.5"),
        ({"adaptive": PASSING}, "threshold belongs to rule='threshold'"),
        ({"adaptive": AdaptivePlan(LOOKS, (0.5,))}, "k must be a whole number"),
        ({"adaptive": AdaptivePlan(LOOKS, (0.5,), k=2, k_prime=4)}, "k_prime must be between 1 and k_max = 3"),
        ({"adaptive": AdaptivePlan(LOOKS, (0.5,), k=6, k_prime=1)}, "k must lie between 1 and the classifier's 5"),
        ({"adaptive": AdaptivePlan(LOOKS, (), k=2, k_prime=1)}, "radii"),
        ({"adaptive": AdaptivePlan(LOOKS, (0.5,), 2.0, k=2, k_prime=1)}, "alpha"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(tmp_path, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        vote_dataset(smoother(k_max=3), Images(2), tmp_path / "votes", seed=0, **arguments)
    assert not (tmp_path / "votes").exists()
