"""`multiguard verify`: an auditor's one command."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from multiguard.cli.console import print_line, progress_bar
from multiguard.cli.options import Fields, with_options
from multiguard.errors import InvalidInputError
from multiguard.io.config import from_tree
from multiguard.models.config import ModelConfig
from multiguard.verify.config import VerifyConfig

_Run = Annotated[Path, Argument(help="A run folder, or a certificates folder.")]
_Votes = Annotated[Path | None, Option(help="The votes folder [votes next to the certificates].")]
_Calibration = Annotated[Path | None, Option(help="The calibration that chose the rule.", metavar="FILE")]
_MODEL_HELP = {"spec": "The model: draw a sample of the votes again."}
_Model = Annotated[dict[str, Any], Fields(("spec", "output"), ModelConfig, _MODEL_HELP)]
_Config = Annotated[dict[str, Any], Fields(("data", "root", "images"), VerifyConfig)]
_DIFFERS = 1
_WORDS = {True: "ok      ", False: "FAILED  ", None: "not checked: "}


@with_options
def verify_command(
    run: _Run, config: _Config, model: _Model, votes: _Votes = None, calibration: _Calibration = None
) -> None:
    """Verify certificates: certify the votes again, check every checksum, and compare bit by bit.

    With --data or --root, all ids, labels and names are compared with your images. With --model a random sample of the
    votes is drawn again, of a run only of its main arm. The page and the tables next to the certificates are made
    again. Exit code 0: all that was checked agrees; 1: something differs; 2: it could not be checked.

    Example: multiguard verify runs/certificates --model runs/digits --data digits
    """
    from multiguard.run.arms import find_certificates, path_in_run
    from multiguard.verify import verify

    folders = find_certificates(run)
    if len(folders) > 1 and (votes or calibration) is not None:
        raise InvalidInputError(
            "--votes and --calibration are of one certificates folder; name that folder instead of a run"
        )
    own_images = bool(config.keys() & {"data", "root", "split", "table"})
    drawing = config.keys() - ({"data", "root", "split", "table", "images", "seed"} if own_images else set())
    named = from_tree(ModelConfig, model) if model else None
    if named is None and drawing:
        raise InvalidInputError(f"{min(drawing)} is about the votes to draw again; name --model too")
    page = path_in_run(folders[""], "report.html")
    found: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    checks = partial(verify, VerifyConfig(**config), folders, votes=votes, calibration=calibration, model=named)
    with progress_bar("steps") as progress:
        for check in checks(page=page if page.exists() else None, progress=progress):
            found[check.passed].append(check.text)
            if check.passed is not None:
                print_line(f"{_WORDS[check.passed]}{check.text}")
    for text in found[None]:
        print_line(f"{_WORDS[None]}{text}")
    if failed := len(found[False]):
        print_line(f"{failed} {'check' if failed == 1 else 'checks'} failed: do not rely on these certificates")
        raise typer.Exit(_DIFFERS)
    print_line("all that was checked agrees")
