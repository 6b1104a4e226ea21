"""`multiguard compare`: certificates of several models or methods in one table and on one page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from multiguard.cli.options import Force, with_options
from multiguard.cli.terminal import PlainConsole, echo
from multiguard.report.config import CompareConfig

if TYPE_CHECKING:
    from rich.table import Table

    from multiguard.report.leaderboard import Leaderboard

_Runs = Annotated[list[str], Argument(help="Run folders or certificates folders, or NAME=FOLDER.", metavar="FOLDER")]
_Out = Annotated[Path | None, Option(help="The folder for the page and the table [none: only print].")]


@with_options
def compare_command(runs: _Runs, part: CompareConfig, out: _Out = None, force: Force = False) -> None:
    """Compare certificates of several models or methods on the same images.

    Differences to the baseline have 95 % confidence intervals over the images that all runs have.

    Example: multiguard compare before=runs/one after=runs/two --radius 0.25,0.5 --out runs/comparison
    """
    from multiguard.pipeline.compare_job import PAGE_NAME, CompareJob, compare
    from multiguard.report.leaderboard import CSV_NAME, JSON_NAME

    board = compare(CompareJob(runs, part, out, force))
    _show(board)
    if out is not None:
        echo(f"\n{PAGE_NAME}, {CSV_NAME} and {JSON_NAME}: {out}")


def _show(board: "Leaderboard") -> None:
    console = PlainConsole()
    console.print(f"{board.title}\n")
    console.print(_runs_table(board), soft_wrap=False)
    console.print(f"\ncertified scores in %, mean over images; differences to {board.baseline.name} in points\n")
    console.print(_scores_table(board), soft_wrap=False)
    console.print()
    for note in board.notes:
        console.print(note, soft_wrap=False)


def _runs_table(board: "Leaderboard") -> "Table":
    words = [each.words for each in board.contenders]
    table = _table(*words[0])
    for each in words:
        table.add_row(*each.values())
    return table


def _scores_table(board: "Leaderboard") -> "Table":
    """For each run and score the values, the differences to the baseline, and their intervals."""
    from multiguard.io.rounding import plain
    from multiguard.report.leaderboard_page import difference_words

    table = _table("run", "")
    for radius in board.radius:
        table.add_column(f"R = {plain(radius)}", justify="right")
    grid = board.family.radius.tolist()
    positions = [grid.index(radius) for radius in board.radius]
    for each in board.contenders:
        for number, measure in enumerate(board.measures):
            values = measure.values(each.curves["mean"])
            table.add_row("" if number else each.name, measure.word, *(measure.text(values[i]) for i in positions))
            if each.differences is not None:
                found = [difference_words(board.difference(each, measure, i)) for i in positions]
                table.add_row("", "  difference", *(value for value, _, _ in found))
                table.add_row("", "  interval", *(f"{low} to {high}" for _, low, high in found))
    return table


def _table(*heads: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=not head)
    return table
