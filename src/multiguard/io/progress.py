"""Progress: a bar on a terminal and in a notebook, or else now and then a line."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any

Report = Callable[[str, int, int], None]
_EVERY = 30.0  # seconds from line to line


@contextmanager
def progress_bar(unit: str, *, show: bool = True, clean: Callable[[str], str] = str) -> Iterator[Report]:
    """A function to call with (what is being done, done, total); the bar is there while the block lasts.

    Where no bar can be drawn, a line on stderr says every 30 seconds how far it is. `clean` makes text printable.
    """
    if not show:
        yield lambda doing, done, total: None
        return
    from rich.console import Console

    console = Console()
    jupyter = console.is_jupyter and find_spec("ipywidgets") is not None
    drawn = jupyter or (console.is_terminal and not console.is_jupyter)
    with _bars(console) if drawn else nullcontext() as bars:
        tasks: dict[str, Any] = {}  # of a bar its id, otherwise when it began and when the last line was printed

        def report(doing: str, done: int, total: int) -> None:
            now = time.monotonic()
            if bars is None:
                began, last = tasks.setdefault(doing, (now, now))
                if now - last >= _EVERY and 0 < done < total:
                    tasks[doing] = began, now
                    left = time_words((now - began) / done * (total - done))
                    sys.stderr.write(f"{clean(doing)}: {done} of {total} {unit}, about {left} left\n")
                return
            if doing not in tasks:
                for before in tasks.values():
                    bars.update(before, visible=False)
                tasks[doing] = bars.add_task(clean(doing), total=total, completed=done, rate="")
            speed = bars.tasks[-1].speed or 0
            rate = f"{speed:,.{0 if speed >= 10 else 1}f}" if speed else "-"
            bars.update(tasks[doing], completed=done, total=total, rate=f"{rate} {unit}/s")

        yield report


def time_words(seconds: float) -> str:
    """A duration in one unit.

    >>> time_words(5), time_words(90), time_words(9000)
    ('5 seconds', '1.5 minutes', '2.5 hours')
    """
    units = {"hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
    unit = next((name for name, length in units.items() if seconds > length), "seconds")
    return f"{round(seconds / units[unit], 1):g} {unit}"


def _bars(console: Any) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    def one_line(most: int | None = None) -> Column:
        return Column(no_wrap=True, overflow="ellipsis", max_width=most)

    columns = (
        TextColumn("{task.description}", markup=False, table_column=one_line(22)),
        BarColumn(bar_width=14),
        MofNCompleteColumn(table_column=one_line()),
        TextColumn("{task.fields[rate]}", markup=False, style="cyan", table_column=one_line()),
        TimeRemainingColumn(table_column=one_line()),
    )
    return Progress(*columns, console=console, transient=True)
