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
from multiguard.cli.signals import immediate_stop, stopped_exit
from multiguard.cli.terminal import echo
from multiguard.cli.train import train_command
from multiguard.cli.vote import vote_command
from multiguard.errors import InvalidInputError, MultiGuardError
from multiguard.io.lock import NoLocksWarning
from multiguard.io.ranks import this_rank

_MISTAKE = 2
_RESUMES = ("vote", "run", "demo")
_DISTRIBUTED = ("train", "vote")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _OneLine(TyperGroup):
    """Prints one line for a mistake that the user can fix and for an interruption; a bug keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        try:
            with immediate_stop(), _lock_warnings():
                return super().invoke(ctx)
        except MultiGuardError as error:
            raise _exit_with(str(error), _MISTAKE) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _exit_with(_system_message(error), _MISTAKE) from error
        except KeyboardInterrupt as stopped:
            raise stopped_exit(stopped, _advice(ctx.invoked_subcommand)) from stopped


def _check_single(command: str | None) -> None:
    """Raises unless the command may run in several processes, or runs in one."""
    if this_rank().count == 1 or command in _DISTRIBUTED:
        return
    raise InvalidInputError(
        f"{command} runs in one process, and this is one of {this_rank().count} (WORLD_SIZE); only train and vote run "
        f"in several: run {command} without torchrun and without WORLD_SIZE in the environment"
    )


@contextmanager
def _lock_warnings() -> Iterator[None]:
    """While the block lasts, a warning about a folder without locks is one line on stderr."""
    with warnings.catch_warnings():
        show_other = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, NoLocksWarning):
                echo(f"multiguard: note: {message}", err=True)
            else:
                show_other(message, category, *where, **more)

        warnings.simplefilter("always", NoLocksWarning)
        warnings.showwarning = show
        yield


def _advice(command: str | None) -> str:
    if command == "train":
        return "the finished epochs are kept, and the same command resumes"
    return "the same command resumes" if command in _RESUMES else "nothing is lost: run it again"


def _exit_with(message: str, code: int) -> typer.Exit:
    """Print what is wrong, and in which process if it is not the main one."""
    echo(f"{_who()}: {' '.join(message.split())}", err=True)
    return typer.Exit(code)


def _who() -> str:
    try:
        rank = this_rank()
    except InvalidInputError:  # it is what went wrong
        return "multiguard"
    return "multiguard" if rank.is_main else f"multiguard, process {rank.number} of {rank.count}"


def _system_message(error: OSError) -> str:
    """The system's message, the file first if it is known."""
    if error.filename is None or error.strerror is None:
        return str(error) or type(error).__name__
    kept = "; nothing that was there before has changed" if error.errno in _FULL else ""
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
    _check_single(context.invoked_subcommand)


def run() -> None:
    """Run the command; a mistake that the user can fix is one line on stderr and exit code 2."""
    # Waiting threads yield their core soon; otherwise they would block each other for long beside other work.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # A bad image is refused with our own message; Pillow's warnings say no more.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    app()
