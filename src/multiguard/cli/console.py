"""What commands print: text without control characters, tables, and progress bars where there is a terminal."""

import re
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from multiguard.io import progress as io_progress
from multiguard.io.progress import Report

# Control characters except newline, marks that change the direction of text, and lone surrogates.
_STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def printable(text: str) -> str:
    """The text with every control character written as its number."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def echo(text: str, *, err: bool = False) -> None:
    """Print a text on stdout or stderr, without control characters."""
    typer.echo(printable(text), err=err)


def print_line(line: str) -> None:
    """Print a line on stdout, above the progress bar if there is one: rich replaces sys.stdout, unlike click's echo."""
    sys.stdout.write(f"{printable(line)}\n")


class PlainConsole(Console):
    """A console that prints text as it is: no markup, no guessed colours, no control characters."""

    def __init__(self) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, soft_wrap=True)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments to print; styles are added around them later."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(printable(part.text), part.style)


def plain_table(*heads: str, right: Iterable[str] = ()) -> Table:
    """An empty table without a frame; the columns of `right` stand on the right, after the others."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, no_wrap=True)
    for head in right:
        table.add_column(head, no_wrap=True, justify="right")
    return table


def progress_bar(unit: str) -> AbstractContextManager[Report]:
    """The progress bar of a command."""
    return io_progress.progress_bar(unit, clean=printable)
