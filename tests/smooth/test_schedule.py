"""Rounds share full batches, stop each image where it is decided, and leave out images that fail."""

import math
import threading
from concurrent.futures import wait

import numpy as np
import pytest
import torch
from bad_draws import PILOT_DRAWS, PROBLEMS, failing, smoother_of
from torch import Tensor
from toy import Images, linear

from multiguard.certify import TopK
from multiguard.errors import ImageFailure, ModelError
from multiguard.models import load
from multiguard.smooth import AdaptivePlan, Smoother, schedule, vote_dataset
from multiguard.smooth.noise_source import DEVICE_PHILOX
from multiguard.smooth.schedule import Scheme, ShardImages, ShardVoter
from multiguard.votes import read_votes

STOPS = (20, 50, 120, 300)
PLAN = AdaptivePlan(TopK(2, 1), radii=(0.25,), max_draws=160, alpha=0.05)


class ByNumber:
    """Stops an image at the stop that its number says: 0 at the first, 1 at the second, ..."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def decided(self, rows):
        self.calls += [(row.image_id, row.draws) for row in rows]
        return [STOPS.index(row.draws) >= int(row.image_id.split("-")[1]) % 4 for row in rows]


def smoother(batch_size=64) -> Smoother:
    return Smoother(linear(), sigma=0.5, device="cpu", batch_size=batch_size)


def scheme(stopping, stops=STOPS, pilot_draws=0) -> Scheme:
    return Scheme(0, stops, stopping, pilot_draws, labelled=True)


def shards_of(images, size, read=None):
    """The images in shards of this size; each read is noted in `read`."""
    for shard in range(len(images) // size):
        samples = (images[position] for position in range(size * shard, size * (shard + 1)))
        yield ShardImages(shard, samples if read is None else (read.append(None) or sample for sample in samples))


@pytest.fixture(params=["at once", "late"])
def arrival(request):
    """Votes reach the host at once, as on a CPU, or some batches later, as from an accelerator."""
    if request.param == "late":
        request.getfixturevalue("late_votes")


@pytest.mark.usefixtures("arrival")
@pytest.mark.parametrize("pilot_draws", [0, 13])
def test_full_batches(pilot_draws):
    """The device stays full and draws nothing twice, and every image has the draws of its stop."""
    sizes: list[int] = []
    seen: set[bytes] = set()

    def watch(images: Tensor) -> Tensor:
        sizes.append(len(images))
        seen.update(row.numpy().tobytes() for row in images)
        return images.flatten(1)[:, :5]

    f = load(watch, labels=list("abcde"), output="logits").module()
    images, done = Images(32), []
    one = Smoother(f, sigma=0.5, device="cpu", batch_size=64)
    voter = ShardVoter(
        one, shards_of(images, 4), scheme(ByNumber(), pilot_draws=pilot_draws), lambda: done.append(None)
    )
    votes = {shard.index: shard.rows for shard in voter}
    rows = [row for shard in range(8) for row in votes[shard]]
    assert [row.image_id for row in rows] == images.ids
    assert [row.draws for row in rows] == [STOPS[i % 4] for i in range(32)]
    total = 8 * sum(STOPS) + 32 * (pilot_draws + 1)  # and each image without noise
    assert len(seen) == total
    assert set(sizes) == {64}, "padded, so that no score depends on how full its batch was"
    assert len(done) == 32
    assert len(sizes) <= math.ceil(total / 64) + len(STOPS) - 1, "only the last shard's rounds may leave gaps"


def test_one_decision_per_stop():
    """The stopping rule is called once per stop and never at the last."""
    images, stopping = Images(8), ByNumber()
    list(ShardVoter(smoother(), shards_of(images, 8), scheme(stopping), lambda: None))
    expected = [(id_, STOPS[stop]) for stop in range(3) for i, id_ in enumerate(images.ids) if i % 4 >= stop]
    assert stopping.calls == expected


def test_slow_evaluation(monkeypatch):
    """An evaluator that falls behind holds back new shards, whose images would wait in memory."""
    blocked, read, read_when_blocked = threading.Event(), [], []

    class Slow(ByNumber):
        def decided(self, rows):
            assert blocked.wait(timeout=60)
            return super().decided(rows)

    def unblock(futures) -> None:
        read_when_blocked.append(len(read))
        blocked.set()
        wait(futures)

    monkeypatch.setattr(schedule, "wait", unblock)
    shards = shards_of(Images(40), 2, read)
    assert len(list(ShardVoter(smoother(16), shards, scheme(Slow()), lambda: None))) == 20
    assert read_when_blocked[0] <= 2 * (schedule._MAX_EVALUATING + 2)


def test_released_pixels():
    """A run with fixed draws holds the pixels of a few images, however many a shard has."""
    held: list[int] = []

    class Watched(ShardVoter):
        def _receive(self, job, outcome):
            current = self._sent[job][0]
            super()._receive(job, outcome)
            held.append(sum(image.pixels is not None for image in current.active))

    list(Watched(smoother(), shards_of(Images(40), 40), scheme(None, (16,), 4), lambda: None))
    assert max(held) <= 4


KINDS = {"fixed": {"draws": 12}, "pilot": {"draws": 12, "pilot_draws": PILOT_DRAWS}, "adaptive": {"adaptive": PLAN}}


@pytest.mark.parametrize("batch_size", [1, 11, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_recorded_failures(tmp_path, kind, batch_size):
    """A run with failures has the votes of a run without, except for the images that failed at any stop."""
    options = {**KINDS[kind], "noise_seed": 0, "shard_images": 2}
    pilot = {(2, 1): "nan", (4, 2): "nan"} if kind == "pilot" else None
    later = {(2, 25): "nan", (3, 30): "raise"} if kind == "adaptive" else {}
    scores = failing({(1, 3): "raise", (4, 0): "nan", **later}, pilot, draws=160 if later else 12)
    done: list[tuple[int, int]] = []
    run = smoother_of(scores, batch_size)
    vote_dataset(run, Images(5), tmp_path / "some", **options, on_error="record", progress=lambda *c: done.append(c))
    vote_dataset(smoother_of(failing({})), Images(5), tmp_path / "all", **options)
    some, every = read_votes(tmp_path / "some"), read_votes(tmp_path / "all")
    raises = PROBLEMS["raise"].replace("1 rows", f"{batch_size} rows")  # the draw alone, in a batch of the usual size
    reasons = {"image-1": f"draw 3: the classifier {raises}", "image-4": f"draw 0: the classifier {PROBLEMS['nan']}"}
    if pilot:
        for (image, draw), problem in pilot.items():
            reasons[f"image-{image}"] = f"pilot draw {draw}: the classifier {PROBLEMS[problem]}"
    for (image, draw), problem in later.items():
        assert every.draws_of(image) > draw, "the image must get as far as its bad draw"
        reasons[f"image-{image}"] = f"draw {draw}: the classifier {raises if problem == 'raise' else PROBLEMS[problem]}"
    assert some.failures == tuple(ImageFailure(name, reasons[name]) for name in sorted(reasons))
    for position, image_id in enumerate(some.ids):
        row, other = some.row(position, adaptive=True), every.row(int(image_id[-1]), adaptive=True)
        assert np.array_equal(row.ranked, other.ranked)
        assert row.pilot is None or np.array_equal(row.pilot, other.pilot)
    assert done == [(number, 5) for number in range(1, 6)]
    assert len(some.ids) + len(some.failures) == 5


BARE_KINDS = {
    "fixed": ({"k_max": 3}, KINDS["fixed"]),
    "pilot": ({"k_max": 3}, KINDS["pilot"]),
    "adaptive": ({"k_max": 3}, KINDS["adaptive"]),
    "sets": ({"score_threshold": 0.5}, KINDS["fixed"]),
    "noise of a device": ({"k_max": 3, "noise_source": DEVICE_PHILOX}, KINDS["fixed"]),
}


@pytest.mark.parametrize("kind", BARE_KINDS)
@pytest.mark.parametrize("batch_size", [1, 7])
def test_bare_votes(tmp_path, kind, batch_size):
    """Each image has the labels of the classifier without noise, whatever shares its batch; its draws have noise."""
    how, options = BARE_KINDS[kind]
    one = Smoother(linear(), sigma=0.5, device="cpu", batch_size=batch_size, **how)
    vote_dataset(one, Images(5), tmp_path, **options, noise_seed=0, shard_images=2)
    votes = read_votes(tmp_path)
    for position, sample in enumerate(Images(5)):
        row = votes.row(position, adaptive=True)
        scores = linear()(torch.from_numpy(sample.image)[None].float() / 255)[0]
        if kind == "sets":
            assert row.bare.hits().tolist() == [(scores >= 0).tolist()]
            assert len(np.unique(row.hits, axis=0)) > 1
        else:
            assert row.bare.tolist() == [np.argsort(-scores.numpy(), kind="stable")[:3].tolist()]
            assert len(np.unique(row.ranked, axis=0)) > 1
            fresh = one.votes(sample.image, row.draws, noise_seed=0, image_id=sample.id)
            assert np.array_equal(row.ranked, fresh), "the image without noise moves no draw"


@pytest.mark.parametrize("problem", ["nan", "raise"])
@pytest.mark.parametrize("batch_size", [1, 16])
def test_bare_failure(tmp_path, problem, batch_size):
    """A classifier that fails on an image without noise alone still votes on it: no claim depends on that."""
    exact, clean = linear(), {(torch.from_numpy(each.image).float() / 255).numpy().tobytes() for each in Images(2)}

    def scores(images: Tensor) -> Tensor:
        found = [row.numpy().tobytes() in clean for row in images]
        if problem == "raise" and any(found):
            raise ValueError("no noise")
        return exact(images).masked_fill(torch.tensor(found)[:, None], float("nan"))

    vote_dataset(smoother_of(scores, batch_size), Images(5), tmp_path, draws=12, noise_seed=0)
    votes = read_votes(tmp_path)
    assert votes.failures == ()
    assert [row.bare is None for row in votes] == [True, True, False, False, False]
    assert {row.draws for row in votes} == {12}


def is_image(images: Tensor) -> bool:
    """Whether these are noisy copies of an image: copies of a black one are darker."""
    return bool((images.mean(dim=(1, 2, 3)) > 0.25).any())


def test_failures_in_a_row(tmp_path, monkeypatch):
    """Many failures in a row blame the model: nothing more is recorded."""
    assert schedule._MAX_FAILURES == 100
    monkeypatch.setattr(schedule, "_MAX_FAILURES", 10)
    fails = [True] * 9 + [False] + [True] * 10
    images, exact = Images(len(fails)), linear()
    known = {sample.image.tobytes(): fails[i] for i, sample in enumerate(images)}

    def scores(noisy: Tensor) -> Tensor:
        if not is_image(noisy):
            return exact(noisy)
        nearest = (noisy[0] * 255).round().clamp(0, 255).to(torch.uint8).numpy().tobytes()
        return exact(noisy) * (float("nan") if known[nearest] else 1)

    classifier = load(scores, labels=list("abcde"), output="logits", name="most")
    run = Smoother(classifier, sigma=1e-5, k_max=3, device="cpu", batch_size=1)
    with pytest.raises(ModelError, match=r"10 images in a row failed, the last of them 'image-19', draw 0"):
        vote_dataset(run, images, tmp_path, draws=1, noise_seed=0, shard_images=5, on_error="record")
    assert len(read_votes(tmp_path, partial=True).failures) == 14
