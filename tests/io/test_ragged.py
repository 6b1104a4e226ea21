"""Rows of different lengths, and texts, in one array."""

import numpy as np
import pytest

from multiguard.io.ragged import Ragged, RaggedBuilder, Texts, distinct

NUMBERS = [(3, 1), (), None, (200,), (0,)]
NAMES = ["cat", "", None, "caf\u00e9", "\udcff"]  # the last is a file name that is not UTF-8


@pytest.mark.parametrize(("given", "dtype"), [(NUMBERS, np.uint8), (NAMES, str)])
def test_rows(given, dtype):
    """Rows come back as they were given, in portions and in parts too: empty ones, missing ones and slices."""
    builder = RaggedBuilder(dtype)
    builder.extend(given[:2])
    builder.extend(given[2:])
    whole = Ragged.of(given, dtype)
    for rows in (whole, builder.build(), Ragged.join([whole[:2], whole[2:2], whole[2:]])):
        assert type(rows) is (Texts if dtype is str else Ragged)
        assert list(rows) == given == [rows[i] for i in range(5)]
        assert rows == given
        assert tuple(given) == rows
        assert rows[1:4] == given[1:4]
        assert rows[-1] == given[-1]
        assert rows != given[::-1]
        assert rows == whole
        assert rows != whole[::-1]
        assert rows != Ragged.of([given[1] if row is None else row for row in given], dtype)
        assert rows.take([4, 0, 0, 2]) == [given[4], given[0], given[0], given[2]]
        with pytest.raises(IndexError):
            rows[5]


def test_many_rows(monkeypatch):
    """Rows that come in many portions are all there."""
    monkeypatch.setattr("multiguard.io.ragged._ROWS_AT_A_TIME", 7)
    assert Ragged.of((str(i) for i in range(50)), str) == [str(i) for i in range(50)]
    assert len(Ragged.of([], str)) == 0


def test_distinct():
    """A text that is there twice is found, wherever it is."""
    names = [f"{i}" for i in range(1000)]
    assert distinct(names)
    assert distinct([])
    for place in (0, 500, 1000):
        assert not distinct([*names[:place], "77", *names[place:]])
