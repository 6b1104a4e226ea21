"""`multiguard report`: the page of a run with its figures and tables, or the comparison of several."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from multiguard.cli.console import PlainConsole, echo, plain_table, progress_bar
from multiguard.cli.options import Fields, Force, typed_command, with_options
from multiguard.errors import InvalidInputError
from multiguard.report.config import ReportConfig

if TYPE_CHECKING:
    from rich.table import Table

    from multiguard.report import Leaderboard

_Runs = Annotated[list[str], Argument(help="Run folders or certificates folders, or NAME=FOLDER.", metavar="RUN...")]
_Part = Annotated[
    dict[str, Any], Fields(("title", "gallery", "images", "methods", "baseline", "radii"), ReportConfig, others=())
]
_Out = Annotated[
    Path | None, Option(help="The page, NAME.html, or its folder [the run's; of several runs none: only print].")
]
_Root = Annotated[Path | None, Option(help="Where the images are [where they were voted on].")]


@with_options
def report_command(runs: _Runs, part: _Part, out: _Out = None, root: _Root = None, force: Force = False) -> None:
    """Make the page of a run with its figures and tables, or compare several runs on the same images.

    Differences to the baseline have 95 % confidence intervals over the images that all runs have.

    Example: multiguard report runs/certificates --out runs/report.html
    """
    if len(runs) > 1 or "methods" in part:
        _compare(ReportConfig(**part), runs, out, force)
    else:
        ((_, folder),) = _folders(runs).items()
        _make_page(folder, part, out, root, force)


def _make_page(folder: Path, part: dict[str, Any], out: Path | None, root: Path | None, force: bool) -> None:
    from multiguard.evaluate.calibration import calibration_of_run
    from multiguard.report import commands_of, report, report_files
    from multiguard.report.words import promises
    from multiguard.run.arms import find_certificates, path_in_run, read_arms, run_report

    config, commands = run_report(folder)
    others = read_arms(folder)
    main = others.pop("")
    if part or not commands or any(option is not None for option in (out, root)):
        commands = [*(commands or commands_of([main, *others.values()])), typed_command()]
    own = find_certificates(folder)[""]
    page = path_in_run(own, "report.html") if out is None else report_files(out)[0]
    made = partial(report, config.replace(**part), {"": main}, others=others, root=root, commands=commands, force=force)
    with progress_bar("images") as progress:
        study = made(calibration=calibration_of_run(own, main), out=page, progress=partial(progress, "reporting"))
    _, figures, tables = report_files(page)
    for line in [*study.notes, f"figures and tables: {figures}, {tables}", fill(promises(main), 80)]:
        echo(line)
    echo(f"report: {page}")


def _compare(config: ReportConfig, runs: Sequence[str], out: Path | None, force: bool) -> None:
    from multiguard.report import Leaderboard, report
    from multiguard.run.arms import read_arms

    found = {name: read_arms(folder)[""] for name, folder in _folders(runs).items()}
    board = report(config, found, out=out, force=force)
    assert isinstance(board, Leaderboard)
    console = PlainConsole()
    console.print(f"{board.title}\n")
    words = [each.words for each in board.contenders]
    table = _table(*words[0])
    for each in words:
        table.add_row(*each.values())
    console.print(table, soft_wrap=False)
    console.print(f"\ncertified scores in %, mean over images; differences to {board.baseline.name} in points\n")
    console.print(_scores_table(board), soft_wrap=False)
    console.print()
    for note in board.notes:
        console.print(note, soft_wrap=False)
    if out is not None:
        echo(f"\nreport: {out}")


def _folders(texts: Sequence[str]) -> dict[str, Path]:
    """Each folder by its name: the one given, or that of the folder, or its path if two are alike."""
    pairs: list[tuple[str, str, Path]] = []  # the name given, a short one, and the folder
    for text in texts:
        name, sign, place = text.partition("=")
        if sign and (not name or not place):
            raise InvalidInputError(f"{text}: expected a folder, or NAME=FOLDER")
        name, folder = (name, Path(place)) if sign and not Path(text).exists() else ("", Path(text))
        named = folder.resolve()
        pairs.append((name, named.parent.name if named.name == "certificates" else named.name, folder))
    counts = Counter(name or short for name, short, _ in pairs)
    found: dict[str, Path] = {}
    for name, short, folder in pairs:
        chosen = name or (short if counts[short] == 1 else folder.as_posix())
        if chosen in found:
            raise InvalidInputError(f"two runs are named {chosen}; give each a name of its own, NAME=FOLDER")
        found[chosen] = folder
    return found


def _scores_table(board: "Leaderboard") -> "Table":
    """For each run and score the values, the differences to the baseline, and their intervals."""
    from multiguard.io.rounding import plain

    table = _table("run", "")
    for radius in board.radius:
        table.add_column(f"R = {plain(radius)}", justify="right")
    last = ""
    for name, measure, cells in board.rows():
        table.add_row("" if name == last else name, measure.word, *(value for value, _ in cells))
        found = [difference for _, difference in cells if difference is not None]
        if found:
            table.add_row("", "  difference", *(value for value, _, _ in found))
            table.add_row("", "  interval", *(f"{low} to {high}" for _, low, high in found))
        last = name
    return table


def _table(*heads: str) -> "Table":
    table = plain_table()
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=not head)
    return table
