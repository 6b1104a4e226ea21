"""Every kind of votes comes back as it was written, and none is read as another."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.votes.vote_runs import ADAPTIVE, THRESHOLD, UNLABELLED, provenance, reseal, row, write

from multiguard.errors import InvalidInputError, VotesError
from multiguard.io.files import file_checksum
from multiguard.votes import LabelSets, VoteRow, VotesWriter, read_votes

KINDS = {
    "pilot": {"pilot_draws": 5},
    "threshold": THRESHOLD,
    "threshold, pilot": {**THRESHOLD, "pilot_draws": 5},
    "unlabelled": UNLABELLED,
    "adaptive": ADAPTIVE,
    "adaptive, unlabelled, threshold": {
        **THRESHOLD,
        **UNLABELLED,
        **ADAPTIVE,
        "stopping": {"radii": (0.5,), "alpha": 0.01, "threshold": 0.5},
    },
}


def same(one, other) -> bool:
    if isinstance(one, LabelSets):
        return np.array_equal(one.packed, other.packed) and one.num_labels == other.num_labels
    return (one is None and other is None) or np.array_equal(one, other)


@pytest.mark.parametrize("labels", [3, 8, 20, 257])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_read_back(tmp_path, kind, labels):
    run = provenance(labels=labels, **KINDS[kind])
    write(tmp_path, run)
    votes = read_votes(tmp_path)
    assert votes.provenance == run
    assert (votes.rule, votes.looks) == (run.rule, run.looks)
    for position in range(len(votes)):
        found, expected = votes.row(position, looks=votes.looks), row(run, position)
        assert (found.image_id, found.labels) == (expected.image_id, expected.labels)
        assert found.image_hash == expected.image_hash == votes.image_hashes[position]
        assert same(found.votes, expected.votes)
        assert same(found.pilot, expected.pilot)
        assert found.draws == expected.draws == votes.draws_of(position)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_any_kind_is_taken_up_where_it_stopped(tmp_path, kind):
    run = provenance(**KINDS[kind])
    write(tmp_path, run, shards=[1])
    assert VotesWriter(tmp_path, run, shard_images=2).missing() == [0, 2]


def test_votes_of_the_threshold_rule_are_never_read_as_ranks(tmp_path):
    run = provenance(pilot_draws=5, **THRESHOLD)
    write(tmp_path, run)
    votes = read_votes(tmp_path)
    assert np.array_equal(votes.hits(1), row(run, 1).votes.hits())
    assert np.array_equal(votes.pilot_hits(1), row(run, 1).pilot.hits())
    for read in (votes.ranked, votes.pilot_ranked, lambda position: votes.row(position).ranked):
        with pytest.raises(VotesError, match=r"threshold rule.*--rule threshold"):
            read(1)


def test_ranked_votes_are_never_read_as_sets(tmp_path):
    run = provenance(pilot_draws=5)
    write(tmp_path, run)
    votes = read_votes(tmp_path)
    assert np.array_equal(votes.pilot_ranked(1), row(run, 1).pilot)
    for read in (votes.hits, votes.pilot_hits, lambda position: votes.row(position).hits):
        with pytest.raises(VotesError, match=r"top-k rule.*--rule top-k"):
            read(1)


@pytest.mark.parametrize("rule", [{}, THRESHOLD])
def test_adaptive_votes_are_never_read_as_if_n_were_fixed(tmp_path, rule):
    run = provenance(pilot_draws=5, **ADAPTIVE, **rule)
    write(tmp_path, run)
    votes = read_votes(tmp_path)
    read = votes.hits if rule else votes.ranked
    for one in (read, votes.row, lambda _: list(votes)):
        with pytest.raises(VotesError, match=r"adaptive run.*alpha must be split"):
            one(0)
    with pytest.raises(VotesError, match=r"looks \(2, 4, 7\), not \(2, 7\)"):
        read(0, looks=(2, 7))
    assert [len(read(position, looks=votes.looks)) for position in range(5)] == [2, 4, 7, 2, 4]
    assert len(votes.pilot_hits(0) if rule else votes.pilot_ranked(0)) == 5


def test_votes_of_a_fixed_n_have_no_looks(tmp_path):
    write(tmp_path, provenance())
    votes = read_votes(tmp_path)
    assert votes.looks is None
    with pytest.raises(VotesError, match=r"looks None, not \(7,\)"):
        votes.ranked(0, looks=(7,))


def test_a_run_without_labels_has_none_to_give(tmp_path):
    write(tmp_path, provenance(**UNLABELLED))
    with pytest.raises(VotesError, match=r"no ground truth.*--no-labels"):
        _ = read_votes(tmp_path).labels


def test_a_run_without_pilot_draws_has_none_to_give(tmp_path):
    write(tmp_path, provenance())
    with pytest.raises(VotesError, match="no pilot draws"):
        read_votes(tmp_path).pilot_ranked(0)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("threshold", {"score_threshold": 0.4}),
        ("pilot", {"pilot_draws": 6}),
        ("adaptive", {"looks": (3, 4, 7)}),
        ("adaptive", {"look_fractions": (0.5, 0.25, 0.25)}),
        ("adaptive", {"stopping": {**ADAPTIVE["stopping"], "radii": (0.25, 0.75)}}),
        ("pilot", {"labelled": False}),
    ],
)
def test_a_folder_of_another_run_is_refused(tmp_path, kind, changes):
    write(tmp_path, provenance(**KINDS[kind]), shards=[0])
    with pytest.raises(VotesError, match=f"another run: {next(iter(changes))} differ"):
        VotesWriter(tmp_path, provenance(**{**KINDS[kind], **changes}), shard_images=2)


@pytest.mark.parametrize(("kind", "field"), [("threshold", "rule"), ("adaptive", "looks"), ("unlabelled", "labelled")])
def test_runs_of_different_kinds_never_share_a_folder(tmp_path, kind, field):
    write(tmp_path, provenance(), shards=[0])
    with pytest.raises(VotesError, match=f"another run: {field}"):
        VotesWriter(tmp_path, provenance(**KINDS[kind]), shard_images=2)


def test_integer_sigma(tmp_path):
    """A sigma given as an integer, which JSON reads back as a float, is the same run."""
    write(tmp_path, provenance(sigma=1, trained_sigma=1), shards=[0])
    write(tmp_path, provenance(sigma=1.0, trained_sigma=1))
    assert read_votes(tmp_path).provenance == provenance(sigma=1, trained_sigma=1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule": "majority"}, "rule.*'majority'"),
        ({"rule": "threshold"}, "k_max"),
        ({"k_max": None}, "k_max"),
        ({"score_threshold": 0.5}, "score_threshold"),
        ({**THRESHOLD, "score_threshold": None}, "score_threshold"),
        ({**THRESHOLD, "score_threshold": 1.0}, "strictly between 0 and 1"),
        ({"labelled": False}, "pilot draws"),
        ({"pilot_draws": -1}, "pilot_draws"),
        ({**ADAPTIVE, "stopping": None}, "belong together"),
        ({**ADAPTIVE, "looks": None}, "belong together"),
        ({**ADAPTIVE, "look_fractions": None}, "belong together"),
        ({**ADAPTIVE, "draws": 8}, "draws = 8"),
        ({**ADAPTIVE, "looks": (4, 2, 7)}, "must grow"),
        ({**ADAPTIVE, "looks": (0, 4, 7)}, "must grow"),
        ({**ADAPTIVE, "looks": ()}, "must grow"),
        ({**ADAPTIVE, "look_fractions": (0.5, 0.5)}, "one above 0 for each look"),
        ({**ADAPTIVE, "look_fractions": (0.5, 0.5, 0.0)}, "one above 0 for each look"),
        ({**ADAPTIVE, "look_fractions": (0.5, 0.5, 0.5)}, "1 together at most"),
    ],
)
def test_a_provenance_that_contradicts_itself_is_refused(tmp_path, changes, message):
    with pytest.raises(InvalidInputError, match=message):
        provenance(**changes)
    write(tmp_path, provenance())
    reseal(tmp_path / "manifest.json", lambda stored: stored["provenance"].update(changes))
    with pytest.raises(VotesError, match=f"damaged: .*{message}"):
        read_votes(tmp_path)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("threshold", lambda r: VoteRow(r.image_id, r.labels, np.zeros((7, 3), np.uint8)), "another rule"),
        ("threshold", lambda r: VoteRow(r.image_id, r.labels, LabelSets(r.votes.packed[:, :1], 8)), "shape"),
        ("adaptive", lambda r: VoteRow(r.image_id, r.labels, np.zeros((3, 3), np.uint8)), "3 draws, where one of"),
        ("pilot", lambda r: VoteRow(r.image_id, r.labels, r.votes), "no pilot draws, where 5"),
        ("pilot", lambda r: VoteRow(r.image_id, r.labels, r.votes, r.pilot[:4]), "shape"),
        (
            "pilot",
            lambda r: VoteRow(r.image_id, r.labels, r.votes, LabelSets.from_hits(np.eye(20) > 0)),
            "another rule",
        ),
        ("unlabelled", lambda r: VoteRow(r.image_id, (1,), r.votes, r.pilot), "run without labels"),
    ],
)
def test_rows_that_do_not_belong_are_refused(tmp_path, kind, change, message):
    run = provenance(**KINDS[kind])
    writer = VotesWriter(tmp_path, run, shard_images=1)
    with pytest.raises(InvalidInputError, match=f"image-é-0.*{message}"):
        writer.write(0, [change(row(run, 0))])
    assert writer.missing() == [0, 1, 2, 3, 4]


def test_votes_with_pilot_draws_do_not_belong_to_a_run_without(tmp_path):
    writer = VotesWriter(tmp_path, provenance(), shard_images=1)
    with pytest.raises(InvalidInputError, match="some pilot draws, where 0"):
        writer.write(0, [row(provenance(pilot_draws=5), 0)])


def forge(folder, column: str, change) -> None:
    """Alter one column of the first image of the first shard, and make the manifest vouch for it."""
    path = folder / "votes-00000.parquet"
    table = pq.read_table(path)
    values = table.column(column).to_pylist()
    values[0] = change(values[0])
    position = table.schema.get_field_index(column)
    pq.write_table(
        table.set_column(position, column, pa.array(values, table.schema.types[position])), path, row_group_size=1
    )
    reseal(folder / "manifest.json", lambda stored: stored["shards"]["0"].update(sha256=file_checksum(path)))


@pytest.mark.parametrize(
    ("kind", "column", "change", "message"),
    [
        ("threshold", "votes", lambda v: v[:-1], "20 bytes of votes, where 7 draws of sets of 20 labels"),
        ("threshold", "votes", lambda v: v[:-1] + b"\xff", "beyond the 20"),
        ("adaptive", "draws", lambda v: 3, r"3 draws, where one of the looks \(2, 4, 7\)"),
        ("adaptive", "draws", lambda v: 4, "6 bytes of votes, where 4 draws of 3"),
        ("pilot", "pilot", lambda v: v[:-1], "14 bytes of votes, where 5 draws of 3"),
        ("pilot", "pilot", lambda v: None, "no pilot draws, where 5"),
        ("unlabelled", "labels", lambda v: [1], "run without labels"),
        ("adaptive", "labels", lambda v: [20], r"outside 0 \.\. 19"),
    ],
)
def test_damaged_rows_are_said(tmp_path, kind, column, change, message):
    write(tmp_path, provenance(**KINDS[kind]))
    forge(tmp_path, column, change)
    looks = KINDS[kind].get("looks")
    with pytest.raises(VotesError, match=f"image-é-0.*{message}"):
        read_votes(tmp_path).row(0, looks=looks)
