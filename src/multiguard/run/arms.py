"""The arms of a run, each a line from model to certificates, and what is found of them in a run folder."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from multiguard.certify import Gaussian
from multiguard.certify.noise import given_noise
from multiguard.errors import InvalidInputError
from multiguard.evaluate import Results, read_certificates
from multiguard.evaluate.results import CERTIFICATES_NAME
from multiguard.io.config import Config, from_tree
from multiguard.io.files import RECORD_FILE, read_regular
from multiguard.io.records import decode_json
from multiguard.io.rounding import plain
from multiguard.report.config import ReportConfig
from multiguard.run.recipe import RECIPE_FILE, Recipe, read_recipe


class RunRecord(Config, frozen=True):
    """run.json: the last command, and whether all certificates in the folder belong to its recipe.yaml."""

    command: str = ""
    certified: bool = False


@dataclass(frozen=True)
class Arm:
    """One line of a run from model to certificates."""

    name: str  # its name; empty for the main one
    home: Path  # its folder
    noise: str  # the noise of its votes
    trained: str | None = None  # the noise in training; None for the recipe's

    @property
    def certificates(self) -> Path:
        """Its certificates folder."""
        return self.home / "certificates"

    def step_name(self, kind: str) -> str:
        """The name of one of its steps in the record."""
        return f"{self.name} {kind}" if self.name else kind


def plan_arms(recipe: Recipe, out: Path) -> dict[str, Arm]:
    """The arms of a run by name: the main one under the empty name, then one per further sigma and training noise."""
    own, sweep = recipe.votes_noise, recipe.sweep
    arms = [Arm(f"sigma-{plain(sigma)}", out, str(Gaussian(sigma))) for sigma in sweep.sigma]
    arms = [arm for arm in arms if arm.noise != own]
    arms += [Arm(f"training-noise-{plain(one)}", out, own, given_noise(one, None)) for one in sweep.training_noise]
    return {"": Arm("", out, own)} | {arm.name: replace(arm, home=out / "arms" / arm.name) for arm in arms}


def read_record(out: Path) -> RunRecord:
    """The record of a run folder; a new one where there is none, `InvalidInputError` where it is damaged.

    >>> read_record(Path("no-such-run"))
    RunRecord(command='', certified=False)
    """
    path = out / RECORD_FILE
    if not path.exists():
        return RunRecord()
    try:
        return from_tree(RunRecord, decode_json(read_regular(path), dict[str, Any]))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{path} is not the record of a run ({error}); remove it to start over") from error


def find_certificates(folder: Path) -> dict[str, Path]:
    """The certificates folders of a run by arm, the main one first and named "", or a certificates folder as it is.

    A run folder whose certificates are not all those that its recipe asks for raises an error.
    """
    main = folder if (folder / CERTIFICATES_NAME).is_file() else folder / "certificates"
    if not (main / CERTIFICATES_NAME).is_file():
        raise InvalidInputError(f"{folder} holds no certificates; give a run folder or a certificates folder")
    if main == folder or not (folder / RECORD_FILE).is_file():
        return {"": main}
    found = {name: arm.certificates for name, arm in plan_arms(read_recipe(folder / RECIPE_FILE), folder).items()}
    if not (read_record(folder).certified and all((path / CERTIFICATES_NAME).is_file() for path in found.values())):
        raise InvalidInputError(
            f"{main} is not what {RECIPE_FILE} there asks for, or not all of it; continue with "
            f"`multiguard run {folder / RECIPE_FILE} --out {folder}`, or report on {main} by itself"
        )
    return found


def read_arms(folder: Path) -> dict[str, Results]:
    """What `find_certificates` finds, read."""
    return {name: read_certificates(path) for name, path in find_certificates(folder).items()}


def run_report(folder: Path) -> tuple[ReportConfig, list[str]]:
    """What the recipe of a run folder says of its report, and the command that made the run; nothing of others."""
    if (folder / CERTIFICATES_NAME).is_file() or not (folder / RECORD_FILE).is_file():
        return ReportConfig(), []
    command = read_record(folder).command
    return read_recipe(folder / RECIPE_FILE).report, [command] if command else []


def path_in_run(certificates: Path, name: str) -> Path:
    """Where a result made from certificates goes: in the same folder, with the same config in its name.

    >>> path_in_run(Path("runs/certificates-k-4"), "report.html").as_posix()
    'runs/report-k-4.html'
    >>> path_in_run(Path("runs/mine"), "attack").as_posix()
    'runs/attack'
    """
    path = certificates.parent / name
    config = certificates.name.removeprefix("certificates") if certificates.name.startswith("certificates-") else ""
    return path.with_name(f"{path.stem}{config}{path.suffix}")
