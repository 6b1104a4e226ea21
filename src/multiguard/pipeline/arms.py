"""The certificates in a run folder, those of every arm, and how its recipe reports them."""

from pathlib import Path

from multiguard.errors import InvalidInputError
from multiguard.evaluate import Results, read_certificates
from multiguard.evaluate.certificate_files import CERTIFICATES_NAME
from multiguard.pipeline.folders import RECORD_FILE
from multiguard.pipeline.recipe import plan_arms
from multiguard.pipeline.recipe_file import RECIPE_FILE, read_recipe
from multiguard.pipeline.record import StepRecord, altered_outputs, read_record
from multiguard.report.config import ReportConfig


def find_certificates(folder: Path) -> dict[str, Path]:
    """The certificates folders of a run by arm, the main one first and named "", or a certificates folder as it is.

    A run folder whose certificates are not all those that its recipe asks for raises an error.
    """
    return {name: path for name, (path, _) in _arms(folder).items()}


def read_arms(folder: Path) -> dict[str, Results]:
    """What `find_certificates` finds, read; certificates replaced meanwhile by others raise an error."""
    found = {}
    for name, (path, recorded) in _arms(folder).items():
        found[name] = read_certificates(path)
        if recorded not in (None, found[name].certificates_hash):
            raise InvalidInputError(f"{path} was replaced while the run was read; give the command again")
    return found


def run_report(folder: Path) -> tuple[ReportConfig, list[str]]:
    """What the recipe of a run folder says of its report, and the command that made the run; nothing of others."""
    if (folder / CERTIFICATES_NAME).is_file() or not (folder / RECORD_FILE).is_file():
        return ReportConfig(), []
    command = read_record(folder).command
    return read_recipe(folder / RECIPE_FILE).report, [command] if command else []


def _arms(folder: Path) -> dict[str, tuple[Path, str | None]]:
    """The certificates folder of each arm, and the sha256 that the record of the run has of its certificates."""
    main = folder if (folder / CERTIFICATES_NAME).is_file() else folder / "certificates"
    if not (main / CERTIFICATES_NAME).is_file():
        raise InvalidInputError(f"{folder} holds no certificates; give a run folder or a certificates folder")
    if main == folder or not (folder / RECORD_FILE).is_file():
        return {"": (main, None)}
    record, recipe = read_record(folder), read_recipe(folder / RECIPE_FILE)
    arms = plan_arms(recipe, folder)
    steps = {name: record.steps.get(arm.step_name("certify"), StepRecord({})) for name, arm in arms.items()}
    if not (record.certified and all(step.finished and not altered_outputs(folder, step) for step in steps.values())):
        raise InvalidInputError(
            f"{main} is not what {RECIPE_FILE} there asks for, or not all of it; continue with "
            f"`multiguard run {folder / RECIPE_FILE} --out {folder}`, or report on {main} by itself"
        )
    found: dict[str, tuple[Path, str | None]] = {}
    for name, arm in arms.items():
        key = (arm.certificates / CERTIFICATES_NAME).relative_to(folder).as_posix()
        found[name] = arm.certificates, (steps[name].outputs or {}).get(key)
    return found


def beside_certificates(certificates: Path, name: str) -> Path:
    """Where a result made from certificates goes: in the same folder, with the same config in its name.

    >>> beside_certificates(Path("runs/certificates-k-4"), "report.html").as_posix()
    'runs/report-k-4.html'
    >>> beside_certificates(Path("runs/mine"), "attack").as_posix()
    'runs/attack'
    """
    path = certificates.parent / name
    config = certificates.name.removeprefix("certificates") if certificates.name.startswith("certificates-") else ""
    return path.with_name(f"{path.stem}{config}{path.suffix}")
