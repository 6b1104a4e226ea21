"""`multiguard verify`: an auditor's one command."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from multiguard.cli.options import Fields, with_options
from multiguard.cli.progress import print_line, progress_bar
from multiguard.errors import InvalidInputError
from multiguard.models.config import ModelConfig
from multiguard.pipeline.verify_config import VerifyConfig

_Run = Annotated[Path, Argument(help="A run folder, or a certificates folder.")]
_Votes = Annotated[Path | None, Option(help="The votes folder [votes beside the certificates].")]
_Tuned = Annotated[Path | None, Option(help="The record of tune that chose the config.", metavar="FILE")]
_Model = Annotated[dict[str, Any], Fields(ModelConfig, help={"spec": "The model: draw a sample of the votes again."})]
_Part = Annotated[dict[str, Any], Fields(VerifyConfig)]
_PublicKey = Annotated[Path | None, Option(help="Require a signature by this ed25519 key (PEM).", metavar="FILE")]
_Sign = Annotated[Path | None, Option(help="If all agrees, sign with this ed25519 private key (PEM).", metavar="FILE")]
_DIFFERS = 1


@with_options
def verify_command(
    run: _Run,
    part: _Part,
    model: _Model,
    votes: _Votes = None,
    tuned: _Tuned = None,
    public_key: _PublicKey = None,
    sign: _Sign = None,
) -> None:
    """Verify certificates: certify the votes again, check every checksum, and compare bit by bit.

    With --model, a random sample of the votes is drawn again, of a run those of its main arm. Exit code 0: all agrees;
    1: something differs; 2: it could not be checked.

    Example: multiguard verify runs/certificates --model runs/digits
    """
    from multiguard.pipeline.arms import find_certificates
    from multiguard.pipeline.verify_job import VerifyJob, verify

    folders = [*find_certificates(run).values()]
    if len(folders) > 1 and (votes or tuned) is not None:
        raise InvalidInputError("--votes and --tuned are of one certificates folder; name that folder instead of a run")
    named, failed, hashes = _model(model, part), 0, dict[Path, str]()
    for folder in folders:
        drawn_with = named if folder == folders[0] else None  # the other arms of a run have models of their own
        job = VerifyJob(folder, votes, drawn_with, VerifyConfig(**part), public_key, tuned)
        with progress_bar("steps") as progress:
            for check in verify(job, progress):
                print_line(f"{'ok    ' if check.passed else 'FAILED'}  {check.text}")
                failed += not check.passed
                if check.certificates_hash is not None:
                    hashes[folder] = check.certificates_hash
    if failed:
        print_line(f"{failed} {'check' if failed == 1 else 'checks'} failed: do not rely on these certificates")
        raise typer.Exit(_DIFFERS)
    for folder in folders if sign is not None else []:
        _sign(folder, sign, hashes[folder])
    print_line("all agrees" + ("" if model else "; --model MODEL also draws a sample of the votes again"))


def _model(given: dict[str, Any], part: dict[str, Any]) -> ModelConfig | None:
    """The model that the user names; options that only it needs would have no effect."""
    if "spec" not in given and (useless := [*given, *part]):
        raise InvalidInputError(f"--{useless[0].replace('_', '-')} is about the votes to draw again; name --model too")
    return ModelConfig(**given) if given else None


def _sign(folder: Path, key: Path | None, certificates_hash: str) -> None:
    from multiguard.results.signature_file import SIGNATURE_NAME, sign_certificates

    assert key is not None
    signature = sign_certificates(folder, key, certificates_hash)
    print_line(f"signed with the key {signature.public_key}: {folder / SIGNATURE_NAME}")
