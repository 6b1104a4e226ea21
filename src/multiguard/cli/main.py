"""The command `multiguard`: its subcommands, imported when they are used, and one line instead of a traceback."""

import errno
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command as click_command

from multiguard.cli.signals import immediate_stop, stopped_exit
from multiguard.errors import InvalidInputError, MultiGuardError
from multiguard.io.lock import this_rank
from multiguard.version import __version__

_MISTAKE = 2
# What happens after a signal.
_ADVICE = dict.fromkeys(("vote", "run"), "the same command resumes")
_ADVICE |= {"train": "the finished epochs are kept, and the same command resumes"}
_PACKAGES = (  # on which numbers may depend
    *("numpy", "scipy", "pyarrow", "pillow", "scikit-learn", "torch", "torchvision", "timm", "transformers"),
    *("onnxruntime", "accelerate", "matplotlib", "msgspec", "typer"),
)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# The extra that installs a missing module.
_EXTRAS = dict.fromkeys(("torch", "safetensors", "accelerate"), "torch")
_EXTRAS |= {"starlette": "serve", "uvicorn": "serve", "ray": "ray"}
# The commands of each panel of the help; a command is `NAME_command` in the module of its name.
_PANELS = {
    "From one recipe": {"run": "Train, vote, certify and report as a recipe says."},
    "Step by step": {
        "train": "Train a base classifier under noise and write its model folder.",
        "models": "List the built-in models, or show the card of one.",
        "vote": "Classify many noisy copies of each image and keep every vote.",
        "certify": "Certify the votes of every image and average the scores over radii.",
        "calibrate": "Promise that the returned labels hold a fraction of the true ones, even under attack.",
        "report": "Make the page of a run with its figures and tables, or compare several runs.",
    },
    "Also": {
        "predict": "Predict the labels of images, and certify how far each of them stays.",
        "serve": "Show live what is proved of a photo: a page on this machine, with an attack to try.",
        "attack": "Attack the smoothed classifier and compare with what is certified.",
        "verify": "Verify certificates: certify the votes again, check every checksum, and compare bit by bit.",
    },
}
_UsageError: Any = typer.BadParameter.__mro__[1]  # a missing argument, an unknown option or command


class _Grouped(TyperCommand):
    """Lists options under the config that they belong to."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections: arguments and the command's own options first."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            own = "Arguments" if parameter.param_type_name == "argument" else "Options"
            name = getattr(parameter, "rich_help_panel", None) or own
            if (record := parameter.get_help_record(ctx)) is not None:
                sections.setdefault(name, []).append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


class _Commands(TyperGroup):
    """Imports a subcommand when it is named, so that the help and a wrong name cost no import.

    A mistake that the user can fix, and an interruption, are one line; a bug keeps its traceback.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands."""
        return [name for panel in _PANELS.values() for name in panel]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name."""
        known = self.list_commands(ctx)
        if cmd_name not in known:
            near = get_close_matches(cmd_name, known, n=1)
            hint = f" (did you mean '{near[0]}'?)" if near else ""
            raise _UsageError(f"No such command '{cmd_name}'{hint}")
        alone = _typer()
        alone.command(cmd_name, cls=_Grouped)(_function(cmd_name))
        return click_command(alone)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in their panels."""
        for name, commands in _PANELS.items():
            with formatter.section(name):
                formatter.write_dl(list(commands.items()))

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        try:
            with immediate_stop():
                return super().invoke(ctx)
        except _UsageError as error:
            help_ = " ".join(("multiguard", *filter(None, (ctx.invoked_subcommand,)), "--help"))
            raise _exit_with(f"{error.format_message().rstrip('.')}; see {help_}") from error
        except MultiGuardError as error:
            raise _exit_with(_named(ctx.invoked_subcommand, str(error))) from error
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            if (extra := _EXTRAS.get(module)) is None:
                raise
            fix = f"pip install 'multiguard[{extra}]'"
            raise _exit_with(f"{ctx.invoked_subcommand} needs {module}: {fix}") from error
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _exit_with(_system_message(error)) from error
        except KeyboardInterrupt as stopped:
            raise stopped_exit(
                stopped, _ADVICE.get(ctx.invoked_subcommand, "nothing is lost: run it again")
            ) from stopped


def _exit_with(message: str) -> typer.Exit:
    """Print what is wrong, and in which process if it is not the main one."""
    from multiguard.cli.console import echo

    try:
        rank = this_rank()
        who = "multiguard" if rank.is_main else f"multiguard, process {rank.number} of {rank.count}"
    except InvalidInputError:  # it is what went wrong
        who = "multiguard"
    echo(f"{who}: {' '.join(message.split())}", err=True)
    return typer.Exit(_MISTAKE)


def _named(command: str | None, message: str) -> str:
    """The message with the option that the user typed; a recipe has names of its own."""
    from multiguard.cli.options import name_option

    return name_option(message, getattr(_function(command), "options", {}) if command else {})


def _function(command: str) -> Any:
    return getattr(import_module(f"multiguard.cli.{command}"), f"{command}_command")


def _system_message(error: OSError) -> str:
    """The system's message, the file first if it is known."""
    if error.filename is None or error.strerror is None:
        return str(error) or type(error).__name__
    kept = "; nothing that was there before has changed" if error.errno in _FULL else ""
    return f"{error.filename}: {error.strerror}{kept}"


def _typer(**how: Any) -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **how)


app = _typer(
    name="multiguard", cls=_Commands, help="Provable robustness for any multi-label classifier.", no_args_is_help=True
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"multiguard {__version__}")
        typer.echo(f"Python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores")
        typer.echo(", ".join(_installed()))
        raise typer.Exit


def _installed() -> Iterator[str]:
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"


_VERSION_HELP = "Show what a bug report needs."
_Version = Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help=_VERSION_HELP)]


@app.callback()
def _root(context: typer.Context, version: _Version = False) -> None:
    """Provable robustness for any multi-label classifier."""
    command, rank = context.invoked_subcommand, this_rank()
    if rank.count > 1 and command != "train":
        raise InvalidInputError(
            f"{command} runs in one process, and this is one of {rank.count} (WORLD_SIZE); only train runs "
            f"in several: run {command} without torchrun and without WORLD_SIZE in the environment"
        )


def run() -> None:
    """Run the command; a mistake that the user can fix is one line on stderr and exit code 2."""
    # Waiting threads yield their core soon; otherwise they would block each other for long next to other work.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    # A bad image is refused with our own message; Pillow's warnings say no more.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    warnings.formatwarning = lambda message, *_, **__: f"multiguard: note: {message}\n"
    app()
