"""Names in messages (the nearest known one is suggested) and in CSV cells (no spreadsheet runs them)."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from multiguard.errors import InvalidInputError

# A spreadsheet takes a cell that starts like this for a formula, also in full-width characters; an apostrophe in front
# makes it text. Names that already have apostrophes in front of such a sign get one more, so that it can be undone.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_COMPARED = 30  # characters of a name; to compare two takes up to the product of their lengths
_SUGGESTED = 10  # unknown names of one list that get a hint; to find one takes a comparison with every known name


def is_unicode(name: str) -> bool:
    r"""Whether a file can hold the name; Python reads a file's name that is not UTF-8 as half characters.

    >>> is_unicode("café"), is_unicode("caf\udce9")
    (True, False)
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    """Return the name as a CSV cell, with an apostrophe in front where a spreadsheet would run it as a formula.

    >>> as_cell("=1+1"), as_cell("cat")
    ("'=1+1", 'cat')
    """
    return f"'{name}" if _FORMULA.match(name) else name


def unknown_name(kind: str, given: str, known: Iterable[str]) -> str:
    """Return a message for an unknown name, with the nearest known name or the list of known names.

    >>> unknown_name("split", "trian", ["train", "val"])
    "unknown split 'trian': did you mean 'train'?"
    """
    names = list(known)
    folded = {_folded(name): name for name in names}
    near = get_close_matches(_folded(given), folded, n=1, cutoff=0.5)
    hint = f"did you mean '{folded[near[0]]}'?" if near else f"known: {shorten_names(names)}"
    return f"unknown {kind} '{given}': {hint}"


class UnknownNames:
    """Messages for the unknown names of one list, however many: the first few different ones get a hint.

    >>> messages = UnknownNames("label", ["cat", "dog"])
    >>> messages.of(["cta", "dgo"])
    "unknown label 'cta': did you mean 'cat'? unknown label 'dgo': did you mean 'dog'?"
    """

    def __init__(self, kind: str, known: Iterable[str]) -> None:
        self._kind, self._known, self._hints = kind, list(known), dict[str, str]()

    def of(self, names: Sequence[str]) -> str:
        """The messages for the first of these names, and the number of the others."""
        for name in names[:_SUGGESTED]:
            if name not in self._hints and len(self._hints) < _SUGGESTED:
                self._hints[name] = unknown_name(self._kind, name, self._known)
        shown = [self._hints.get(name, f"unknown {self._kind} '{name}'") for name in names[:_SUGGESTED]]
        text, others = "; ".join(shown).replace("?;", "?"), len(names) - len(shown)
        return f"{text} and {others} more unknown {self._kind}s" if others else text


def _folded(name: str) -> str:
    return name.casefold()[:_COMPARED]


def shorten_names(names: Sequence[str], most: int = 12) -> str:
    """Return the first names, and the total if there are more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} in all)"
