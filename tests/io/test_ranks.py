"""The rank of a process, from torchrun's environment."""

import pytest

from multiguard.errors import InvalidInputError
from multiguard.io.ranks import Rank, this_rank


@pytest.mark.parametrize(
    ("count", "number", "rank"),
    [(None, None, Rank()), ("1", "7", Rank()), ("4", "3", Rank(3, 4)), ("2", "0", Rank(0, 2))],
)
def test_rank(monkeypatch, count, number, rank):
    """The rank is read from the variables; a single process has none."""
    for name, value in (("WORLD_SIZE", count), ("RANK", number)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    assert this_rank() == rank
    assert rank.is_main == (rank.number == 0)


@pytest.mark.parametrize(("count", "number"), [("abc", "0"), ("0", "0"), ("2", ""), ("2", "2"), ("2", "-1")])
def test_bad_environment(monkeypatch, count, number):
    """Variables that give no rank are refused by name."""
    monkeypatch.setenv("WORLD_SIZE", count)
    monkeypatch.setenv("RANK", number)
    with pytest.raises(InvalidInputError, match=f"WORLD_SIZE is '{count}' and RANK '{number}' in the environment"):
        this_rank()
