"""Sets of labels are packed without loss, and are nothing that could be read as ranks."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiguard.certify import certified_radii_batch
from multiguard.errors import InvalidInputError
from multiguard.votes import LabelSets, most_frequent, packed_width, passing

hits_of_any_size = hnp.arrays(np.bool_, st.tuples(st.integers(1, 20), st.sampled_from([1, 7, 8, 9, 20, 256, 257, 300])))


@given(hits_of_any_size)
def test_packing_loses_nothing(hits):
    sets = LabelSets.from_hits(hits)
    assert len(sets) == len(hits)
    assert sets.packed.shape == (len(hits), packed_width(hits.shape[1]))
    assert np.array_equal(sets.hits(), hits)


@given(hits_of_any_size)
def test_a_label_is_the_bit_that_is_documented(hits):
    packed = LabelSets.from_hits(hits).packed
    for label in range(hits.shape[1]):
        assert np.array_equal(packed[:, label // 8] >> (label % 8) & 1, hits[:, label])


@pytest.mark.parametrize(("labels", "width"), [(1, 1), (8, 1), (9, 2), (256, 32), (257, 33)])
def test_the_width_is_as_many_bytes_as_needed(labels, width):
    assert packed_width(labels) == width


@pytest.mark.parametrize("labels", [1, 7, 9, 257])
def test_a_bit_beyond_the_labels_is_refused(labels):
    packed = np.zeros((3, packed_width(labels)), np.uint8)
    packed[2, -1] = 1 << (labels % 8)
    with pytest.raises(InvalidInputError, match=f"beyond the {labels}"):
        LabelSets(packed, labels)
    packed[2, -1] = 1 << ((labels - 1) % 8)
    assert LabelSets(packed, labels).hits()[2].tolist() == [False] * (labels - 1) + [True]


def test_all_eight_bits_of_a_full_byte_are_labels():
    assert LabelSets(np.full((1, 1), 255, np.uint8), 8).hits().all()


@pytest.mark.parametrize(
    "packed",
    [np.zeros((3, 2), np.uint8), np.zeros((3, 1), np.uint16), np.zeros(3, np.uint8), np.zeros((3, 0), np.uint8)],
)
def test_bytes_of_another_shape_are_refused(packed):
    with pytest.raises(InvalidInputError, match=r"5 labels take uint8 of shape \(draws, 1\)"):
        LabelSets(packed, 5)


def test_the_mathematics_of_ranks_refuses_sets():
    sets = LabelSets.from_hits(np.eye(4, dtype=bool)[[0, 1, 2, 3] * 5])
    with pytest.raises(InvalidInputError, match="ranked votes must be integers"):
        certified_radii_batch([sets], [[0]], TopK(1, 1), num_labels=4, sigma=0.5)


def test_the_most_frequent_labels_are_counted_in_the_first_ranks_alone():
    ranked = np.array([[2, 0, 1], [2, 1, 3], [0, 1, 3], [3, 0, 2]], np.uint8)
    assert most_frequent(ranked, k=2, k_prime=1, num_labels=5) == (2, 0)
    assert most_frequent(ranked, k=3, k_prime=2, num_labels=5) == (0, 1, 2)
    assert most_frequent(ranked, k=5, k_prime=3, num_labels=5) == (0, 1, 2, 3, 4)
    with pytest.raises(InvalidInputError, match="k_max = 3"):
        most_frequent(ranked, k=2, k_prime=4, num_labels=5)


@pytest.mark.parametrize(("threshold", "expected"), [(0.3, (1, 2)), (0.31, (1,)), (0.9, (1,)), (0.91, ())])
def test_a_label_passes_at_its_share_of_the_draws(threshold, expected):
    hits = np.zeros((10, 3), bool)
    hits[:9, 1], hits[:3, 2] = True, True
    assert passing(hits, threshold=threshold) == expected
