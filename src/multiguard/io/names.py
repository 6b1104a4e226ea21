"""Names and values as text: hints at the nearest known name, CSV cells, and reprs that fit a screen."""

import re
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiguard.errors import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A spreadsheet takes a cell that starts like this for a formula, also in full-width characters; an apostrophe in front
# makes it text. Names that already have apostrophes in front of such a sign get one more, so that it can be undone.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_COMPARED = 30  # characters of a name; to compare two takes up to the product of their lengths
_MOST_VALUES = 8  # of an array, shown in full


def is_unicode(name: str) -> bool:
    r"""Whether a file can hold the name; Python reads a file's name that is not UTF-8 as half characters.

    >>> is_unicode("café"), is_unicode("caf\udce9")
    (True, False)
    """
    return not re.search("[\ud800-\udfff]", name)


def check_path(name: str, path: str | Path) -> None:
    """Raise `InvalidInputError` for a path that no file system takes.

    >>> check_path("root", "a" * 300)
    Traceback (most recent call last):
    multiguard.errors.InvalidInputError: root holds a name of 300 characters, aaaaaaaaaaaaaaaaaaaa...; expected ...
    """
    parts = [("is a path", str(path), 4096), *(("holds a name", part, 255) for part in Path(path).parts)]
    for kind, text, most in parts:
        if len(text) > most:
            raise InvalidInputError(
                f"{name} {kind} of {len(text):,} characters, {text[:20]}...; expected {most:,} at most"
            )


def as_cell(name: str) -> str:
    """The name as a CSV cell, with an apostrophe in front where a spreadsheet would run it as a formula.

    >>> as_cell("=1+1"), as_cell("cat")
    ("'=1+1", 'cat')
    """
    return f"'{name}" if _FORMULA.match(name) else name


def unknown_name(kind: str, given: str, known: Iterable[str]) -> str:
    """A message for an unknown name, with the nearest known name or the list of known names.

    >>> unknown_name("split", "trian", ["train", "val"])
    "unknown split 'trian': did you mean 'train'?"
    """
    names = list(known)
    folded = {name.casefold()[:_COMPARED]: name for name in names}
    near = get_close_matches(given.casefold()[:_COMPARED], folded, n=1, cutoff=0.5)
    hint = f"did you mean '{folded[near[0]]}'?" if near else f"known: {shorten_names(names)}"
    return f"unknown {kind} '{given}': {hint}"


def shorten_names(names: Sequence[str], most: int = 12) -> str:
    """The first names, and the total if there are more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} in all)"


class _Short(reprlib.Repr):
    """The standard library's short reprs, and arrays by their shape."""

    def repr_ndarray(self, array: "NDArray[Any]", level: int) -> str:
        return str(array.tolist()) if array.size <= _MOST_VALUES else f"<{array.dtype} {array.shape}>"

    def repr_Tensor(self, tensor: Any, level: int) -> str:  # noqa: N802 - reprlib calls it by the type's name
        return f"<{tensor.dtype} {tuple(tensor.shape)}>"


def short_repr(instance: Any) -> str:
    """The `__repr__` of a dataclass that may hold much: each field in a few words, arrays by their shape."""
    short, parts = _Short(), []
    short.maxlevel, short.maxtuple, short.maxlist, short.maxdict, short.maxstring, short.maxother = 2, 4, 4, 4, 60, 80
    for each in fields(instance):
        text = " ".join(short.repr(getattr(instance, each.name)).split())
        parts.append(f"{each.name}={text if len(text) <= 120 else f'{text[:100]}...{text[-15:]}'}")
    return f"{type(instance).__name__}({', '.join(parts)})"
