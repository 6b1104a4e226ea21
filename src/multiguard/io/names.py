"""Names that a user mistypes, of which the nearest known one is said; and names that a spreadsheet must not run."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

# A cell that begins so would be taken for a formula by a spreadsheet, in wide letters too; an apostrophe before it
# makes it text. Names that have apostrophes before such a sign get one more, so that one can be taken away again.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def as_cell(name: str) -> str:
    """The name as the cell of a CSV, with an apostrophe before it where a spreadsheet would run it as a formula."""
    return f"'{name}" if _FORMULA.match(name) else name


def from_cell(cell: str) -> str:
    """The name that `as_cell` made this cell of."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def unknown_name(kind: str, given: str, known: Iterable[str]) -> str:
    """One sentence naming what was given, what is known, and the known name nearest to it."""
    names = list(known)
    folded = {name.casefold(): name for name in names}
    near = get_close_matches(given.casefold(), folded, n=1, cutoff=0.5)
    hint = f"did you mean '{folded[near[0]]}'?" if near else f"known: {shortened(names)}"
    return f"unknown {kind} '{given}': {hint}"


def shortened(names: Sequence[str], most: int = 12) -> str:
    """The first names, and how many there are where not all are said."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} in all)"
