"""`multiguard verify`: an auditor's one command."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from multiguard.cli.console import print_line, progress_bar
from multiguard.cli.options import Fields, with_options
from multiguard.errors import InvalidInputError
from multiguard.models.config import ModelConfig
from multiguard.verify.config import VerifyConfig

_Run = Annotated[Path, Argument(help="A run folder, or a certificates folder.")]
_Votes = Annotated[Path | None, Option(help="The votes folder [votes beside the certificates].")]
_Tuned = Annotated[Path | None, Option(help="The record of tune that chose the config.", metavar="FILE")]
_MODEL_HELP = {"spec": "The model: draw a sample of the votes again."}
_Model = Annotated[dict[str, Any], Fields(("spec", "output"), ModelConfig, _MODEL_HELP)]
_Config = Annotated[dict[str, Any], Fields(("images",), VerifyConfig)]
_DIFFERS = 1


@with_options
def verify_command(run: _Run, config: _Config, model: _Model, votes: _Votes = None, tuned: _Tuned = None) -> None:
    """Verify certificates: certify the votes again, check every checksum, and compare bit by bit.

    With --model, a random sample of the votes is drawn again, of a run those of its main arm. Exit code 0: all agrees;
    1: something differs; 2: it could not be checked.

    Example: multiguard verify runs/certificates --model runs/digits
    """
    from multiguard.run.arms import find_certificates
    from multiguard.verify import verify

    folders = [*find_certificates(run).values()]
    if len(folders) > 1 and (votes or tuned) is not None:
        raise InvalidInputError("--votes and --tuned are of one certificates folder; name that folder instead of a run")
    if "spec" not in model and (useless := [*model, *config]):
        raise InvalidInputError(f"{useless[0]} is about the votes to draw again; name --model too")
    failed = 0
    for folder in folders:
        # The other arms of a run have models of their own.
        drawn_with = ModelConfig(**model) if model and folder == folders[0] else None
        with progress_bar("steps") as progress:
            named = {"votes": votes, "tuned": tuned}
            for check in verify(VerifyConfig(**config), folder, model=drawn_with, progress=progress, **named):
                print_line(f"{'ok    ' if check.passed else 'FAILED'}  {check.text}")
                failed += not check.passed
    if failed:
        print_line(f"{failed} {'check' if failed == 1 else 'checks'} failed: do not rely on these certificates")
        raise typer.Exit(_DIFFERS)
    print_line("all agrees" + ("" if model else "; --model MODEL also draws a sample of the votes again"))
