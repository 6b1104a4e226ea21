"""`multiguard doctor`: what a bug report needs, and the usual causes of trouble."""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from multiguard.cli.terminal import echo

_Folder = Annotated[Path | None, Argument(help="A folder that multiguard reads from or writes to.")]
_Json = Annotated[bool, Option("--json", help="Print JSON.")]
_TROUBLE = 1


def doctor_command(folder: _Folder = None, json_: _Json = False) -> None:
    """Look at this installation: what a bug report needs, and the usual causes of trouble.

    Nothing is sent or fetched. Exit code 1 if something looks wrong.

    Example: multiguard doctor runs
    """
    from multiguard.pipeline.diagnosis import diagnose

    found = diagnose(folder)
    if json_:
        echo(json.dumps({"facts": found.facts, "problems": found.problems}, indent=1))
    else:
        width = max(map(len, found.facts))
        for name, text in found.facts.items():
            echo(f"{name:<{width}}  {text}")
        for problem in found.problems:
            echo(f"problem: {problem}")
        echo("nothing looks wrong" if not found.problems else f"problems: {len(found.problems)}")
    if found.problems:
        raise typer.Exit(_TROUBLE)
