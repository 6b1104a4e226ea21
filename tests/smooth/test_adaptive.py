"""An adaptive run has the first draws of the fixed run, and stops each image where its rule says."""

import math
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from torch import Tensor
from toy import Images, linear

from multiguard.certify import Gaussian, Threshold, TopK, settled_by_betting
from multiguard.data.image import image_hash
from multiguard.errors import InvalidInputError
from multiguard.models import load
from multiguard.smooth import AdaptivePlan, Smoother, schedule, vote_dataset
from multiguard.votes import LabelSets, read_votes
from multiguard.votes.types import as_array

TOP_K = AdaptivePlan(TopK(2, 2), radii=(0.1, 0.4), max_draws=300, alpha=0.01)
SETS = AdaptivePlan(Threshold(0.5), radii=(0.3,), max_draws=300, alpha=0.01)
PLANS = pytest.mark.parametrize("plan", [TOP_K, SETS], ids=["ranks", "sets"])


def smoother(plan: AdaptivePlan = TOP_K, **options) -> Smoother:
    score_threshold = 0.5 if plan.rule.name == "threshold" else None
    options = {"sigma": 0.5, "device": "cpu", "batch_size": 64, "score_threshold": score_threshold, **options}
    return Smoother(linear(), **options)


def stopping_draws(one: Smoother, plan: AdaptivePlan, images: Images, seed: int, *, labelled: bool) -> list[int]:
    """Slow and obvious: one image at a time, one stop after the other, its votes drawn again at each."""
    options = {"rule": plan.rule, "num_labels": 5, "noise": Gaussian(0.5), "radii": plan.radii, "alpha": plan.alpha}
    options |= {"draws": plan.max_draws, "forecast_margin": plan.forecast_margin}
    top_k, found = plan.rule.name == "top-k", []
    for sample in images:
        labels = sample.labels
        if not labelled:
            pilot = one.votes(sample.image, 30, noise_seed=seed, image_id=sample.id, stream="pilot")
            labels = plan.rule.returned(pilot if top_k else pilot.hits(), 5)
        for draws in plan.stops:
            votes = one.votes(sample.image, draws, noise_seed=seed, image_id=sample.id)
            if settled_by_betting([votes if top_k else votes.hits()], [labels], **options)[0]:
                break
        found.append(draws)
    return found


@pytest.mark.parametrize("labelled", [True, False])
@PLANS
def test_stopping_draws(tmp_path, plan, labelled):
    """Every image stops where the rule says, with the first draws of a fixed run."""
    images, one = Images(20), smoother(plan)
    more = {"noise_seed": 1, "shard_images": 6, "pilot_draws": 30, "labelled": labelled}
    vote_dataset(one, images, tmp_path / "adaptive", adaptive=plan, **more)
    vote_dataset(one, images, tmp_path / "fixed", draws=300, **more)
    adaptive, fixed = read_votes(tmp_path / "adaptive"), read_votes(tmp_path / "fixed")
    draws = [adaptive.draws_of(position) for position in range(20)]
    assert draws == stopping_draws(one, plan, images, 1, labelled=labelled)
    assert len(set(draws)) >= 3, "images must stop after different draws for this test to mean anything"
    for position, count in enumerate(draws):
        if plan is TOP_K:
            same = np.array_equal(adaptive.ranked(position, adaptive=True), fixed.ranked(position)[:count])
        else:
            same = np.array_equal(adaptive.hits(position, adaptive=True), fixed.hits(position)[:count])
        pilots = [as_array(votes.row(position, adaptive=True).pilot, plan.rule) for votes in (adaptive, fixed)]
        assert same
        assert np.array_equal(*pilots)


@pytest.mark.parametrize("killed", [False, True])
def test_processes(tmp_path, monkeypatch, killed):
    """Other processes decide the same, and if one of them is killed this one decides."""
    images, one = Images(12), smoother()
    vote_dataset(one, images, tmp_path / "one", adaptive=TOP_K, noise_seed=1)
    monkeypatch.setattr(schedule, "_processes", lambda device: 2)
    workers = set()

    def executor(*given, **options):
        found = get_reusable_executor(*given, **options)
        workers.update([found.submit(os.getpid).result()])
        if killed:
            for process in tuple(found._processes.values()):
                os.kill(process.pid, signal.SIGKILL)
                process.join()
        return found

    monkeypatch.setattr("joblib.externals.loky.get_reusable_executor", executor)
    vote_dataset(one, images, tmp_path / "two", adaptive=TOP_K, noise_seed=1)
    assert workers - {os.getpid()}
    assert same_votes(tmp_path / "one", tmp_path / "two")


def same_votes(one: Path, other: Path) -> bool:
    a, b = read_votes(one), read_votes(other)
    pairs = [(a.ranked(i, adaptive=True), b.ranked(i, adaptive=True)) for i in range(len(a))]
    return a.ids == b.ids and a.labels == b.labels and all(np.array_equal(*pair) for pair in pairs)


def test_recorded_plan(tmp_path):
    """The provenance records the plan."""
    vote_dataset(smoother(), Images(2), tmp_path / "a", adaptive=TOP_K, noise_seed=0)
    run = read_votes(tmp_path / "a").provenance
    assert (run.draws, run.stops) == (300, (50, 100, 200, 300))
    assert run.stopping == {"radii": (0.1, 0.4), "alpha": 0.01, "forecast_margin": 1.0, "k": 2, "k_prime": 2}
    proof = AdaptivePlan(Threshold(0.5), radii=[np.float64(0.1)], max_draws=60, forecast_margin=math.inf)
    vote_dataset(smoother(SETS), Images(2), tmp_path / "b", adaptive=proof, noise_seed=0)
    run = read_votes(tmp_path / "b").provenance
    assert run.stopping == {"radii": (0.1,), "alpha": 0.001, "forecast_margin": None, "threshold": 0.5}


@pytest.mark.parametrize("labelled", [True, False])
@PLANS
@pytest.mark.parametrize("first", ["fewer", "fixed"])
def test_extended_run(tmp_path, plan, labelled, first):
    """A run with more draws in the same folder has the votes of a new run that was evaluated where this one was."""
    images, more = Images(12), {"noise_seed": 1, "shard_images": 5, "pilot_draws": 30, "labelled": labelled}
    start = {"draws": 100} if first == "fixed" else {"adaptive": replace(plan, max_draws=100)}
    vote_dataset(smoother(plan), images, tmp_path / "a", **start, **more)
    before = read_votes(tmp_path / "a")
    old = [before.row(i, adaptive=True) for i in range(12)]
    vote_dataset(smoother(plan), images, tmp_path / "a", adaptive=plan, **more)
    vote_dataset(smoother(plan), images, tmp_path / "b", draws=300, **more)
    extended, fixed = read_votes(tmp_path / "a"), read_votes(tmp_path / "b")
    assert extended.provenance.stops == (*((50,) if first == "fewer" else ()), 50, 100, 200, 300)[-4:]
    continued = 0
    for i in range(12):
        now, whole = extended.row(i, adaptive=True), fixed.row(i)
        assert np.array_equal(array(now.votes), array(whole.votes)[: now.draws])
        assert np.array_equal(array(now.pilot), array(old[i].pilot))
        assert now.draws >= old[i].draws
        continued += now.draws > old[i].draws
    assert continued > 0


@pytest.mark.parametrize("plan", [None, TOP_K])
def test_extension_of_changed_images(tmp_path, plan):
    """Draws of an image that has changed since are not continued: they would be votes on two images."""
    images, how = Images(3), {"draws": 40} if plan is None else {"adaptive": replace(plan, max_draws=50)}
    vote_dataset(smoother(), images, tmp_path, noise_seed=0, **how)
    images.change(1)
    more = {"draws": 80} if plan is None else {"adaptive": plan}
    vote_dataset(smoother(), images, tmp_path, noise_seed=0, **more)
    for i, sample in enumerate(images):
        row = read_votes(tmp_path).row(i, adaptive=True)
        assert row.image_hash == image_hash(sample.image)
        assert np.array_equal(row.ranked, smoother().votes(sample.image, row.draws, noise_seed=0, image_id=sample.id))


def array(votes) -> np.ndarray:
    return votes.packed if isinstance(votes, LabelSets) else votes


@PLANS
@pytest.mark.parametrize("adaptive", [False, True])
def test_separate_pilot_draws(tmp_path, plan, adaptive):
    """Stored pilot draws are never among those that certify."""
    seen: set[bytes] = set()

    def watch(images: Tensor) -> Tensor:
        seen.update(row.numpy().tobytes() for row in images)
        return images.flatten(1)[:, :5]

    f = load(watch, labels=list("abcde"), output="logits", name="watched")
    one = Smoother(f, sigma=0.5, score_threshold=0.5 if plan is SETS else None, device="cpu", batch_size=64)
    how = {"adaptive": plan} if adaptive else {"draws": 50}
    vote_dataset(one, Images(3), tmp_path, noise_seed=0, pilot_draws=30, labelled=False, **how)
    votes = read_votes(tmp_path)
    others = 30 + 1 + 1  # pilot draws, the image without noise, and the probe
    assert len(seen) == sum(votes.draws_of(i) for i in range(3)) + 3 * others
    for position, sample in enumerate(Images(3)):
        pilot = one.votes(sample.image, 30, noise_seed=0, image_id=sample.id, stream="pilot")
        stored = as_array(votes.row(position, adaptive=True).pilot, plan.rule)
        assert np.array_equal(stored, as_array(pilot, plan.rule))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"draws": 5, "adaptive": TOP_K}, "give one of the two"),
        ({"draws": 5, "labelled": False}, "give pilot_draws"),
        ({"draws": 5, "pilot_draws": -1}, "pilot_draws must be 0 or more"),
        ({"draws": 5, "pilot_draws": 1.5}, "pilot_draws must be a whole number, not 1.5"),
        ({"adaptive": SETS}, "does not fit this smoother"),
        ({"adaptive": AdaptivePlan(TopK(2, 4), (0.5,))}, "k_prime = 4, but these votes keep 3 labels per draw"),
        ({"adaptive": AdaptivePlan(TopK(6, 1), (0.5,))}, "k must be .* at most the number of labels, 5"),
        ({"adaptive": AdaptivePlan(TopK(2, 1), ())}, "radii"),
        ({"adaptive": AdaptivePlan(TopK(2, 1), (-0.1,))}, "none negative"),
        ({"adaptive": AdaptivePlan(TopK(2, 1), (0.5,), 0)}, "draws"),
        ({"adaptive": AdaptivePlan(TopK(2, 1), (0.5,), alpha=2.0)}, "alpha"),
        ({"adaptive": AdaptivePlan(TopK(2, 1), (0.5,), forecast_margin=-1.0)}, "forecast_margin"),
    ],
)
def test_refused_arguments(tmp_path, arguments, message):
    """What makes no sense is refused before anything is written."""
    with pytest.raises(InvalidInputError, match=message):
        vote_dataset(smoother(k_max=3), Images(2), tmp_path / "votes", noise_seed=0, **arguments)
    assert not (tmp_path / "votes").exists()
