"""Packing loses no row, repeats none and keeps their order."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from multiguard.smooth.batches import Job, pack, whole


def job(number: int, draws: int, size: int) -> Job:
    return Job(str(number), bytes(16), torch.zeros(size), 10 * number, draws)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 2)), max_size=8), st.integers(1, 16))
def test_every_row_once_in_order(plan, size):
    jobs = [job(number, draws, shape) for number, (draws, shape) in enumerate(plan)]
    batches = list(pack(map(whole, jobs), lambda _: size))
    rows = [(batch.image_of(row), int(draw)) for batch in batches for row, draw in enumerate(batch.draws())]
    assert rows == [(j.image_id, j.first_draw + i) for j in jobs for i in range(j.draws)]
    assert all(batch.rows <= size for batch in batches)
    assert all(len({segment.job.image.shape for segment in batch.segments}) == 1 for batch in batches)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(1, 16))
def test_batches_of_one_shape_are_full_but_the_last(draws, size):
    batches = list(pack((whole(job(i, n, 1)) for i, n in enumerate(draws)), lambda _: size))
    assert [batch.rows for batch in batches[:-1]] == [size] * (len(batches) - 1)
    assert sum(batch.rows for batch in batches) == sum(draws)


def test_a_batch_can_be_packed_again_in_smaller_ones():
    (batch,) = pack(map(whole, [job(0, 5, 1), job(1, 4, 1)]), lambda _: 16)
    parts = list(pack(batch.segments, lambda _: 3))
    assert [part.rows for part in parts] == [3, 3, 3]
    assert np.array_equal(np.concatenate([part.draws() for part in parts]), batch.draws())


def test_a_size_that_falls_is_asked_anew():
    sizes = iter([8, 4, 4])
    assert [b.rows for b in pack([whole(job(0, 16, 1))], lambda _: next(sizes))] == [8, 4, 4]


def test_jobs_are_taken_only_when_their_rows_are_due():
    taken = []

    def jobs():
        for number in range(100):
            taken.append(number)
            yield whole(job(number, 10, 1))

    next(pack(jobs(), lambda _: 10))
    assert taken == [0]
