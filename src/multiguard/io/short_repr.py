"""Reprs that fit a screen, however much an object holds."""

import reprlib
from dataclasses import fields
from typing import Any

from numpy.typing import NDArray

_MOST_VALUES = 8  # of an array, shown in full


class _Short(reprlib.Repr):
    """The standard library's short reprs, and arrays by their shape."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxtuple, self.maxlist, self.maxdict, self.maxstring, self.maxother = 2, 4, 4, 4, 60, 80

    def repr_ndarray(self, array: NDArray[Any], level: int) -> str:
        return str(array.tolist()) if array.size <= _MOST_VALUES else f"<{array.dtype} {array.shape}>"

    def repr_Tensor(self, tensor: Any, level: int) -> str:  # noqa: N802 - reprlib calls it by the type's name
        return f"<{tensor.dtype} {tuple(tensor.shape)}>"


def short_repr(instance: Any) -> str:
    """The `__repr__` of a dataclass that may hold much: each field in a few words, arrays by their shape."""
    short = _Short()
    parts = (f"{each.name}={_one_line(short.repr(getattr(instance, each.name)))}" for each in fields(instance))
    return f"{type(instance).__name__}({', '.join(parts)})"


def _one_line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 120 else f"{words[:100]}...{words[-15:]}"
