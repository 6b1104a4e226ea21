"""`multiguard calibrate`: the labels that hold a recall under attack."""

from pathlib import Path
from textwrap import fill
from typing import Annotated

from typer import Argument, Option

from multiguard.cli.console import echo, progress_bar
from multiguard.cli.options import Fields, Force, with_options
from multiguard.evaluate.calibration import NOT_PROMISED, CalibrateConfig

_Votes = Annotated[list[Path], Argument(help="Votes folders of the same labelled images, one per model or noise.")]
_Config = Annotated[CalibrateConfig, Fields(("recall", "radius", "wrong", "confidence", "k_prime", "draws", "seed"))]
_Out = Annotated[Path | None, Option(help="The file to write [calibration.json next to the first votes folder].")]


@with_options
def calibrate_command(votes: _Votes, config: _Config, out: _Out = None, force: Force = False) -> None:
    """Promise that the returned labels hold a fraction of the true ones, even under attack.

    A random part of the images chooses k' and the noise, most of them set how many draws must hit a label, and the
    rest says what to expect. If only the set of all labels would keep the promise, nothing is promised.

    Example: multiguard calibrate runs/votes --recall 0.8 --radius 0.5
    """
    from multiguard.evaluate import calibrate
    from multiguard.evaluate.calibration import CALIBRATION_NAME
    from multiguard.votes import read_votes

    opened, where = [read_votes(folder) for folder in votes], out or votes[0].parent / CALIBRATION_NAME
    with progress_bar("candidates") as progress:
        found = calibrate(
            config, opened, out=where, force=force, progress=lambda *counts: progress("choosing", *counts)
        )
    echo(fill(f"Deployment: {found.sentence}", 80))
    echo(f"\n{fill(found.how, 80)}")
    echo(f"\n{fill(found.expected, 80)}")
    echo(f"\n{fill(NOT_PROMISED, 80)}")
    echo(f"calibration: {where}")
