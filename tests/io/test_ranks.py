"""The rank of a process, from torchrun's environment."""

import pytest

from multiguard.errors import InvalidInputError
from multiguard.io.ranks import Rank, this_rank

VARIABLES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT")


@pytest.fixture
def environment(monkeypatch):
    """Sets exactly these variables of torchrun."""

    def set_variables(**variables):
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_variables


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, Rank()),
        ({"WORLD_SIZE": "1", "RANK": "7"}, Rank()),
        ({"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}, Rank(3, 4, 1)),
        ({"WORLD_SIZE": "2", "RANK": "0", "TORCHELASTIC_RESTART_COUNT": "1"}, Rank(0, 2, 0, 1)),
    ],
)
def test_rank(environment, variables, rank):
    """The rank is read from the variables; a single process has none."""
    environment(**variables)
    assert this_rank() == rank


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE is 'abc'"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0'"),
        ({"WORLD_SIZE": "2"}, "RANK must be one of 0 to 1, but it is not set"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "but it is 2"),
        ({"WORLD_SIZE": "2", "RANK": "-1"}, "RANK is '-1' in the environment"),
        ({"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "x"}, "LOCAL_RANK is 'x' in the environment"),
    ],
)
def test_bad_environment(environment, variables, message):
    """Variables that give no rank are refused by name."""
    environment(**variables)
    with pytest.raises(InvalidInputError, match=message):
        this_rank()


def test_main_process():
    """The main process may discard old work, unless torchrun has restarted it."""
    assert Rank().may_discard
    assert not Rank(restarts=1).may_discard
    assert not Rank(number=1, count=2).may_discard
