"""A classifier that fails on some draws: the image to blame is named or recorded, whatever the batches."""

import random

import numpy as np
import pytest
import torch
from bad_draws import COUNT, DRAWS, PROBLEMS, BadDraws, failing, smoother_of
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from toy import Images, linear, streamed

from multiguard.errors import ImageFailure, InvalidInputError, ModelError
from multiguard.models import load
from multiguard.smooth import DEVICE_PHILOX, HOST_PHILOX, Smoother, vote_dataset
from multiguard.smooth.engine import image_array
from multiguard.smooth.stream import Batch, Job, Segment, check_draws, pack
from multiguard.votes import read_votes

SOURCES = pytest.mark.parametrize("source", [HOST_PHILOX, DEVICE_PHILOX])


def random_bad_draws(seed: int) -> BadDraws:
    """Some draws of some images, each with a problem; one image is never touched."""
    rng = random.Random(seed)
    images = rng.sample(range(COUNT), rng.randint(1, COUNT - 1))
    return {(i, rng.randrange(DRAWS)): rng.choice(list(PROBLEMS)) for i in images for _ in range(rng.randint(1, 3))}


def outcomes(bad: BadDraws, batch_size: int) -> list:
    run = smoother_of(failing(bad), batch_size)
    jobs = (run.job(sample.image, DRAWS, noise_seed=0, image_id=sample.id) for sample in Images(COUNT))
    return [
        outcome if isinstance(outcome, ImageFailure) else outcome.tolist()
        for _, outcome in run.run(jobs, record_failures=True)
    ]


def expected_outcomes(bad: BadDraws) -> list:
    """The first bad draw of each image, or its votes, one image at a time."""
    exact, first = smoother_of(failing({})), {image: (draw, kind) for (image, draw), kind in sorted(bad.items())[::-1]}
    return [
        ImageFailure(sample.id, f"draw {first[i][0]}: the classifier {PROBLEMS[first[i][1]]}")
        if i in first
        else exact.votes(sample.image, DRAWS, noise_seed=0, image_id=sample.id).tolist()
        for i, sample in enumerate(Images(COUNT))
    ]


@pytest.mark.parametrize("seed", range(6))
def test_failures_per_draw(seed):
    """Who fails, and every other vote, does not depend on the batches."""
    bad = random_bad_draws(seed)
    expected = expected_outcomes(bad)
    for batch_size in (1, 5, 13, 29, 60):
        assert outcomes(bad, batch_size) == expected, batch_size


@pytest.mark.usefixtures("late_votes")
@pytest.mark.parametrize("seed", range(6))
def test_failures_of_late_votes(seed):
    """Votes that arrive some batches later, as from a GPU, blame the same draws."""
    bad = random_bad_draws(seed)
    expected = expected_outcomes(bad)
    for batch_size in (1, 5, 29):
        assert outcomes(bad, batch_size) == expected, batch_size


def test_rows_failing_together():
    """Rows that fail only in a larger batch get their votes in smaller ones; without recording they raise."""
    exact = linear()

    def shy(images: Tensor) -> Tensor:
        if len(images) > 3:
            raise ValueError("too many rows")
        return exact(images)

    sample, run = Images(1)[0], smoother_of(shy, 16)
    ((_, votes),) = run.run([run.job(sample.image, DRAWS, noise_seed=0, image_id=sample.id)], record_failures=True)
    assert np.array_equal(votes, smoother_of(failing({})).votes(sample.image, DRAWS, noise_seed=0, image_id=sample.id))
    with pytest.raises(ModelError, match=r"image 'image-0': the classifier failed: ValueError: too many rows"):
        run.votes(sample.image, DRAWS, noise_seed=0, image_id=sample.id)


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("batch_size", [1, 7, 60])
def test_error_with_draw(kind, batch_size):
    """Without recording, the error names the image and the first bad draw."""
    run = smoother_of(failing({(3, 4): kind, (3, 9): kind}), batch_size)
    with pytest.raises(ModelError) as raised:
        streamed(run, ((sample.id, sample.image) for sample in Images(COUNT)), DRAWS)
    assert str(raised.value) == f"image 'image-3', draw 4: the classifier {PROBLEMS[kind]}."


BROKEN = {
    "NaN": (lambda x: torch.full((len(x), 3), float("nan")), "NaN or infinite"),
    "count": (lambda x: torch.zeros(len(x), 4), r"shape \(\d+, 4\)"),
    "shape": (lambda x: torch.zeros(len(x)), r"shape \(\d+,\)"),
    "rows": (lambda x: torch.zeros(1, 3), r"shape \(1, 3\)"),
    "mapping": (lambda x: {"scores": x.flatten(1)[:, :3]}, "dict"),
    "integers": (lambda x: torch.zeros(len(x), 3, dtype=torch.int64), "int64"),
    "exception": (lambda x: x.view(17), "RuntimeError"),
}


@SOURCES
@pytest.mark.parametrize("options", [{}, {"score_threshold": 0.5}], ids=["ranks", "sets"])
@pytest.mark.parametrize("kind", BROKEN)
def test_broken_classifier(kind, options, source):
    """A classifier that breaks its contract is named with the image."""
    scores, message = BROKEN[kind]
    f = load(scores, labels=["a", "b", "c"], output="logits")
    with pytest.raises(ModelError, match=f"(?s)image 'cat'.*{message}"):
        Smoother(f, sigma=0.5, device="cpu", noise_source=source, **options).votes(
            np.zeros((3, 4, 4)), 8, noise_seed=0, image_id="cat"
        )


def breaking(after: int, error):
    """The exact linear classifier, broken after some batches: it then raises this error, or returns NaN."""
    calls, exact = iter(range(10**6)), linear()

    def scores(images: Tensor) -> Tensor:
        if next(calls) < after:
            return exact(images)
        if error is None:
            return torch.full((len(images), 5), float("nan"))
        raise error

    return scores


@pytest.mark.parametrize("after", [0, 8])  # the probe takes five batches
@pytest.mark.parametrize(
    "error",
    [
        ValueError("no answer"),
        None,
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
        RuntimeError("Triton Error [CUDA]: illegal instruction"),
        type("InductorError", (Exception,), {})("no kernel"),
    ],
    ids=lambda error: f"{type(error).__name__} {str(error)[:12]}",
)
def test_broken_process(tmp_path, error, after):
    """A process that breaks is no image's failure: nothing is recorded, and a working process resumes."""
    options = {"draws": 20, "noise_seed": 0, "shard_images": 1, "on_error": "record"}
    with pytest.raises(ModelError, match=r"image 'image-\d'"):
        vote_dataset(smoother_of(breaking(after, error)), Images(4), tmp_path, **options)
    assert read_votes(tmp_path, partial=True).failures == ()
    vote_dataset(smoother_of(failing({})), Images(4), tmp_path, **options)
    assert (len(read_votes(tmp_path)), read_votes(tmp_path).failures) == (4, ())


def test_earlier_success():
    """An error that also comes for a draw that worked before blames no image, and names that draw's image."""
    run = smoother_of(breaking(2, ValueError("no answer")), 4)
    jobs = [run.job(sample.image, 4, noise_seed=0, image_id=sample.id) for sample in Images(3)]
    with pytest.raises(ModelError, match=r"'image-2', draw 0.*no answer; it now also fails on image 'image-1'"):
        list(run.run(jobs, record_failures=True))


class Cramped:
    """A classifier with room for a few rows only, as a device with little memory."""

    def __init__(self, room: int) -> None:
        self.room, self.sizes = room, []

    def __call__(self, images: Tensor) -> Tensor:
        self.sizes.append(len(images))
        if len(images) > self.room:
            raise torch.OutOfMemoryError("no room")
        return images.flatten(1)[:, :5]


@SOURCES
@pytest.mark.parametrize("options", [{}, {"score_threshold": 0.5}], ids=["ranks", "sets"])
def test_halved_batches(source, options):
    """A batch without memory is halved with the same noise, and the smaller size stays."""
    cramped, image = Cramped(room=5), Images(1)[0].image
    votes = []
    for scores in (cramped, Cramped(room=1000)):
        f = load(scores, labels=list("abcde"), output="logits").module()
        one = Smoother(f, sigma=0.5, batch_size=32, device="cpu", noise_source=source, **options)
        votes += [each for _, each in one.run([one.job(image, 100, noise_seed=0, image_id="a")])]
    assert np.array_equal(*(each.packed if options else each for each in votes))
    assert cramped.sizes[:4] == [32, 16, 8, 4]
    assert set(cramped.sizes[4:]) == {4}


def test_no_memory():
    """No memory for a single row is an error that names the image."""
    with pytest.raises(ModelError, match=r"'cat'.*has no memory for even one noisy image"):
        smoother_of(Cramped(room=0)).votes(Images(1)[0].image, 10, noise_seed=0, image_id="cat")


def test_bounded_memory():
    """Memory does not grow with the number of draws."""
    largest = []

    def watch(images: Tensor) -> Tensor:
        largest.append(images.untyped_storage().nbytes())
        return images.flatten(1)[:, :5]

    image = np.zeros((3, 4, 4), dtype=np.float32)
    assert len(smoother_of(watch, 32).votes(image, 2000, noise_seed=0, image_id="a")) == 2000
    assert max(largest) == 32 * image.nbytes


def test_steady_batches(tmp_path):
    """On a CPU votes do not depend on what shares a batch, so a run in any parts ends with the same bits.

    The scores of this network are almost equal, and their last bits change with the size of a batch.
    """
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(48, 400), nn.ReLU(), nn.Linear(400, 1, bias=False))

    def scores(images: Tensor) -> Tensor:
        found = wide(images)
        return torch.cat([found, wide(images.flip(0)).flip(0), *[found * 0] * 3], dim=1)

    def votes(folder, shard_images, calls):
        for stop in calls:
            options = {"draws": 11, "noise_seed": 0, "shard_images": shard_images, "stop": stop}
            vote_dataset(smoother_of(scores, 64), Images(6), folder, **options)
        found = read_votes(folder)
        return np.stack([found.ranked(position) for position in range(6)])

    def after(shards):
        left = iter(range(shards))
        return lambda: next(left, None) is None

    together = votes(tmp_path / "together", 6, [None])
    assert np.array_equal(votes(tmp_path / "parts", 1, [after(1), after(2), after(1), None]), together)


def job_of(number: int, draws: int, size: int = 1) -> Job:
    return Job(str(number), bytes(16), np.zeros(size, np.float32), 10 * number, draws)


def all_draws(each: Job) -> Segment:
    return Segment(each, 0, each.draws)


def all_rows(batches: list[Batch]) -> list[tuple[str, int]]:
    """The image and the draw of each row."""
    return [
        (batch.segments[slot].job.image_id, int(draw))
        for batch in batches
        for slot, draw in zip(batch.slots(), batch.draws(), strict=True)
    ]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 2)), max_size=8), st.integers(1, 16))
def test_rows_in_order(plan, size):
    """Every row is packed once, in order, in batches of one shape and of at most `size` rows."""
    jobs = [job_of(number, draws, shape) for number, (draws, shape) in enumerate(plan)]
    batches = list(pack(map(all_draws, jobs), lambda _: size))
    assert all_rows(batches) == [(j.image_id, j.first_draw + i) for j in jobs for i in range(j.draws)]
    assert all(batch.rows <= size for batch in batches)
    assert all(len({segment.job.image.shape for segment in batch.segments}) == 1 for batch in batches)


def test_smaller_batches():
    """A batch can be packed again in smaller ones, or split by images and then by halves."""
    (batch,) = pack(map(all_draws, [job_of(0, 5), job_of(1, 4)]), lambda _: 16)
    packed = list(pack(batch.segments, lambda _: 3))
    assert [part.rows for part in packed] == [3, 3, 3]
    halves = [half for image in batch.parts() for half in image.parts()]
    assert [part.rows for part in halves] == [2, 3, 2, 2]
    assert all_rows(packed) == all_rows(halves) == all_rows([batch])
    assert Batch((Segment(job_of(0, 1), 0, 1),)).parts() == []


def test_lazy_jobs():
    """Jobs are taken only when their rows are due."""
    taken = []

    def jobs():
        for number in range(100):
            taken.append(number)
            yield all_draws(job_of(number, 10))

    next(pack(jobs(), lambda _: 10))
    assert taken == [0]


IMAGE = np.zeros((3, 4, 4), dtype=np.float32)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (IMAGE.tolist(), r"must be a NumPy array or a tensor of numbers, not a list; use np\.asarray"),
        (np.full((3, 4, 4), "x"), "must be a NumPy array or a tensor of numbers, not an array of <U1"),
        (np.full((3,), None), "must be a NumPy array or a tensor of numbers, not an array of object"),
        (np.full((3, 4, 4), np.nan, dtype=np.float32), "contains a NaN"),
        (np.zeros((3, 4, 4), dtype=np.int32), "must be uint8 or floating point, not int32"),
        (np.zeros((3, 0, 4), dtype=np.float32), r"has shape \(3, 0, 4\); it must contain values"),
        (np.zeros((3, 9, 9), dtype=np.uint8), r"has shape \(3, 9, 9\), but the classifier takes .* 4 x 4 pixels"),
    ],
)
def test_refused_images(image, message):
    """An image that cannot be classified is refused by its id."""
    assert image_array("cat", IMAGE, (4, 4)).dtype == np.float32
    with pytest.raises(InvalidInputError, match=f"^image 'cat' {message}"):
        image_array("cat", image, (4, 4))


@pytest.mark.parametrize("draws", [0, -5, 5.0, None, (1 << 32) + 1])
def test_draw_numbers(draws):
    """The number of draws is at least 1, and every index fits into 32 bits."""
    assert check_draws(np.int64(1 << 32)) == 1 << 32
    with pytest.raises(InvalidInputError, match="draws"):
        check_draws(draws)
    with pytest.raises(InvalidInputError, match="first_draw = 4294967295 with draws = 2 does not fit"):
        check_draws(2, (1 << 32) - 1)
