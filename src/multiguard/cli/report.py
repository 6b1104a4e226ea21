"""`multiguard report`: figures, tables and one page to send round."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from multiguard.cli.options import Fields, Force, typed_command, with_options
from multiguard.cli.progress import progress_bar
from multiguard.cli.terminal import echo
from multiguard.errors import InvalidInputError
from multiguard.report.config import ReportConfig

if TYPE_CHECKING:
    from multiguard.pipeline.report_job import ReportJob, ReportResult

_Run = Annotated[Path, Argument(help="A run folder, or a certificates folder.")]
_Beside = Annotated[
    list[str] | None,
    Option(help="Other certificates of the same images: another sigma, no training noise.", metavar="NAME=FOLDER"),
]
_Out = Annotated[
    str | None, Option(help="The page to write [report.html in the run, or beside the certificates].", metavar="PATH")
]
_Figures = Annotated[Path | None, Option(help="The folder for figures [figures; beside NAME.html NAME-figures].")]
_Tables = Annotated[Path | None, Option(help="The folder for tables [tables; beside NAME.html NAME-tables].")]
_Part = Annotated[dict[str, Any], Fields(ReportConfig)]
_Root = Annotated[Path | None, Option(help="Where the images are [where they were voted on].")]


@with_options
def report_command(
    run: _Run,
    part: _Part,
    beside: _Beside = None,
    out: _Out = None,
    figures: _Figures = None,
    tables: _Tables = None,
    root: _Root = None,
    force: Force = False,
) -> None:
    """Draw the figures, write the tables and make the page of a run.

    Example: multiguard report runs/certificates --out runs/report.html
    """
    from multiguard.pipeline.report_job import FIGURES, TABLES, ReportJob, find_certificates, report

    found = find_certificates(run)
    page = _page(out, found.main)
    changed = bool(part) or any(option is not None for option in (beside, out, figures, tables, root))
    job = ReportJob(
        found.read(found.main),
        page,
        figures or _beside(page, FIGURES),
        tables or _beside(page, TABLES),
        beside={name: found.read(folder) for name, folder in {**found.beside, **_named(beside or ())}.items()},
        part=found.report.replace(**part),
        commands=found.commands,
        command=typed_command() if changed or not found.commands else "",
        root=root,
        force=force,
    )
    with progress_bar("images") as progress:
        result = report(job, lambda done, total: progress("reporting", done, total))
    _show(job, result)


def _show(job: "ReportJob", result: "ReportResult") -> None:
    from multiguard.report.words import closing_sentence

    for note in result.notes:
        echo(note)
    echo(f"{len(result.figures)} files of figures: {job.figures}")
    echo(f"{len(result.tables)} files of tables: {job.tables}")
    echo(fill(closing_sentence(job.main), 80))
    echo(f"report: {result.page}")


def _page(out: str | None, certificates: Path) -> Path:
    """The page to write: beside the certificates, or in a folder by the default name; a name alone ends in .html."""
    from multiguard.pipeline.report_job import PAGE, beside_certificates

    if out is None:
        return beside_certificates(certificates, PAGE)
    path = Path(out)
    if out.endswith("/") or path.is_dir():
        return path / PAGE
    return path if path.suffix else path.with_suffix(".html")


def _beside(page: Path, name: str) -> Path:
    """Figures beside report.html, other-figures beside other.html: two pages in a folder do not share them."""
    return page.parent / (name if page.stem == "report" else f"{page.stem}-{name}")


def _named(beside: Sequence[str]) -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for text in beside:
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise InvalidInputError(f"--beside {text}: expected NAME=FOLDER, such as sigma-1=runs/other/certificates")
        folders[name] = Path(folder)
    return folders
