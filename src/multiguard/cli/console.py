"""What commands print: text without control characters, and progress bars that are silent without a terminal."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Column
from rich.text import Text

Report = Callable[[str, int, int], None]
# Control characters except newline, marks that change the direction of text, and lone surrogates.
_STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def printable(text: str) -> str:
    """The text with every control character written as its number."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def echo(text: str, *, err: bool = False) -> None:
    """Print a text on stdout or stderr, without control characters."""
    typer.echo(printable(text), err=err)


class PlainConsole(Console):
    """A console that prints text as it is: no markup, no guessed colours, no control characters."""

    def __init__(self) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, soft_wrap=True)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments to print; styles are added around them later."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(printable(part.text), part.style)


class _Rate(ProgressColumn):
    """The rate: units per second."""

    def __init__(self, unit: str) -> None:
        super().__init__(table_column=_one_line())
        self._unit = unit

    def render(self, task: Task) -> Text:
        """The rate of the last moments."""
        speed = task.finished_speed or task.speed
        shown = f"{speed:,.{0 if speed >= 10 else 1}f}" if speed else "-"
        return Text(f"{shown} {self._unit}/s", style="cyan")


def _one_line(most: int | None = None) -> Column:
    """A column that is cut rather than wrapped."""
    return Column(no_wrap=True, overflow="ellipsis", max_width=most)


def print_line(line: str) -> None:
    """Print a line on stdout, above the progress bar if there is one: rich replaces sys.stdout, unlike click's echo."""
    sys.stdout.write(f"{printable(line)}\n")


@contextmanager
def progress_bar(unit: str) -> Iterator[Report]:
    """A function to call with (what is being done, done, total); the bar is shown while the block lasts.

    Args:
        unit: What is counted.
    """
    console = Console()
    columns = (
        TextColumn("{task.description}", markup=False, table_column=_one_line(most=22)),
        BarColumn(bar_width=14),
        MofNCompleteColumn(table_column=_one_line()),
        _Rate(unit),
        TimeRemainingColumn(table_column=_one_line()),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def report(doing: str, done: int, total: int) -> None:
            if doing not in tasks:
                for before in tasks.values():
                    progress.update(before, visible=False)
                tasks[doing] = progress.add_task(printable(doing), total=total, completed=done)
            progress.update(tasks[doing], completed=done, total=total)

        yield report
