"""Rows of different lengths in one array: what is known of a million images takes little more than its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain, islice
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

Row = TypeVar("Row")
_ROWS_AT_A_TIME = 1 << 15  # that are held as objects
_SHOWN = 4  # texts, in a repr


class Ragged(Sequence[Row]):
    """A read-only sequence of rows: arrays of floats, or tuples of whole numbers, some of which may be None.

    >>> rows = Ragged.of([(3, 1), (), None, (2,)], np.int64)
    >>> rows[0], rows[2], len(rows), rows == ((3, 1), (), None, (2,)), rows.lengths.tolist()
    ((3, 1), None, 4, True, [2, 0, 0, 1])
    """

    def __init__(self, values: NDArray[Any], offsets: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> None:
        self.values = values  # of all rows, one after the other
        # (rows + 1,), where each row begins and ends
        self.offsets = offsets.astype(np.int32 if len(values) < 1 << 31 else np.int64, copy=False)
        self.missing = missing if missing is not None and missing.any() else None  # (rows,), those that are None

    @staticmethod
    def of(rows: Iterable[Any], dtype: DTypeLike) -> Ragged[Any]:
        """These rows, one portion after the other in memory; `Texts` if the dtype is `str`. Ragged rows stay as is."""
        if isinstance(rows, Ragged):
            return rows
        builder, left = RaggedBuilder(dtype), iter(rows)
        while portion := list(islice(left, _ROWS_AT_A_TIME)):
            builder.extend(portion)
        return builder.build()

    @staticmethod
    def join(parts: Sequence[Ragged[Any]]) -> Ragged[Any]:
        """The rows of all of these, in order; there must be at least one."""
        known = [np.zeros(len(part), np.bool_) if part.missing is None else part.missing for part in parts]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in parts]))])
        return type(parts[0])(np.concatenate([part.values for part in parts]), offsets, np.concatenate(known))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(rows,) the length of each row."""
        return np.diff(self.offsets).astype(np.int64, copy=False)

    def take(self, positions: Sequence[int] | NDArray[np.int64]) -> Ragged[Row]:
        """The rows at these positions, in their order."""
        chosen = np.asarray(positions, np.int64)
        begins, lengths = self.offsets[chosen], self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
        return type(self)(self.values[places], offsets, None if self.missing is None else self.missing[chosen])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        row: Row = self._row(range(len(self))[index])
        return row

    def __iter__(self) -> Iterator[Row]:
        return (self._row(position) for position in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Ragged) and type(other) is type(self):
            columns = ((getattr(each, name) for each in (self, other)) for name in ("offsets", "values", "missing"))
            return all(np.array_equal(*pair) for pair in columns)
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
        return self._read(self.values[self.offsets[position] : self.offsets[position + 1]])

    def _read(self, row: NDArray[Any]) -> Any:
        return row if row.dtype.kind == "f" else tuple(row.tolist())


class Texts(Ragged[Row]):
    """A read-only sequence of texts, some of which may be None, as the bytes of their UTF-8.

    >>> names = Ragged.of(["cat", "", None, "café"], str)
    >>> names[3], names[2], names == ("cat", "", None, "café"), names
    ('café', None, True, Texts('cat', '', None, 'café'))
    """

    def __repr__(self) -> str:
        shown = [*map(repr, islice(self, _SHOWN)), *(["..."] if len(self) > _SHOWN else [])]
        return f"Texts({', '.join(shown)})"

    def _read(self, row: NDArray[Any]) -> str:
        return row.tobytes().decode("utf-8", "surrogatepass")


def distinct(texts: Iterable[str]) -> bool:
    """Whether no text is there twice.

    Texts are compared by 16 bytes of a hash each, so one that is there twice is always found. Two different ones of the
    same hash, which nobody has ever seen, would be taken for one.

    >>> distinct(["cat", "dog"]), distinct(["cat", "dog", "cat"])
    (True, False)
    """
    hashes = (blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts)
    ordered = np.sort(np.fromiter(hashes, "S16"))
    return not np.any(ordered[1:] == ordered[:-1])


class RaggedBuilder:
    """Rows that come some at a time."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._type = Texts if dtype is str else Ragged
        self._dtype = np.dtype(np.uint8 if dtype is str else dtype)
        self._values, self._lengths, self._missing = bytearray(), bytearray(), bytearray()

    def extend(self, rows: Iterable[Any]) -> None:
        """Add these rows."""
        given = list(rows)
        if self._type is Texts:
            known = [b"" if row is None else row.encode("utf-8", "surrogatepass") for row in given]
            values = np.frombuffer(b"".join(known), self._dtype)
        else:
            known = [() if row is None else row for row in given]
            values = np.fromiter(chain.from_iterable(known), self._dtype)
        lengths = np.fromiter(map(len, known), np.int32, len(known))
        self._values += values.tobytes()
        self._lengths += lengths.tobytes()
        self._missing += bytes(row is None for row in given)

    def build(self) -> Ragged[Any]:
        """All rows; none can be added any more."""
        lengths, missing = np.frombuffer(self._lengths, np.int32), np.frombuffer(self._missing, np.bool_)
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return self._type(np.frombuffer(self._values, self._dtype), offsets, missing)
