"""The record of a choice is read as it was written, or refused; what others wrote stays."""

import json
from dataclasses import fields

import pytest
from tests.evaluate.votes_cases import KINDS, random_votes, votes_of_kind

from multiguard.certify import TopK
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import candidate_rules, tune
from multiguard.results import read_tuned, write_tuned


@pytest.fixture
def tuned(tmp_path):
    return tune([random_votes(tmp_path / "votes")], [TopK(6, 1), TopK(6, 3)], 0.1)


@pytest.mark.parametrize("kind", ["top-k", "threshold"])
def test_round_trip(tmp_path, kind):
    """Every field of either rule comes back."""
    votes = votes_of_kind(tmp_path / "votes", **KINDS[kind])
    rules = candidate_rules(votes.provenance, 3 if kind == "top-k" else None)
    tuned = tune([votes], rules, 0.0, alpha=0.1, metric="f1")
    write_tuned(tmp_path / "tuned.json", tuned)
    back = read_tuned(tmp_path / "tuned.json")
    assert {one.name: getattr(back, one.name) for one in fields(back)} == {
        one.name: getattr(tuned, one.name) for one in fields(tuned)
    }
    assert back.others(votes).ids == tuned.others(votes).ids


def test_replaced_record(tuned, tmp_path):
    """The same choice again is no conflict; another one needs force; a file of somebody else is never replaced."""
    path = tmp_path / "tuned.json"
    write_tuned(path, tuned)
    write_tuned(path, tuned)
    other = tune([random_votes(tmp_path / "votes")], [TopK(6, 2)], 0.1)
    with pytest.raises(InvalidInputError, match="holds another choice; --force replaces it"):
        write_tuned(path, other)
    write_tuned(path, other, force=True)
    assert read_tuned(path).best.rule == TopK(6, 2)
    for path in (tmp_path / "mine.json", tmp_path / "link.json"):
        if path.name == "mine.json":
            path.write_text("{}")
        else:
            path.symlink_to(tmp_path / "tuned.json")
        with pytest.raises(InvalidInputError, match="was not written by multiguard tune"):
            write_tuned(path, other, force=True)
    assert (tmp_path / "mine.json").read_text() == "{}"


def test_damaged_record(tuned, tmp_path):
    """An edited record is refused: a tuning image that is struck out would be certified."""
    path = tmp_path / "tuned.json"
    write_tuned(path, tuned)
    whole = json.loads(path.read_text())
    for name, value in (("ids", whole["ids"][1:]), ("radius", "0.1"), ("best", 7), ("version", 1)):
        path.write_text(json.dumps({**whole, name: value}))
        with pytest.raises(DataError, match=r"tuned\.json cannot be used: "):
            read_tuned(path)
    path.write_bytes(b"\xff")
    with pytest.raises(DataError, match="cannot be used"):
        read_tuned(path)
    with pytest.raises(DataError, match=r"none\.json cannot be used: No such file"):
        read_tuned(tmp_path / "none.json")
    with pytest.raises(DataError, match="cannot be used"):
        read_tuned(tmp_path)
