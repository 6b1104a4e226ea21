"""Sets of labels are packed without loss, and cannot be mistaken for ranked votes."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.votes.vote_runs import KINDS, provenance, row, votes_of

from multiguard.data.image import image_hash
from multiguard.errors import InvalidInputError
from multiguard.votes import LabelSets, VoteRow
from multiguard.votes.types import check_row, decode_votes, encode_votes, packed_width, vote_dtype

hits_of_any_size = hnp.arrays(np.bool_, st.tuples(st.integers(1, 20), st.sampled_from([1, 7, 8, 9, 20, 256, 257, 300])))


@given(hits_of_any_size)
def test_packing(hits):
    """Packing loses nothing, and label i is bit i % 8 of byte i // 8, as documented."""
    sets = LabelSets.from_hits(hits)
    assert len(sets) == len(hits)
    assert sets.packed.shape == (len(hits), packed_width(hits.shape[1]))
    assert np.array_equal(sets.hits(), hits)
    for label in range(hits.shape[1]):
        assert np.array_equal(sets.packed[:, label // 8] >> (label % 8) & 1, hits[:, label])


@pytest.mark.parametrize("labels", [1, 7, 9, 257])
def test_bit_beyond_the_labels(labels):
    """A bit beyond the labels is refused; the last label's is not."""
    packed = np.zeros((3, packed_width(labels)), np.uint8)
    packed[2, -1] = 1 << (labels % 8)
    with pytest.raises(InvalidInputError, match=f"beyond {labels - 1}"):
        LabelSets(packed, labels)
    packed[2, -1] = 1 << ((labels - 1) % 8)
    assert LabelSets(packed, labels).hits()[2].tolist() == [False] * (labels - 1) + [True]


@pytest.mark.parametrize(
    "packed",
    [np.zeros((3, 2), np.uint8), np.zeros((3, 1), np.uint16), np.zeros(3, np.uint8), np.zeros((3, 0), np.uint8)],
)
def test_wrong_shape_of_sets(packed):
    """Bytes of another shape or dtype are refused."""
    with pytest.raises(InvalidInputError, match=r"expected uint8 of shape \(draws, 1\) for 5 labels"):
        LabelSets(packed, 5)


@pytest.mark.parametrize(("labels", "dtype"), [(1, np.uint8), (256, np.uint8), (257, np.uint16), (65536, np.uint16)])
def test_vote_dtype(labels, dtype):
    """A label index takes one byte, or two."""
    assert vote_dtype(labels) is dtype
    with pytest.raises(InvalidInputError, match="between 1 and 65536 labels"):
        vote_dtype(65536 + labels)


@pytest.mark.parametrize("labels", [3, 8, 257])
@pytest.mark.parametrize("kind", ["top-k", "threshold"])
def test_bytes_of_votes(kind, labels):
    """Votes are decoded from their bytes as they were; other lengths are refused."""
    run = provenance(labels=labels, **KINDS[kind])
    votes = votes_of(run, 7, seed=0)
    decoded = decode_votes(encode_votes(votes), 7, run)
    assert encode_votes(decoded) == encode_votes(votes)
    assert type(decoded) is type(votes)
    for draws in (6, 8):
        with pytest.raises(InvalidInputError, match=f"expected {draws} draws of"):
            decode_votes(encode_votes(votes), draws, run)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("top-k", lambda r: VoteRow("a", (20,), r.votes), "a label index"),
        ("top-k", lambda r: VoteRow("a", r.labels, r.votes + np.uint8(20)), "label index"),
        ("top-k", lambda r: VoteRow("a", r.labels, r.votes[:3]), "3 draws, expected 7"),
        ("top-k", lambda r: VoteRow("a", r.labels, r.votes[:, :2]), "shape"),
        ("top-k", lambda r: VoteRow("a", r.labels, r.votes.astype(np.uint16)), "uint16"),
        ("top-k", lambda r: VoteRow("a", r.labels, r.votes, r.votes), "some pilot draws, expected 0"),
        ("threshold", lambda r: VoteRow("a", r.labels, np.zeros((7, 3), np.uint8)), "another rule"),
        ("threshold", lambda r: VoteRow("a", r.labels, LabelSets(r.votes.packed[:, :1], 8)), "shape"),
        (
            "adaptive",
            lambda r: VoteRow("a", r.labels, np.zeros((3, 3), np.uint8)),
            r"3 draws, expected one of the stop",
        ),
        ("pilot", lambda r: VoteRow("a", r.labels, r.votes), "no pilot draws, expected 5"),
        ("pilot", lambda r: VoteRow("a", r.labels, r.votes, r.pilot[:4]), "shape"),
        ("pilot", lambda r: VoteRow("a", r.labels, r.votes, LabelSets.from_hits(np.eye(20) > 0)), "another rule"),
        ("unlabelled", lambda r: VoteRow("a", (1,), r.votes, r.pilot), "run without labels"),
        ("top-k", lambda r: VoteRow("a", r.labels, r.votes, bare=r.votes[:2]), "shape"),
        ("threshold", lambda r: VoteRow("a", r.labels, r.votes, bare=np.zeros((1, 3), np.uint8)), "another rule"),
    ],
)
def test_row_of_another_run(kind, change, message):
    """A row that does not fit the run is refused; one that fits is not."""
    run = provenance(**KINDS[kind])
    check_row(row(run, 0), run)
    with pytest.raises(InvalidInputError, match=message):
        check_row(change(row(run, 0)), run)


def test_image_hash():
    """The hash changes with the values, the shape and the dtype."""
    image = np.zeros((3, 2, 4), np.uint8)
    images = [image, image + np.uint8(1), image.reshape(3, 4, 2), image.astype(np.float32)]
    assert len({image_hash(one) for one in images}) == 4
    assert image_hash(image[:, ::-1].copy()[:, ::-1]) == image_hash(image)
