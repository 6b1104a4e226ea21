"""Reporting by names and paths: from certificates folders to figures, tables and the page."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from multiguard.data import Catalogued
from multiguard.data.source import Source
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import CertificatesFolder, read_certificates
from multiguard.report import Study, draw_figures, write_page, write_tables
from multiguard.report.old import remove_old

PAGE, FIGURES, TABLES = "report.html", "figures", "tables"


@dataclass(frozen=True)
class ReportJob:
    """What to report on, and where the report goes.

    Attributes:
        main: The certificates folder that the report is about.
        page: The page to write.
        figures: The folder for figures.
        tables: The folder for tables.
        beside: Other certificates folders on the same pictures, by name.
        title: The page's title; None for one that names the data.
        commands: What reproduces the report.
        root: Where the pictures lie, if not where they were voted on.
        pictures: Whether the page shows pictures.
        gallery: The most pictures in the gallery; None for all.
        force: Whether a report that is there is replaced.
    """

    main: Path
    page: Path
    figures: Path
    tables: Path
    beside: Mapping[str, Path] = field(default_factory=dict)
    title: str | None = None
    commands: Sequence[str] = ()
    root: Path | None = None
    pictures: bool = True
    gallery: int | None = None
    force: bool = False


@dataclass(frozen=True)
class Reported:
    """What a report left behind.

    Attributes:
        page: The page.
        figures: The figures.
        tables: The tables.
        without_pictures: Why the page shows no pictures; None where it does.
    """

    page: Path
    figures: Sequence[Path]
    tables: Sequence[Path]
    without_pictures: str | None


def report(job: ReportJob, progress: Callable[[int, int], None] | None = None) -> Reported:
    """Write the figures, the tables and last the page; what is there is replaced only by force, and then as a whole.

    No figure or table of an earlier report stays among the new ones; files of other names do.
    Pictures that cannot be opened are left out of the page, and the page says so.
    """
    if not job.force:
        _refuse_existing(job)
    main = read_certificates(job.main)
    beside = {name: read_certificates(folder) for name, folder in job.beside.items()}
    study = Study(main, beside, title=job.title or _title(main), commands=_commands(job, main))
    pictures, missing = _pictures(job, main)
    figures, tables = draw_figures(study, job.figures), write_tables(study, job.tables)
    remove_old(job.figures, job.tables, [*figures, *tables])
    job.page.parent.mkdir(parents=True, exist_ok=True)
    write_page(study, job.page, pictures=pictures, gallery=job.gallery, progress=progress)
    return Reported(job.page, figures, tables, missing)


def _refuse_existing(job: ReportJob) -> None:
    for path in (job.page, job.figures, job.tables):
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            raise InvalidInputError(f"{path} is there already; --force replaces it, or name another")


def _title(main: CertificatesFolder) -> str:
    return f"Certified robustness on {re.split(r'[?[]', main.provenance['dataset'])[0]}"


def _commands(job: ReportJob, main: CertificatesFolder) -> list[str]:
    if job.commands:
        return list(job.commands)
    return [command for command in (main.source.get("command"), main.command) if command]


def _pictures(job: ReportJob, main: CertificatesFolder) -> tuple[Catalogued | None, str | None]:
    """The pictures that were voted on, or why they cannot be shown."""
    if not job.pictures:
        return None, "none were asked for"
    if "data" not in main.source:
        return None, "the votes do not say which pictures they are of"
    try:
        source = Source.from_dict(main.source["data"])
        return (source if job.root is None else replace(source, root=job.root)).open(), None
    except DataError as error:
        return None, str(error)
