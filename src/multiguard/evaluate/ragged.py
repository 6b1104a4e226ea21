"""Rows of different lengths in one array: what is claimed of a million images takes little more than its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

Row = TypeVar("Row")


class Ragged(Sequence[Row]):
    """A read-only sequence of rows: arrays of floats, or tuples of whole numbers, some of which may be None.

    >>> rows = Ragged.of([(3, 1), (), None, (2,)], np.int64)
    >>> rows[0], rows[2], len(rows), rows == ((3, 1), (), None, (2,)), rows.lengths.tolist()
    ((3, 1), None, 4, True, [2, 0, 0, 1])
    """

    def __init__(self, values: NDArray[Any], offsets: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> None:
        self.values = values  # of all rows, one after the other
        self.offsets = np.asarray(offsets, np.int64)  # (rows + 1,), where each row begins and ends
        self.missing = missing if missing is not None and missing.any() else None  # (rows,), those that are None

    @classmethod
    def of(cls, rows: Iterable[Any], dtype: DTypeLike) -> Ragged[Any]:
        """These rows, one portion after the other in memory."""
        builder = RaggedBuilder(dtype)
        builder.extend(rows)
        return builder.build()

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(rows,) the length of each row."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        row: Row = self._row(range(len(self))[index])
        return row

    def __iter__(self) -> Iterator[Row]:
        return (self._row(position) for position in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(other) != len(self):
            return False
        pairs = zip(self, other, strict=True)
        return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows, {len(self.values)} values)"

    def _row(self, position: int) -> Any:
        if self.missing is not None and self.missing[position]:
            return None
        row = self.values[self.offsets[position] : self.offsets[position + 1]]
        return row if row.dtype.kind == "f" else tuple(row.tolist())


class RaggedBuilder:
    """Rows that come some at a time."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._values: list[NDArray[Any]] = []
        self._lengths: list[NDArray[np.int32]] = []
        self._missing: list[NDArray[np.bool_]] = []

    def extend(self, rows: Iterable[Any]) -> None:
        """Add these rows."""
        given = list(rows)
        known = [() if row is None else row for row in given]
        lengths = np.fromiter(map(len, known), np.int32, len(known))
        flat: Iterator[Any] = (value for row in known for value in row)
        self._values.append(np.fromiter(flat, self._dtype, int(lengths.sum())))
        self._lengths.append(lengths)
        self._missing.append(np.fromiter((row is None for row in given), np.bool_, len(given)))

    def build(self) -> Ragged[Any]:
        """All rows so far."""
        lengths = np.concatenate([np.empty(0, np.int32), *self._lengths])
        values = np.concatenate([np.empty(0, self._dtype), *self._values])
        missing = np.concatenate([np.empty(0, np.bool_), *self._missing])
        return Ragged(values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), missing)
