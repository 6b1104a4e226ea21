"""`multiguard report`: the page of a run with its figures and tables, or the comparison of several."""

from collections import Counter
from collections.abc import Sequence
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
    Path | None,
    Option(help="The page, NAME.html, or its folder [that of the run; of several runs none: only print]."),
]
_Root = Annotated[Path | None, Option(help="Where the images are [where they were voted on].")]


@with_options
def report_command(
    runs: _Runs,
    part: _Part,
    out: _Out = None,
    root: _Root = None,
    force: Force = False,
) -> None:
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
    from multiguard.evaluate.calibration import calibration_beside
    from multiguard.report import commands_of, report, report_files
    from multiguard.report.words import promises
    from multiguard.run.arms import beside_certificates, find_certificates, read_arms, run_report

    config, commands = run_report(folder)
    others = read_arms(folder)
    main = others.pop("")
    if part or not commands or any(option is not None for option in (out, root)):
        commands = [*(commands or commands_of([main, *others.values()])), typed_command()]
    page = beside_certificates(find_certificates(folder)[""], "report.html") if out is None else report_files(out)[0]
    with progress_bar("images") as progress:
        study = report(
            config.replace(**part),
            {"": main},
            beside=others,
            calibration=calibration_beside(find_certificates(folder)[""], main),
            out=page,
            root=root,
            commands=commands,
            force=force,
            progress=lambda done, total: progress("reporting", done, total),
        )
    _, figures, tables = report_files(page)
    for line in [*study.notes, f"figures and tables: {figures}, {tables}", fill(promises(main), 80)]:
        echo(line)
    echo(f"report: {page}")


def _compare(config: ReportConfig, runs: Sequence[str], out: Path | None, force: bool) -> None:
    from multiguard.report import Leaderboard, report
    from multiguard.run.arms import read_arms

    board = report(
        config, {name: read_arms(folder)[""] for name, folder in _folders(runs).items()}, out=out, force=force
    )
    assert isinstance(board, Leaderboard)
    _show(board)
    if out is not None:
        echo(f"\nreport: {out}")


def _folders(texts: Sequence[str]) -> dict[str, Path]:
    """Each folder by its name: the one given, or that of the folder, or its path if two are alike."""
    pairs = [_named(text) for text in texts]
    counts = Counter(name or _short(folder) for name, folder in pairs)
    found: dict[str, Path] = {}
    for name, folder in pairs:
        chosen = name or (_short(folder) if counts[_short(folder)] == 1 else folder.as_posix())
        if chosen in found:
            raise InvalidInputError(f"two runs are named {chosen}; give each a name of its own, NAME=FOLDER")
        found[chosen] = folder
    return found


def _named(text: str) -> tuple[str, Path]:
    name, sign, folder = text.partition("=")
    if sign and (not name or not folder):
        raise InvalidInputError(f"{text}: expected a folder, or NAME=FOLDER")
    return (name, Path(folder)) if sign and not Path(text).exists() else ("", Path(text))


def _short(folder: Path) -> str:
    """The name of the folder, or of the one that it is in if it is just called certificates."""
    named = folder.resolve()
    return named.parent.name if named.name == "certificates" else named.name


def _show(board: "Leaderboard") -> None:
    console = PlainConsole()
    console.print(f"{board.title}\n")
    words = [each.words for each in board.contenders]
    runs = _table(*words[0])
    for each in words:
        runs.add_row(*each.values())
    console.print(runs, soft_wrap=False)
    console.print(f"\ncertified scores in %, mean over images; differences to {board.baseline.name} in points\n")
    console.print(_scores_table(board), soft_wrap=False)
    console.print()
    for note in board.notes:
        console.print(note, soft_wrap=False)


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
