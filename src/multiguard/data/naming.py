"""Names of labels, splits and datasets: looked up exactly, and the nearest known name said when missing."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from multiguard.errors import DataError


def unknown_name(kind: str, given: str, known: Iterable[str]) -> str:
    """One sentence naming what was given, what is known, and the known name nearest to it."""
    names = list(known)
    folded = {name.casefold(): name for name in names}
    near = get_close_matches(given.casefold(), folded, n=1, cutoff=0.5)
    hint = f"did you mean '{folded[near[0]]}'?" if near else f"known: {_shortened(names)}"
    return f"unknown {kind} '{given}': {hint}"


def label_positions(names: Sequence[str], source: str) -> dict[str, int]:
    """The index of each label name; a repeated name raises `DataError`."""
    positions = {name: index for index, name in enumerate(names)}
    if len(positions) < len(names):
        repeated = next(name for i, name in enumerate(names) if positions[name] != i)
        raise DataError(f"{source}: the label '{repeated}' is listed twice; label names must be unique")
    return positions


def label_indices(names: Iterable[str], positions: Mapping[str, int], source: str) -> tuple[int, ...]:
    """The sorted indices of these label names, without repetition; an unknown one raises `DataError`."""
    found = set()
    for name in names:
        if name not in positions:
            raise DataError(f"{source}: {unknown_name('label', name, positions)}")
        found.add(positions[name])
    return tuple(sorted(found))


def _shortened(names: Sequence[str], most: int = 12) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} in all)"
