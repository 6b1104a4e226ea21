"""From certificates to figures, tables and the page."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from multiguard.data import IndexedDataset
from multiguard.data.source import Source
from multiguard.errors import DataError, InvalidInputError
from multiguard.io.config import to_tree
from multiguard.io.outputs import Outputs
from multiguard.io.ragged import Ragged
from multiguard.pipeline.folders import RECORD_FILE, check_inside
from multiguard.pipeline.recipe import plan_arms
from multiguard.pipeline.recipe_file import RECIPE_FILE, read_recipe
from multiguard.pipeline.record import StepRecord, altered_outputs, read_record
from multiguard.report import Study, check_gallery, draw_figures, write_page, write_tables
from multiguard.report.config import ReportConfig
from multiguard.report.words import failure_words, run_title
from multiguard.results import Results, read_certificates
from multiguard.results.certificate_files import CERTIFICATES_NAME
from multiguard.results.curve_files import curves_text
from multiguard.results.table_file import config_record
from multiguard.version import __version__

PAGE, FIGURES, TABLES = "report.html", "figures", "tables"


@dataclass(frozen=True)
class ReportJob:
    """What to report on, and where the report goes."""

    main: Results  # the certificates that the report is about
    page: Path
    figures: Path  # a folder, as tables
    tables: Path
    beside: Mapping[str, Results] = field(default_factory=dict)  # others of the same images, by name
    part: ReportConfig = field(default_factory=ReportConfig)  # what the page shows
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
    """Write the page, the figures and the tables together, once nothing can be wrong.

    Another report is replaced only with `force`; the same job again finds its work done, or completes it. Images that
    cannot be opened are left out of the page, and the page says so.
    """
    check_gallery(job.part.gallery)
    home = job.page.parent
    check_inside(home, *(folder for folder in (job.figures, job.tables) if folder.parent == home))
    title = job.part.title or run_title(job.main)
    study = Study(job.main, job.beside, title=title, commands=_commands(job))
    images, missing = _images(job)
    request = _request(job, study, images, missing)
    folders = (job.figures, job.tables)
    with Outputs(job.page, "a report", request, folders=folders, force=job.force) as outputs:
        if outputs.finished and not job.force:
            return _result(job, outputs, _notes(job, missing, 0))
        draw_figures(study, outputs.stage(job.figures))
        write_tables(study, outputs.stage(job.tables))
        page = outputs.stage(home) / job.page.name
        replaced = write_page(study, page, images=images, gallery=job.part.gallery, progress=progress)
        outputs.publish()
        return _result(job, outputs, _notes(job, missing, replaced))


def _result(job: ReportJob, outputs: Outputs, notes: Sequence[str]) -> ReportResult:
    return ReportResult(job.page, outputs.files_in(job.figures), outputs.files_in(job.tables), notes)


def _request(job: ReportJob, study: Study, images: IndexedDataset | None, missing: str | None) -> dict[str, Any]:
    """Everything that decides the report, by name; the commands that it shows do not."""
    runs = {"": job.main, **job.beside}
    return {
        "title": study.title,
        "report": to_tree(job.part),
        "certificates": {name: certificates_hash(run) for name, run in runs.items()},
        "images": missing if images is None else [*images.origins],
        "folders": [os.path.relpath(folder, job.page.parent) for folder in (job.figures, job.tables)],
        "multiguard": __version__,
    }


def certificates_hash(run: Results) -> str:
    """A hash of all that certificates claim."""
    proved = run.certificates
    digest = hashlib.sha256(f"{run.votes_hash} {run.certified_with} {config_record(proved.config)}".encode())
    digest.update(f"{proved.failures} {curves_text(run.curves)}".encode())
    for number, name in enumerate(proved.ids):
        digest.update(f"{chr(0) * (number > 0)}{name}".encode("utf-8", "surrogatepass"))
    sides: list[tuple[str, Ragged[Any]]] = [("", proved.labels), *proved.radii.items()]
    for method, rows in [*sides, *(proved.false_radii or {}).items()]:
        digest.update(method.encode() + rows.values.tobytes() + rows.offsets.astype(np.int64).tobytes())
    return digest.hexdigest()


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
    report: ReportConfig = field(default_factory=ReportConfig)  # what the page shows
    commands: Sequence[str] = ()  # the command of the run, if there is one
    recorded: Mapping[Path, str] = field(default_factory=dict)  # the sha256 of certificates.parquet in each run folder

    def read(self, folder: Path) -> Results:
        """The certificates in one of the folders; those that came in the place of a run's own are refused."""
        certified = read_certificates(folder)
        if self.recorded.get(folder) not in (None, certified.certificates_hash):
            raise InvalidInputError(f"{folder} was replaced while the run was read; give the command again")
        return certified


def beside_certificates(certificates: Path, name: str) -> Path:
    """Where a result made from certificates goes: beside them, with the same config in its name.

    >>> beside_certificates(Path("runs/certificates-k-4"), "report.html").as_posix()
    'runs/report-k-4.html'
    >>> beside_certificates(Path("runs/mine"), "attack").as_posix()
    'runs/attack'
    """
    path = certificates.parent / name
    config = certificates.name.removeprefix("certificates") if certificates.name.startswith("certificates-") else ""
    return path.with_name(f"{path.stem}{config}{path.suffix}")


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
    steps = [record.steps.get(arm.step_name("certify"), StepRecord({})) for arm in arms.values()]
    if not (record.certified and all(step.finished and not altered_outputs(run, step) for step in steps)):
        raise InvalidInputError(
            f"{main} is not what {RECIPE_FILE} there asks for, or not all of it; continue with "
            f"`multiguard run {run / RECIPE_FILE} --out {run}`, or report on {main} by itself"
        )
    beside = {name: arm.certificates for name, arm in arms.items() if name}
    hashes = {run / name: digest for step in steps for name, digest in (step.outputs or {}).items()}
    recorded = {path.parent: digest for path, digest in hashes.items() if path.name == CERTIFICATES_NAME}
    return FoundCertificates(main, beside, recipe.report, [record.command] if record.command else [], recorded)
