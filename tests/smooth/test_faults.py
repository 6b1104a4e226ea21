"""A classifier that fails on some draws: the guilty image is named, or recorded while the others go on.

The classifiers here know every noisy image by its bytes, and so fail on chosen draws of chosen images, whatever
else lies in the batch.
"""

import random
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor
from toy import Images, linear

from multiguard.certify import look_plan
from multiguard.data.sample import Sample
from multiguard.errors import ImageError, InvalidInputError, ModelError, VotesError
from multiguard.models import load_classifier
from multiguard.smooth import AdaptivePlan, Smoother, streaming, vote_dataset
from multiguard.smooth.faults import Fault
from multiguard.votes import ImageFailure, read_votes

DRAWS, PILOT, COUNT, SIGMA = 12, 5, 5, 0.5
RAISES = "cannot be sampled: it failed with ValueError: 1 rows, one of them cursed"
SAID = {
    "raise": RAISES,
    "nan": "returned a score that is NaN or infinite",
    "inf": "returned a score that is NaN or infinite",
    "few": "cannot be sampled: it returned shape (1, 4), not a floating-point tensor of shape (1, 5), one score per "
    "image and label",
}


def smoother_of(scores, batch_size=16, name="cursed", **options) -> Smoother:
    classifier = load_classifier(scores, labels=list("abcde"), output="logits", name=name)
    return Smoother(classifier, sigma=SIGMA, k_max=3, device="cpu", batch_size=batch_size, **options)


@cache
def noisy(stream="certify", draws=DRAWS, count=COUNT) -> dict[bytes, tuple[int, int]]:
    """For each noisy image, by its bytes, which image and which draw it is."""
    seen: list[bytes] = []

    def watch(images: Tensor) -> Tensor:
        seen.extend(row.numpy().tobytes() for row in images)
        return torch.zeros(len(images), 5)

    images, watched = Images(count), smoother_of(watch)
    for sample in (images[i] for i in range(count)):
        watched.votes(sample.image, draws, seed=0, image_id=sample.id, stream=stream)
    return {row: divmod(place, draws) for place, row in enumerate(seen)}


def cursed(curses: dict[bytes, str]):
    """The exact linear classifier, but for these noisy images."""
    exact = linear()

    def scores(images: Tensor) -> Tensor:
        found = [curses.get(row.numpy().tobytes()) for row in images]
        if "raise" in found:
            raise ValueError(f"{len(images)} rows,\n one of them cursed")
        out = exact(images)
        for row, curse in zip(out, found, strict=True):
            if curse in ("nan", "inf"):
                row[2] = float(curse)
        return out[:, :-1] if "few" in found else out

    return scores


def curses_on(where: dict[tuple[int, int], str], **which) -> dict[bytes, str]:
    return {row: where[place] for row, place in noisy(**which).items() if place in where}


def drawn_curses(seed: int) -> dict[tuple[int, int], str]:
    """Some draws of some images, each with its way to fail; one image is never touched."""
    rng = random.Random(seed)
    guilty = rng.sample(range(COUNT), rng.randint(1, COUNT - 1))
    return {(i, rng.randrange(DRAWS)): rng.choice(list(SAID)) for i in guilty for _ in range(rng.randint(1, 3))}


def expected_faults(where: dict[tuple[int, int], str]) -> dict[int, Fault]:
    return {i: Fault(draw, SAID[kind]) for (i, draw), kind in sorted(where.items(), reverse=True)}


def attempted(where, batch_size, **options) -> list:
    run = smoother_of(cursed(curses_on(where)), batch_size, **options)
    samples = [Images(COUNT)[i] for i in range(COUNT)]
    jobs = (run.job(sample.image, DRAWS, seed=0, image_id=sample.id) for sample in samples)
    return [outcome if isinstance(outcome, Fault) else outcome.tolist() for _, outcome in run.attempt(jobs)]


@pytest.mark.parametrize("seed", range(12))
def test_who_fails_and_every_other_vote_do_not_depend_on_the_batches(seed):
    where = drawn_curses(seed)
    good = [
        smoother_of(cursed({})).votes(sample.image, DRAWS, seed=0, image_id=sample.id).tolist()
        for sample in map(Images(COUNT).__getitem__, range(COUNT))
    ]
    faults = expected_faults(where)
    for batch_size in (1, 2, 5, 12, 13, 29, 60, 100):
        assert attempted(where, batch_size) == [faults.get(i, good[i]) for i in range(COUNT)], batch_size


class Landed:
    """An event that has come."""

    def synchronize(self) -> None:
        pass


@pytest.mark.parametrize("seed", range(12))
def test_votes_that_land_late_as_from_a_gpu_blame_the_same_draws(seed, monkeypatch):
    where = drawn_curses(seed)
    at_once = attempted(where, 1)
    monkeypatch.setattr(streaming, "_fly", lambda batch, votes: streaming._Flight(batch, votes, Landed()))
    for batch_size in (1, 2, 5, 29):
        assert attempted(where, batch_size) == at_once


def test_rows_that_fail_only_in_company_have_their_votes():
    exact = linear()

    def shy(images: Tensor) -> Tensor:
        if len(images) > 3:
            raise ValueError("too many of us")
        return exact(images)

    sample = Images(1)[0]
    run = smoother_of(shy, 16)
    ((_, votes),) = run.attempt([run.job(sample.image, DRAWS, seed=0, image_id=sample.id)])
    assert np.array_equal(votes, smoother_of(cursed({})).votes(sample.image, DRAWS, seed=0, image_id=sample.id))
    with pytest.raises(ModelError, match=r"image 'image-0': the classifier cannot be sampled: .*too many of us"):
        run.votes(sample.image, DRAWS, seed=0, image_id=sample.id)


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("batch_size", [1, 7, 60])
def test_a_stop_names_the_image_and_the_draw_at_fault(kind, batch_size):
    run = smoother_of(cursed(curses_on({(3, 4): kind, (3, 9): kind})), batch_size)
    samples = [Images(COUNT)[i] for i in range(COUNT)]
    with pytest.raises(ModelError) as raised:
        list(run.stream(((sample.id, sample.image) for sample in samples), DRAWS, seed=0))
    assert str(raised.value) == f"image 'image-3', draw 4: the classifier {SAID[kind]}."


def test_a_classifier_that_breaks_its_contract_everywhere_stops_whatever_was_asked(tmp_path):
    few = smoother_of(lambda images: linear()(images)[:, :4], name="few")
    with pytest.raises(ModelError, match=r"image-0.*it returned shape \(\d+, 4\).*and so it does for a black image"):
        vote_dataset(few, Images(3), tmp_path, draws=4, seed=0, on_error="record")


def test_a_dead_device_is_no_images_fault(tmp_path):
    def dead(images: Tensor) -> Tensor:
        raise RuntimeError("CUDA error: device-side assert triggered")

    with pytest.raises(ModelError, match="device-side assert"):
        vote_dataset(smoother_of(dead), Images(3), tmp_path, draws=4, seed=0, on_error="record")


def breaking(after: int, how):
    """The exact linear classifier, which is broken from so many batches on: it then raises this, or gives NaN."""
    calls, exact = iter(range(10**6)), linear()

    def scores(images: Tensor) -> Tensor:
        if next(calls) < after:
            return exact(images)
        if how is None:
            return torch.full((len(images), 5), float("nan"))
        raise how

    return scores


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize(
    "how",
    [
        ValueError("sulking"),
        None,
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"),
        RuntimeError("Triton Error [CUDA]: illegal instruction"),
        type("InductorError", (Exception,), {})("no kernel"),
    ],
    ids=lambda how: f"{type(how).__name__} {str(how)[:12]}",
)
def test_a_process_that_breaks_is_no_images_fault(tmp_path, how, after):
    """Nothing is recorded, and a process that is whole goes on to the votes of an untroubled run."""
    asked = {"draws": 20, "seed": 0, "shard_images": 1}
    broken = smoother_of(breaking(after, how), name="l")
    with pytest.raises(ModelError, match=r"image 'image-\d'"):
        vote_dataset(broken, Images(4), tmp_path, **asked, on_error="record")
    assert read_votes(tmp_path, partial=True).failures == ()
    vote_dataset(smoother_of(cursed({}), name="l"), Images(4), tmp_path, **asked, on_error="record")
    assert (len(read_votes(tmp_path)), read_votes(tmp_path).failures) == (4, ())


def test_what_fails_now_and_went_well_before_is_named():
    run = smoother_of(breaking(2, ValueError("sulking")), 4)
    jobs = [run.job(Images(3)[i].image, 4, seed=0, image_id=f"image-{i}") for i in range(3)]
    with pytest.raises(ModelError, match=r"'image-2', draw 0.*sulking, and so it does now for image 'image-1'"):
        list(run.attempt(jobs))


def test_a_size_that_the_classifier_cannot_take_is_the_images_fault(tmp_path):
    """A black image of that size fails as well; an image that went well before does not."""
    exact = linear()

    def scores(images: Tensor) -> Tensor:
        if images.shape[-1] == 9:
            raise ValueError("nine")
        return exact(images)

    class OneOdd(Images):
        def __getitem__(self, index: int, /) -> Sample:
            sample = super().__getitem__(index)
            return Sample(sample.id, np.zeros((3, 9, 9), dtype=np.uint8), ()) if index == 1 else sample

    vote_dataset(smoother_of(scores), OneOdd(3), tmp_path, draws=4, seed=0, on_error="record")
    assert [failure.image_id for failure in read_votes(tmp_path).failures] == ["image-1"]


def test_a_hundred_failures_in_a_row_are_no_images_fault(tmp_path):
    fails = [True] * 99 + [False] + [True] * 100
    images = Images(len(fails))
    known = {sample.image.tobytes(): fails[i] for i, sample in enumerate(map(images.__getitem__, range(len(fails))))}
    seen: list[bool] = []

    class Watched(Images):
        def __getitem__(self, index: int, /) -> Sample:
            return images[index]

    exact = linear()

    def scores(images: Tensor) -> Tensor:
        if not grey(images):
            return exact(images)
        nearest = (images[0] * 255).round().clamp(0, 255).to(torch.uint8).numpy().tobytes()
        seen.append(known[nearest])
        return exact(images) * (float("nan") if seen[-1] else 1)

    classifier = load_classifier(scores, labels=list("abcde"), output="logits", name="most")
    run = Smoother(classifier, sigma=1e-5, k_max=3, device="cpu", batch_size=1)
    with pytest.raises(ModelError, match=r"100 images in a row failed, the last of them 'image-199', draw 0"):
        vote_dataset(run, Watched(len(fails)), tmp_path, draws=1, seed=0, shard_images=50, on_error="record")
    assert len(read_votes(tmp_path, partial=True).failures) == 149


LOOKS = look_plan(160, first=20)
KINDS = {
    "fixed": {"draws": DRAWS},
    "pilot": {"draws": DRAWS, "pilot_draws": PILOT},
    "adaptive": {"adaptive": AdaptivePlan(LOOKS, (0.25,), k=2, k_prime=1, alpha=0.05)},
}


@pytest.mark.parametrize("batch_size", [1, 11, 64])
@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_run_has_the_votes_of_an_untroubled_one_but_for_the_guilty(tmp_path, kind, batch_size):
    asked = {**KINDS[kind], "seed": 0, "shard_images": 2}
    curses = {
        **curses_on({(1, 3): "raise", (4, 0): "nan"}),
        **(curses_on({(2, 1): "nan", (4, 2): "nan"}, stream="pilot", draws=PILOT) if kind == "pilot" else {}),
        **(curses_on({(2, 25): "nan", (3, 50): "raise"}, draws=160) if kind == "adaptive" else {}),
    }
    done: list[tuple[int, int]] = []
    troubled = smoother_of(cursed(curses), batch_size, name="exact")
    vote_dataset(troubled, Images(5), tmp_path / "some", **asked, on_error="record", progress=lambda *c: done.append(c))
    vote_dataset(smoother_of(cursed({}), name="exact"), Images(5), tmp_path / "all", **asked)
    some, every = read_votes(tmp_path / "some"), read_votes(tmp_path / "all")
    beyond = {every.ids[i]: every.draws_of(i) for i in range(5)}
    raises = RAISES.replace("1 rows", f"{batch_size} rows")  # the draw alone, in a batch of the usual size
    reasons = {"image-1": f"draw 3: the classifier {raises}", "image-4": f"draw 0: the classifier {SAID['nan']}"}
    if kind == "pilot":
        reasons |= {name: f"pilot draw {d}: the classifier {SAID['nan']}" for name, d in pilot_faults().items()}
    if kind == "adaptive" and beyond["image-2"] > 25:
        reasons["image-2"] = f"draw 25: the classifier {SAID['nan']}"
    if kind == "adaptive" and beyond["image-3"] > 50:
        reasons["image-3"] = f"draw 50: the classifier {raises}"
    assert some.failures == tuple(ImageFailure(name, reasons[name]) for name in sorted(reasons))
    for position, image_id in enumerate(some.ids):
        own, other = some.row(position, looks=some.looks), every.row(int(image_id[-1]), looks=every.looks)
        assert np.array_equal(own.ranked, other.ranked)
        assert own.pilot is None or np.array_equal(own.pilot, other.pilot)
    assert done == [(number, 5) for number in range(1, 6)]
    assert len(some.ids) + len(some.failures) == 5


def pilot_faults() -> dict[str, int]:
    return {"image-2": 1, "image-4": 2}


def test_the_adaptive_case_has_images_that_fail_at_a_later_look(tmp_path):
    """What the test above rests on."""
    vote_dataset(smoother_of(cursed({})), Images(5), tmp_path, **KINDS["adaptive"], seed=0)
    votes = read_votes(tmp_path)
    assert max(votes.draws_of(2), votes.draws_of(3)) > 50


def grey(images: Tensor) -> bool:
    """Whether these are noisy copies of an image: those of a black one are darker."""
    return bool((images.mean(dim=(1, 2, 3)) > 0.25).any())


def test_a_run_in_which_all_fail_is_no_success_now_or_again(tmp_path):
    def broken(images: Tensor) -> Tensor:
        if grey(images):
            raise OverflowError("no such thing")
        return linear()(images)

    asked = {"draws": 3, "seed": 0, "on_error": "record", "shard_images": 2}
    for _ in range(2):
        with pytest.raises(
            VotesError, match=r"not one of 3 images.*'image-0': draw 0: .*OverflowError.*tries them anew"
        ):
            vote_dataset(smoother_of(broken, name="same"), Images(3), tmp_path, **asked)
    vote_dataset(smoother_of(cursed({}), name="same"), Images(3), tmp_path, **{**asked, "on_error": "stop"})
    assert len(read_votes(tmp_path)) == 3


class Odd(Images):
    """One image is of a size that the classifier does not take, one holds no pixels, one is gone."""

    def __getitem__(self, index: int, /) -> Sample:
        sample = super().__getitem__(index)
        if index == 1:
            return Sample(sample.id, np.zeros((3, 9, 9), dtype=np.uint8), sample.labels)
        if index == 2:
            return Sample(sample.id, np.full((3, 4, 4), 2, dtype=np.float32), sample.labels)
        if index == 3:
            raise ImageError("c/d.jpg", "no such image")
        return sample


def test_images_that_the_classifier_does_not_take_are_failures_too(tmp_path):
    classifier = load_classifier(cursed({}), labels=list("abcde"), output="logits", name="l", image_size=(4, 4))
    run = Smoother(classifier, sigma=SIGMA, k_max=3, device="cpu")
    asked = {"draws": 4, "pilot_draws": 2, "seed": 0}
    with pytest.raises(InvalidInputError, match=r"image 'image-1' is \(9, 9\)"):
        vote_dataset(run, Odd(5), tmp_path / "stop", **asked)
    vote_dataset(run, Odd(5), tmp_path / "on", **asked, on_error="record")
    votes = read_votes(tmp_path / "on")
    assert votes.ids == ("image-0", "image-4")
    assert [failure.reason.split(";")[0] for failure in votes.failures] == [
        "image 'image-1' is (9, 9) (height, width), but the classifier takes (4, 4)",
        "holds values from 2 to 2",
        "no such image",
    ]
