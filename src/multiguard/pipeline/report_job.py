"""From certificates to figures, tables and the page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from multiguard.data import IndexedDataset
from multiguard.data.source import Source
from multiguard.errors import DataError, InvalidInputError
from multiguard.io.files import remove_partial_files, require_folder
from multiguard.pipeline.certify_job import dataset_title
from multiguard.pipeline.folders import RECORD_FILE, check_inside, check_report_folders, remove_stale_files
from multiguard.pipeline.recipe import ReportPart, plan_arms
from multiguard.pipeline.recipe_file import RECIPE_FILE, read_recipe
from multiguard.pipeline.record import altered_outputs, read_record
from multiguard.report import Study, check_gallery, draw_figures, write_page, write_tables
from multiguard.report.words import failure_words
from multiguard.results import Results
from multiguard.results.certificate_files import CERTIFICATES_NAME

PAGE, FIGURES, TABLES = "report.html", "figures", "tables"


@dataclass(frozen=True)
class ReportJob:
    """What to report on, and where the report goes."""

    main: Results  # the certificates that the report is about
    page: Path
    figures: Path  # a folder, as tables
    tables: Path
    beside: Mapping[str, Results] = field(default_factory=dict)  # others of the same images, by name
    part: ReportPart = field(default_factory=ReportPart)  # what the page shows
    commands: Sequence[str] = ()  # the commands that make the certificates; empty for those that the certificates name
    command: str = ""  # the command that then makes the report; empty if those do
    root: Path | None = None  # where the images are, if not where they were voted on
    force: bool = False  # whether to replace a report that is there


@dataclass(frozen=True)
class ReportResult:
    """The files of a report, and what the user should know about them."""

    page: Path
    figures: Sequence[Path]
    tables: Sequence[Path]
    notes: Sequence[str]


def report(job: ReportJob, progress: Callable[[int, int], None] | None = None) -> ReportResult:
    """Write the figures, the tables and last the page, once nothing can be wrong.

    An existing page is replaced only with `force`. Figures and tables without a page come from an interrupted report
    and are replaced. Images that cannot be opened are left out of the page, and the page says so.
    """
    check_gallery(job.part.gallery)
    home = job.page.parent
    if not job.force and job.page.exists():
        raise InvalidInputError(f"{job.page} exists already; --force replaces it, or name another")
    if not job.force:
        check_report_folders((job.figures, job.tables))
    check_inside(home, *(folder for folder in (job.figures, job.tables) if folder.parent == home))
    title = job.part.title or f"Certified robustness on {dataset_title(job.main.provenance)}"
    study = Study(job.main, job.beside, title=title, commands=_commands(job))
    images, missing = _images(job)
    for folder in (home, job.figures, job.tables):
        require_folder(folder)
    figures, tables = draw_figures(study, job.figures), write_tables(study, job.tables)
    remove_stale_files((job.figures, job.tables), [*figures, *tables])
    remove_partial_files(home, lambda name: name == job.page.name)
    replaced = write_page(study, job.page, images=images, gallery=job.part.gallery, progress=progress)
    return ReportResult(job.page, figures, tables, _notes(job, missing, replaced))


def _commands(job: ReportJob) -> list[str]:
    runs = (job.main, *job.beside.values())
    stored = [command for run in runs for command in (run.source.get("command"), run.command)]
    commands = [*(job.commands or stored), job.command]
    return list(dict.fromkeys(command for command in commands if command and isinstance(command, str)))


def _images(job: ReportJob) -> tuple[IndexedDataset | None, str | None]:
    """The images that were voted on, or why they cannot be shown."""
    if not job.part.images:
        return None, None
    if "data" not in job.main.source:
        return None, "the votes do not name their images"
    try:
        source = Source.from_dict(job.main.source["data"])
        return (source if job.root is None else replace(source, root=job.root)).open(), None
    except DataError as error:
        return None, str(error)


def _notes(job: ReportJob, missing: str | None, replaced: int) -> list[str]:
    notes = [] if missing is None else [f"the page shows no images: {missing}"]
    if replaced:
        images = (
            "image is not shown: it is not the one" if replaced == 1 else "images are not shown: they are not those"
        )
        notes.append(f"{replaced} {images} voted on")
    failed = failure_words(job.main).removesuffix(".")
    return [*notes, failed] if failed else notes


@dataclass(frozen=True)
class FoundCertificates:
    """Certificates folders, and how the run that made them reports them."""

    main: Path  # the certificates folder that a report is about
    beside: Mapping[str, Path] = field(default_factory=dict)  # those of the run's other arms, by name
    report: ReportPart = field(default_factory=ReportPart)  # what the page shows
    commands: Sequence[str] = ()  # the command of the run, if there is one


def find_certificates(folder: Path) -> FoundCertificates:
    """The certificates of a run folder with what its recipe says of the report, or a certificates folder as it is.

    A run folder whose certificates are not all those that its recipe asks for is refused.
    """
    if (folder / CERTIFICATES_NAME).is_file():
        return FoundCertificates(folder)
    main = folder / "certificates"
    if not (main / CERTIFICATES_NAME).is_file():
        raise InvalidInputError(f"{folder} holds no certificates; give a run folder or a certificates folder")
    return _find_in_run(folder, main) if (folder / RECORD_FILE).is_file() else FoundCertificates(main)


def _find_in_run(run: Path, main: Path) -> FoundCertificates:
    record, recipe = read_record(run), read_recipe(run / RECIPE_FILE)
    arms = plan_arms(recipe, run)
    steps = [record.steps.get(arm.step_name("certify")) for arm in arms.values()]
    intact = all(step is not None and step.finished and not altered_outputs(run, step) for step in steps)
    if not (record.certified and intact):
        raise InvalidInputError(
            f"{main} is not what {RECIPE_FILE} there asks for, or not all of it; continue with "
            f"`multiguard run {run / RECIPE_FILE} --out {run}`, or report on {main} by itself"
        )
    beside = {name: arm.certificates for name, arm in arms.items() if name}
    return FoundCertificates(main, beside, recipe.report, [record.command] if record.command else [])
