"""Progress on the terminal: how much is done, how fast, how long still. Silent where there is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

Report = Callable[[int, int], None]


class _Rate(ProgressColumn):
    """How many of the counted things a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        """The rate of the last moments."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} {self._unit}/s" if speed else f"- {self._unit}/s", style="cyan")


@contextmanager
def shown(doing: str, unit: str) -> Iterator[Report]:
    """A function to call with (done, total); what it is told is drawn on stderr while the block lasts.

    Args:
        doing: What is going on, in a word or two.
        unit: What is counted.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(unit), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(doing, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
