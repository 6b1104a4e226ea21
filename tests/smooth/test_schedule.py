"""Packing keeps every row once and in order; images and draw numbers are checked before they are packed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiguard.errors import InvalidInputError
from multiguard.smooth.engine import image_array
from multiguard.smooth.stream import Batch, Job, Segment, Sizer, check_draws, pack


def job(number: int, draws: int, size: int = 1) -> Job:
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
    jobs = [job(number, draws, shape) for number, (draws, shape) in enumerate(plan)]
    batches = list(pack(map(all_draws, jobs), lambda _: size))
    assert all_rows(batches) == [(j.image_id, j.first_draw + i) for j in jobs for i in range(j.draws)]
    assert all(batch.rows <= size for batch in batches)
    assert all(len({segment.job.image.shape for segment in batch.segments}) == 1 for batch in batches)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(1, 16))
def test_full_batches(draws, size):
    """Batches of one shape are full except for the last."""
    batches = list(pack((all_draws(job(i, n)) for i, n in enumerate(draws)), lambda _: size))
    assert [batch.rows for batch in batches[:-1]] == [size] * (len(batches) - 1)
    assert sum(batch.rows for batch in batches) == sum(draws)


def test_smaller_batches():
    """A batch can be packed again in smaller ones, or split by images and then by halves."""
    (batch,) = pack(map(all_draws, [job(0, 5), job(1, 4)]), lambda _: 16)
    packed = list(pack(batch.segments, lambda _: 3))
    assert [part.rows for part in packed] == [3, 3, 3]
    halves = [half for image in batch.parts() for half in image.parts()]
    assert [part.rows for part in halves] == [2, 3, 2, 2]
    assert all_rows(packed) == all_rows(halves) == all_rows([batch])
    assert Batch((Segment(job(0, 1), 0, 1),)).parts() == []


def test_shrinking_size():
    """The size is read for each batch, since it may fall."""
    sizes = iter([8, 4, 4])
    assert [batch.rows for batch in pack([all_draws(job(0, 16))], lambda _: next(sizes))] == [8, 4, 4]


def test_lazy_jobs():
    """Jobs are taken only when their rows are due."""
    taken = []

    def jobs():
        for number in range(100):
            taken.append(number)
            yield all_draws(job(number, 10))

    next(pack(jobs(), lambda _: 10))
    assert taken == [0]


def test_size_limit():
    """The limit of rows never rises, and half of a batch is half of the rows that were really run."""
    sizer = Sizer(64, on_cpu=True)
    sizer.halve(8)
    sizer.halve(64)
    assert sizer.rows(job(0, 1)) == 4


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
