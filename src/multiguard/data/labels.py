"""Label names to label indices: looked up exactly, never guessed."""

from collections.abc import Iterable, Mapping, Sequence

from multiguard.errors import DataError
from multiguard.io.names import unknown_name


def label_positions(names: Sequence[str], source: str) -> dict[str, int]:
    """The index of each label name; a repeated name raises `DataError`."""
    positions = {name: index for index, name in enumerate(names)}
    if len(positions) < len(names):
        repeated = next(name for i, name in enumerate(names) if positions[name] != i)
        raise DataError(f"{source}: the label '{repeated}' is listed twice; label names must be unique")
    return positions


def label_indices(
    names: Iterable[str], positions: Mapping[str, int], source: str, *, known: str = ""
) -> tuple[int, ...]:
    """The sorted indices of these label names, without repetition; unknown ones raise `DataError`.

    Args:
        names: The label names.
        positions: The index of each known one.
        source: Where the names stand.
        known: What to add about the known names.
    """
    given = set(names)
    unknown = [unknown_name("label", name, positions) for name in sorted(given - positions.keys())]
    if unknown:
        raise DataError(f"{source}: {'; '.join(unknown).replace('?;', '?')}{known}")
    return tuple(sorted(positions[name] for name in given))
