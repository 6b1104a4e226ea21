"""What a folder holds to report on: the certificates of a run as its recipe asks for them, or some by themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from multiguard.errors import InvalidInputError
from multiguard.pipeline.parsing import RECIPE_FILE, read_recipe
from multiguard.pipeline.recipe import ReportPart
from multiguard.pipeline.record import RECORD_FILE, RunRecord, altered, read_record
from multiguard.pipeline.run import plan_arms
from multiguard.pipeline.steps import Arm, step_name
from multiguard.results.certificates_folder import CERTIFICATES_NAME

CERTIFICATES = "certificates"


@dataclass(frozen=True)
class Found:
    """Certificates, and what the run that made them wants of its report.

    Attributes:
        main: The certificates folder that the report is about.
        beside: Those of the run's arms, by name.
        report: What the page shall show; the usual where no run says so.
        commands: What made the run, where there is one.
    """

    main: Path
    beside: Mapping[str, Path] = field(default_factory=dict)
    report: ReportPart = field(default_factory=ReportPart)
    commands: Sequence[str] = ()


def find_certificates(place: Path) -> Found:
    """The certificates of a run folder with all that its recipe says of them, or a certificates folder as it is.

    A run folder whose recipe was not followed up to the certificates that lie there is refused: they are of another
    run than the recipe beside them.
    """
    if (place / CERTIFICATES_NAME).is_file():
        return Found(place)
    main = place / CERTIFICATES
    if not (main / CERTIFICATES_NAME).is_file():
        raise InvalidInputError(f"{place}: no certificates there; give a run folder or a certificates folder")
    return _found_in_run(place, main) if (place / RECORD_FILE).is_file() else Found(main)


def _found_in_run(run: Path, main: Path) -> Found:
    record, recipe = read_record(run), read_recipe(run / RECIPE_FILE)
    arms = plan_arms(recipe, run)
    if not record.certified or not all(_is_whole(run, record, arm) for arm in arms.values()):
        raise InvalidInputError(
            f"{main} is not what {RECIPE_FILE} there asks for, or not all of it; go on with "
            f"`multiguard run {run / RECIPE_FILE} --out {run}`, or report on {main} by itself"
        )
    beside = {name: arm.home / CERTIFICATES for name, arm in arms.items() if name}
    return Found(main, beside, recipe.report, [record.command] if record.command else [])


def _is_whole(run: Path, record: RunRecord, arm: Arm) -> bool:
    """Whether the arm's certificates are as its run left them."""
    step = record.steps.get(step_name(arm, "certify"))
    return step is not None and step.ended and not altered(run, step)
