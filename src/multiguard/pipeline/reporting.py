"""Reporting by names and paths: from certificates folders to figures, tables and the page."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from multiguard.data import Catalogued
from multiguard.data.source import Source
from multiguard.errors import DataError, InvalidInputError
from multiguard.io.files import remove_partial_files, require_folder
from multiguard.pipeline.leftovers import refuse_foreign, remove_stale
from multiguard.pipeline.places import require_inside
from multiguard.report import Study, check_gallery, draw_figures, write_page, write_tables
from multiguard.report.words import failed_words
from multiguard.results import CertificatesFolder, read_certificates

PAGE, FIGURES, TABLES = "report.html", "figures", "tables"


@dataclass(frozen=True)
class ReportJob:
    """What to report on, and where the report goes.

    Attributes:
        main: The certificates folder that the report is about.
        page: The page to write.
        figures: The folder for figures.
        tables: The folder for tables.
        beside: Other certificates folders on the same images, by name.
        title: The page's title; None for one that names the data.
        commands: What makes the certificates again; none to ask the certificates themselves.
        command: What then makes the report again; empty where those do.
        root: Where the images lie, if not where they were voted on.
        images: Whether the page shows images.
        gallery: The most images in the gallery; None for all.
        force: Whether a report that is there is replaced.
    """

    main: Path
    page: Path
    figures: Path
    tables: Path
    beside: Mapping[str, Path] = field(default_factory=dict)
    title: str | None = None
    commands: Sequence[str] = ()
    command: str = ""
    root: Path | None = None
    images: bool = True
    gallery: int | None = None
    force: bool = False


@dataclass(frozen=True)
class Reported:
    """What a report left behind.

    Attributes:
        page: The page.
        figures: The figures.
        tables: The tables.
        without_images: Why the page shows no images; None where it does.
        replaced: How many images the page does not show because another lies in their place, in words; empty where
            there is none.
        failed: How many images could not be voted on and are left out, in words; empty where all could.
    """

    page: Path
    figures: Sequence[Path]
    tables: Sequence[Path]
    without_images: str | None
    replaced: str
    failed: str


def report(job: ReportJob, progress: Callable[[int, int], None] | None = None) -> Reported:
    """Write the figures, the tables and last the page, after all that can be wrong has been looked at.

    A page that is there is replaced only by force; figures and tables without their page are what an interrupted
    report left, and are replaced. Images that cannot be opened are left out of the page, and the page says so.
    """
    check_gallery(job.gallery)
    if not job.force:
        _refuse_existing(job)
    home = job.page.parent
    require_inside(home, *(folder for folder in (job.figures, job.tables) if folder.parent == home))
    main = read_certificates(job.main)
    beside = {name: read_certificates(folder) for name, folder in job.beside.items()}
    study = Study(main, beside, title=job.title or _title(main), commands=_commands(job, [main, *beside.values()]))
    images, missing = _images(job, main)
    for folder in (job.page.parent, job.figures, job.tables):
        require_folder(folder)
    figures, tables = draw_figures(study, job.figures), write_tables(study, job.tables)
    remove_stale((job.figures, job.tables), [*figures, *tables])
    remove_partial_files(job.page.parent, lambda name: name == job.page.name)
    replaced = write_page(study, job.page, images=images, gallery=job.gallery, progress=progress)
    return Reported(job.page, figures, tables, missing, _replaced(replaced), failed_words(main))


def _replaced(count: int) -> str:
    if not count:
        return ""
    are, their = ("image is", "its") if count == 1 else ("images are", "their")
    return f"{count} {are} not shown: another lies in {their} place than the one voted on"


def _refuse_existing(job: ReportJob) -> None:
    if job.page.exists():
        raise InvalidInputError(f"{job.page} is there already; --force replaces it, or name another")
    refuse_foreign((job.figures, job.tables))


def _title(main: CertificatesFolder) -> str:
    return f"Certified robustness on {re.split(r'[?[]', main.provenance['dataset'])[0]}"


def _commands(job: ReportJob, runs: Sequence[CertificatesFolder]) -> list[str]:
    stored = [command for run in runs for command in (run.source.get("command"), run.command)]
    told = [command for command in (*(job.commands or stored), job.command) if command and isinstance(command, str)]
    return list(dict.fromkeys(told))


def _images(job: ReportJob, main: CertificatesFolder) -> tuple[Catalogued | None, str | None]:
    """The images that were voted on, or why they cannot be shown."""
    if not job.images:
        return None, "none were asked for"
    if "data" not in main.source:
        return None, "the votes do not say which images they are of"
    try:
        source = Source.from_dict(main.source["data"])
        return (source if job.root is None else replace(source, root=job.root)).open(), None
    except DataError as error:
        return None, str(error)
