"""A run is extended by more draws in its folder: the votes that are there stay the first ones of each image."""

from dataclasses import replace

import pytest
from tests.votes.vote_runs import ADAPTIVE, THRESHOLD, contents, provenance, row, same, write

from multiguard.certify import Gaussian
from multiguard.errors import InvalidInputError, VotesError
from multiguard.evaluate import CertifyConfig
from multiguard.votes import VotesWriter, read_votes

RUN = provenance()
MORE = replace(RUN, draws=9)
PLAN = ADAPTIVE["stopping"]


def opened(folder, run=MORE) -> VotesWriter:
    return VotesWriter(folder, run, shard_images=2)


def extend(writer: VotesWriter, shards) -> None:
    """Write rows that continue those that the writer found."""
    for index in shards:
        rows = [row(writer.manifest.provenance, position) for position in writer.manifest.positions(index)]
        writer.write(index, rows)


@pytest.mark.parametrize("rule", [{}, THRESHOLD])
def test_extended_run(tmp_path, rule):
    """Every image has the old votes first, and the record says how many they were."""
    run = provenance(pilot_draws=3, **rule)
    write(tmp_path, run)
    before = list(read_votes(tmp_path))
    writer = opened(tmp_path, replace(run, draws=9))
    assert writer.missing() == [0, 1, 2]
    assert [same(writer.started(0)[old.image_id].votes, old.votes) for old in before[:2]] == [True, True]
    assert all(old.image_id in writer.started(i // 2) for i, old in enumerate(before))
    extend(writer, [0, 1, 2])
    votes = read_votes(tmp_path)
    assert (votes.provenance.draws, votes.provenance.earlier_draws, writer.manifest.extends) == (9, (7,), None)
    assert [votes.draws_of(i) for i in range(5)] == [9] * 5
    assert opened(tmp_path, replace(run, draws=9)).missing() == []
    assert opened(tmp_path, replace(run, draws=9)).started(0) == {}


def test_interrupted_extension(tmp_path):
    """Killed between two shards it resumes with the rest, and ends as if it had not been."""
    write(tmp_path / "whole", RUN)
    extend(opened(tmp_path / "whole"), [0, 1, 2])
    write(tmp_path / "killed", RUN)
    extend(opened(tmp_path / "killed"), [1])
    with pytest.raises(VotesError, match="has not finished"):
        read_votes(tmp_path / "killed")
    assert read_votes(tmp_path / "killed", partial=True).ids == RUN.image_ids[2:4]
    again = opened(tmp_path / "killed")
    assert again.missing() == [0, 2]
    assert list(again.started(2)) == list(RUN.image_ids[4:])
    assert again.started(1) == {}
    follower = VotesWriter(tmp_path / "killed", MORE, shard_images=2, main=False)
    assert list(follower.started(0)) == list(RUN.image_ids[:2])
    again.finish()
    assert not again.manifest.finished
    extend(again, [0, 2])
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_damaged_shard(tmp_path):
    """A damaged shard of the old run is not continued."""
    write(tmp_path, RUN)
    (tmp_path / "votes-00001.parquet").write_bytes(b"PAR1")
    writer = opened(tmp_path)
    assert (len(writer.started(0)), writer.started(1)) == (2, {})


def test_second_extension(tmp_path):
    """A run is extended again and again, but one extension is finished before the next."""
    write(tmp_path, RUN)
    extend(opened(tmp_path), [0])
    with pytest.raises(VotesError, match="being extended to 9 draws; finish that first"):
        opened(tmp_path, replace(RUN, draws=12))
    extend(opened(tmp_path), [1, 2])
    extend(opened(tmp_path, replace(RUN, draws=12)), [0, 1, 2])
    assert read_votes(tmp_path).provenance.earlier_draws == (7, 9)


@pytest.mark.parametrize(
    "changes", [{"noise_seed": 2}, {"noise": Gaussian(0.25)}, {"pilot_draws": 4}, {"versions": {"numpy": "0"}}]
)
def test_other_run(tmp_path, changes):
    """More draws of a run that differs in anything else are refused."""
    write(tmp_path, RUN)
    with pytest.raises(VotesError, match=f"{next(iter(changes))}.* differs?. Vote with --force"):
        opened(tmp_path, replace(MORE, **changes))


def test_adaptive_runs() -> None:
    """An adaptive run goes on to a larger maximum; a fixed one may become adaptive, but not the reverse."""
    adaptive = provenance(**ADAPTIVE)
    more = provenance(**{**ADAPTIVE, "draws": 9, "stops": (2, 6, 9)})
    assert more.extension_of(adaptive).stops == (2, 4, 6, 7, 9)
    assert adaptive.extension_of(adaptive) == adaptive
    assert more.extension_of(more.extension_of(adaptive)) == more.extension_of(adaptive)
    assert more.extension_of(RUN).stops == (2, 6, 7, 9)
    assert replace(more, stopping={**PLAN, "alpha": 0.01}).extension_of(adaptive) is None
    assert adaptive.extension_of(RUN) is None
    assert adaptive.extension_of(more) is None
    assert MORE.extension_of(adaptive) is None


def test_methods_of_extended_votes(tmp_path):
    """Whoever extends a run may have seen what it proved: only the method that holds at any number of draws remains."""
    write(tmp_path, RUN)
    assert CertifyConfig(1, 1).resolve(RUN).methods == ("joint",)
    extend(opened(tmp_path), [0, 1, 2])
    run = read_votes(tmp_path).provenance
    assert CertifyConfig(1, 1).resolve(run).methods == ("betting",)
    with pytest.raises(InvalidInputError, match="extended from 7 draws"):
        CertifyConfig(1, 1, methods=["joint"]).resolve(run)
