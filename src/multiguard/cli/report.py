"""`multiguard report`: figures, tables and one page to send round."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from multiguard.cli.command import typed
from multiguard.cli.options import Force
from multiguard.cli.progress import progress_bar
from multiguard.cli.terminal import echo
from multiguard.errors import InvalidInputError

_Run = Annotated[Path, Argument(help="A run folder, or a certificates folder.")]
_Beside = Annotated[
    list[str] | None,
    Option(help="Other certificates on the same images: another sigma, no training noise.", metavar="NAME=FOLDER"),
]
_Out = Annotated[
    str | None, Option(help="The page to write [report.html in the run, or beside the certificates].", metavar="PATH")
]
_Figures = Annotated[Path | None, Option(help="The folder for figures [figures; beside NAME.html NAME-figures].")]
_Tables = Annotated[Path | None, Option(help="The folder for tables [tables; beside NAME.html NAME-tables].")]
_Title = Annotated[str | None, Option(help="The page's title [the recipe's, or the dataset's name].")]
_Root = Annotated[Path | None, Option(help="Where the images lie [where they were voted on].")]
_NoImages = Annotated[bool, Option("--no-images", help="Show no images on the page.")]
_Gallery = Annotated[int | None, Option(help="The most images in the gallery [the recipe's, or all].")]


def report_command(
    run: _Run,
    beside: _Beside = None,
    out: _Out = None,
    figures: _Figures = None,
    tables: _Tables = None,
    title: _Title = None,
    root: _Root = None,
    no_images: _NoImages = False,
    gallery: _Gallery = None,
    force: Force = False,
) -> None:
    """Draw the figures, write the tables and make the page of a run.

    Example: multiguard report runs/certificates --out runs/report.html
    """
    from multiguard.pipeline.found import find_certificates
    from multiguard.pipeline.reporting import FIGURES, PAGE, TABLES, ReportJob, report

    found = find_certificates(run)
    asked = (beside, out, figures, tables, title, root, no_images or None, gallery)
    page = found.main.parent / PAGE if out is None else _page(out, PAGE)
    job = ReportJob(
        found.main,
        page,
        figures or _beside(page, FIGURES),
        tables or _beside(page, TABLES),
        beside={**found.beside, **_named(beside)},
        title=title or found.report.title,
        commands=found.commands,
        command=typed() if not found.commands or any(option is not None for option in asked) else "",
        root=root,
        images=found.report.images and not no_images,
        gallery=found.report.gallery if gallery is None else gallery,
        force=force,
    )
    with progress_bar("images") as progress:
        done = report(job, lambda ready, total: progress("reporting", ready, total))
    if done.without_images is not None and job.images:
        echo(f"the page shows no images: {done.without_images}")
    for words in filter(None, (done.replaced, done.failed.removesuffix("."))):
        echo(words)
    echo(f"{len(done.figures)} files of figures: {job.figures}")
    echo(f"{len(done.tables)} files of tables: {job.tables}")
    echo(f"report: {done.page}")


def _page(out: str, usual: str) -> Path:
    """The file that was named: in a folder the usual one, and a name without an ending has .html appended."""
    place = Path(out)
    if out.endswith("/") or place.is_dir():
        return place / usual
    return place if place.suffix else place.with_suffix(".html")


def _beside(page: Path, name: str) -> Path:
    """Figures beside report.html, other-figures beside other.html: two pages of one folder do not share them."""
    return page.parent / (name if page.stem == "report" else f"{page.stem}-{name}")


def _named(beside: Sequence[str] | None) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for text in beside or ():
        name, equals, folder = text.partition("=")
        if not name or not equals or not folder:
            raise InvalidInputError(f"--beside {text}: expected NAME=FOLDER, such as sigma-1=runs/other/certificates")
        found[name] = Path(folder)
    return found
