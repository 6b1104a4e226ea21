"""The command `multiguard`: its subcommands, and one line instead of a traceback for a mistake."""

import errno
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from multiguard.cli.attack import attack_command
from multiguard.cli.certify import certify_command
from multiguard.cli.data import data_app
from multiguard.cli.predict import predict_command
from multiguard.cli.report import report_command
from multiguard.cli.run import demo_command, run_command
from multiguard.cli.signals import immediate_stop, stopped_line
from multiguard.cli.terminal import echo
from multiguard.cli.train import train_command
from multiguard.cli.vote import vote_command
from multiguard.errors import InvalidInputError, MultiGuardError
from multiguard.io.lock import NoLocksWarning
from multiguard.io.ranks import this_rank

_MISTAKE = 2
_GOES_ON = ("vote", "run", "demo")
_TOGETHER = ("train", "vote")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _OneLine(TyperGroup):
    """Says what went wrong in one line where the user can mend it, or wanted it; a bug keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        try:
            with immediate_stop(), _warned():
                return super().invoke(ctx)
        except MultiGuardError as error:
            raise _left(str(error), _MISTAKE) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _left(_told(error), _MISTAKE) from error
        except KeyboardInterrupt as stopped:
            raise stopped_line(stopped, _how_to_go_on(ctx.invoked_subcommand)) from stopped


def _require_alone(command: str | None) -> None:
    """Pass only where the command can be one of several processes, or is none."""
    if this_rank().count == 1 or command in _TOGETHER:
        return
    raise InvalidInputError(
        f"{command} is work for one process, and this is one of {this_rank().count} (WORLD_SIZE); train and vote share "
        f"their work among many, {command} is run without torchrun and without WORLD_SIZE in the environment"
    )


@contextmanager
def _warned() -> Iterator[None]:
    """While the block lasts, what the user must know of a folder without locks is a line on stderr."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, NoLocksWarning):
                echo(f"multiguard: note: {message}", err=True)
            else:
                usual(message, category, *where, **more)

        warnings.simplefilter("always", NoLocksWarning)
        warnings.showwarning = show
        yield


def _how_to_go_on(command: str | None) -> str:
    if command == "train":
        return "the epochs that have ended are kept, and the same command goes on"
    return "the same command goes on" if command in _GOES_ON else "nothing is lost: run it again"


def _left(message: str, code: int) -> typer.Exit:
    """Say what is wrong, and in which process where it is not the main one."""
    echo(f"{_who()}: {' '.join(message.split())}", err=True)
    return typer.Exit(code)


def _who() -> str:
    try:
        rank = this_rank()
    except InvalidInputError:  # it is what went wrong
        return "multiguard"
    return "multiguard" if rank.is_main else f"multiguard, process {rank.number} of {rank.count}"


def _told(error: OSError) -> str:
    """What the system said, the file first where it is known."""
    if error.filename is None or error.strerror is None:
        return str(error) or type(error).__name__
    kept = "; what was there before is as it was" if error.errno in _FULL else ""
    return f"{error.filename}: {error.strerror}{kept}"


app = typer.Typer(
    name="multiguard",
    cls=_OneLine,
    help="Provable robustness for any multi-label classifier.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo_command)
app.command("train")(train_command)
app.command("vote")(vote_command)
app.command("certify")(certify_command)
app.command("report")(report_command)
app.command("attack")(attack_command)
app.command("predict")(predict_command)
app.command("run")(run_command)
app.add_typer(data_app, name="data")


@app.callback()
def _root(context: typer.Context) -> None:
    """Provable robustness for any multi-label classifier."""
    _require_alone(context.invoked_subcommand)


def run() -> None:
    """Run the command; an error that the user can mend is one line on stderr and exit code 2."""
    # Threads that wait for each other give the core away soon: beside other work they would block each other for long.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # An image is decoded whole or refused in our own words; what Pillow warns of beside says no more.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    app()
