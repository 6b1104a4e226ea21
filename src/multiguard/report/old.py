"""Figures and tables of an earlier report, which must not stay among those of a new one."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

from multiguard.report import canvas, tables
from multiguard.report.family import FamilyKey

NAMES: tuple[str, ...] = (*get_args(FamilyKey), "labels", "draws")


def remove_old(figure_folder: Path, table_folder: Path, written: Iterable[Path]) -> None:
    """No figure and no table of a name that reports use is left but those just written; other files stay.

    Args:
        figure_folder: Where `draw_figures` wrote.
        table_folder: Where `write_tables` wrote.
        written: What they returned.
    """
    kept = set(written)
    for path in (*_ours(figure_folder, canvas.FORMATS), *_ours(table_folder, tables.FORMATS)):
        if path not in kept and path.is_file():
            path.unlink()


def _ours(folder: Path, formats: Iterable[str]) -> Iterator[Path]:
    return (folder / f"{name}.{kind}" for kind in formats for name in NAMES)
