"""Columns of an Arrow table, read row by row: what is known of a million images takes little more than its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Row = TypeVar("Row")
_ROWS_AT_A_TIME = 1 << 15  # that are held as objects
_SHOWN = 4  # rows, in a repr


class Rows(Sequence[Row]):
    """A read-only view of an Arrow array: texts, arrays of floats, or tuples of whole numbers; None where one is null.

    >>> rows = Rows.of([(3, 1), (), None, (2,)], np.int64)
    >>> rows[0], rows[2], len(rows), rows == ((3, 1), (), None, (2,)), rows.lengths.tolist()
    ((3, 1), None, 4, True, [2, 0, 0, 1])
    >>> Rows.of(["cat", None, "café"], str)
    Rows('cat', None, 'café')
    """

    def __init__(self, array: Any) -> None:
        self.array = array  # a pyarrow Array of strings, or of lists of numbers

    @staticmethod
    def of(rows: Iterable[Any], dtype: DTypeLike) -> Rows[Any]:
        """These rows: texts if the dtype is `str`, otherwise lists of such numbers."""
        import pyarrow as pa

        if isinstance(rows, Rows):
            return rows
        kind: Any = pa.string() if dtype is str else pa.large_list(pa.from_numpy_dtype(np.dtype(dtype)))
        left = iter(rows)
        portions = iter(lambda: list(islice(left, _ROWS_AT_A_TIME)), [])
        found = pa.chunked_array([pa.array(portion, kind) for portion in portions], kind).combine_chunks()
        return Rows(found)

    @cached_property
    def values(self) -> NDArray[Any]:
        """The numbers of all rows, one row after the other."""
        return np.asarray(self.array.flatten())

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """(rows + 1,) where each row begins and ends in `values`."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(rows,) the length of each row, 0 for one that is None."""
        import pyarrow.compute as pc

        return np.asarray(pc.fill_null(pc.list_value_length(self.array), 0), np.int64)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """(rows,) whether each row is None."""
        return np.asarray(self.array.is_null())

    def take(self, positions: Sequence[int] | NDArray[np.int64]) -> Rows[Row]:
        """The rows at these positions, in their order."""
        return Rows(self.array.take(np.asarray(positions, np.int64)))

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:
        places = range(len(self))[index]
        return self.take(places) if isinstance(places, range) else self._read(places)

    def __iter__(self) -> Iterator[Row]:
        if self._are_lists():
            yield from map(self._read, range(len(self)))
            return
        for start in range(0, len(self), _ROWS_AT_A_TIME):
            yield from self.array.slice(start, _ROWS_AT_A_TIME).to_pylist()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(other) != len(self):
            return False
        if isinstance(other, Rows) and not self._are_lists():
            return bool(self.array.equals(other.array))
        if isinstance(other, Rows):
            columns = ((getattr(each, name) for each in (self, other)) for name in ("offsets", "values", "missing"))
            return all(np.array_equal(*pair) for pair in columns)
        pairs = zip(self, other, strict=True)
        return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [*map(repr, islice(self, _SHOWN)), *(["..."] if len(self) > _SHOWN else [])]
        return f"Rows({', '.join(shown)})"

    def _are_lists(self) -> bool:
        return hasattr(self.array, "flatten")

    def _read(self, position: int) -> Any:
        found = self.array[position]
        if not self._are_lists() or not found.is_valid:
            return found.as_py()
        row = self.values[self.offsets[position] : self.offsets[position + 1]]
        return row if row.dtype.kind == "f" else tuple(row.tolist())
