"""Names that a user mistypes: the nearest known one is said."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


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
