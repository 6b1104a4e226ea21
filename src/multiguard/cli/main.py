"""The command `multiguard`: its subcommands, and one line instead of a traceback for a mistake to mend."""

import sys

import typer

from multiguard.cli.data import data_app
from multiguard.cli.train import train_command
from multiguard.errors import MultiGuardError

app = typer.Typer(
    name="multiguard",
    help="Provable robustness for any multi-label classifier.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("train")(train_command)
app.add_typer(data_app, name="data")


@app.callback()
def _root() -> None:
    """Provable robustness for any multi-label classifier."""


def run() -> None:
    """Run the command; an error that the user can mend is one line on stderr and exit code 2."""
    try:
        app()
    except MultiGuardError as error:
        typer.echo(f"multiguard: {' '.join(str(error).split())}", err=True)
        sys.exit(2)
