"""What commands print: text without control characters, tables, and progress bars where there is a terminal."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Column, Table

Report = Callable[[str, int, int], None]
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


@contextmanager
def progress_bar(unit: str) -> Iterator[Report]:
    """A function to call with (what is being done, done, total); the bar is shown while the block lasts.

    Args:
        unit: What is counted.
    """

    def one_line(most: int | None = None) -> Column:
        return Column(no_wrap=True, overflow="ellipsis", max_width=most)

    console = Console()
    columns = (
        TextColumn("{task.description}", markup=False, table_column=one_line(22)),
        BarColumn(bar_width=14),
        MofNCompleteColumn(table_column=one_line()),
        TextColumn("{task.fields[rate]}", markup=False, style="cyan", table_column=one_line()),
        TimeRemainingColumn(table_column=one_line()),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def report(doing: str, done: int, total: int) -> None:
            if doing not in tasks:
                for before in tasks.values():
                    progress.update(before, visible=False)
                tasks[doing] = progress.add_task(printable(doing), total=total, completed=done, rate="")
            speed = progress.tasks[-1].speed or 0
            rate = f"{speed:,.{0 if speed >= 10 else 1}f}" if speed else "-"
            progress.update(tasks[doing], completed=done, total=total, rate=f"{rate} {unit}/s")

        yield report
