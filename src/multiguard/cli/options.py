"""Options made from configs: a field's name, type, range, default and help are declared once, in the config.

A command takes configs as parameters; `with_options` gives it an option for the fields that it offers, `--set` for the
others, and hands it the configs built from what was typed.
"""

import inspect
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT
from msgspec.structs import fields
from typer import Option

from multiguard.errors import InvalidInputError
from multiguard.io.config import Config, checked, described_as, field_types, members, plain_type, words
from multiguard.io.names import is_unicode, unknown_name

C = TypeVar("C", bound=Config)
Force = Annotated[bool, Option("--force", help="Replace an older result, and write next to files of others.")]
ForceOther = Annotated[bool, Option("--force", help="Discard another run's work, and write next to files of others.")]
_Set = Annotated[
    list[str] | None,
    Option("--set", help="Any other setting, by its name in the docs; repeat for several.", metavar="NAME=VALUE"),
]
MODEL = ("spec", "labels", "weights", "output")
MODEL_HELP = {"spec": "A built-in name, a model folder, FILE.onnx, timm:NAME, hf:FOLDER or module:function [coco-0.5]."}
# What follows an argument in a message of the library.
_VERBS = ("is ", "are ", "must ", "has ", "holds ", "belongs ", "describes ", "tells ", "= ")


@dataclass(frozen=True)
class Fields:
    """Which fields of a config a command offers as options; `--set` gives the others."""

    only: Sequence[str]
    config: type[Config] | None = None  # if the parameter is a dict of only the values that were typed
    help: Mapping[str, str] = field(default_factory=dict)  # texts that differ from the config's
    others: Sequence[str] | None = None  # what `--set` gives, if not all other fields


@dataclass(frozen=True)
class _FieldOption:
    """A field of a config parameter of a command."""

    parameter: str  # of the command
    name: str  # of the field
    option: str  # without its dashes
    kind: Any
    default: Any
    help: str
    listed: bool  # whether it has an option
    required: bool
    panel: str  # the section of the help

    @property
    def key(self) -> str:
        """The name of the option as a parameter."""
        return self.option.replace("-", "_")

    @property
    def _first(self) -> Any:
        """The first type that a value can have."""
        return plain_type(members(self.kind)[0])

    @property
    def several(self) -> bool:
        """Whether the field is a list."""
        return get_origin(self._first) is tuple

    def declared(self) -> inspect.Parameter:
        """The parameter that typer reads: flags as booleans, all else as text; None stands for what was not typed."""
        flag = self._first is bool
        names = f"--{self.option}/--no-{self.option}" if flag and self.default is None else f"--{self.option}"
        metavar = None if flag else self._metavar()
        option = Option(names, help=self._help(), metavar=metavar, show_default=False, rich_help_panel=self.panel)
        kind: Any = bool if flag else list[str] if self.several else str
        annotation: Any = Annotated[kind if self.required else kind | None, option]
        default = inspect.Parameter.empty if self.required else None
        return inspect.Parameter(self.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def value(self, name: str, typed: Any) -> Any:
        """What the field takes for what was typed; a mistake raises `InvalidInputError` that begins with the name."""
        if isinstance(typed, bool):
            typed = typed != self.option.startswith("no-")
        elif self.several:
            text = typed if isinstance(typed, str) else ",".join(typed)
            typed = tuple(_number(word.strip(), plain_type(get_args(self._first)[0])) for word in text.split(","))
        else:
            typed = _number(typed, self._first)
        return checked(name, typed, self.kind)

    def _metavar(self) -> str:
        kind = plain_type(get_args(self._first)[0]) if self.several else self._first
        shown = "|".join(["<int>"] * (kind is int) + words(self.kind))
        shown = shown or {int: "<int>", float: "<float>", Path: "<path>"}.get(kind, "<str>")
        return f"{shown.removesuffix('>')},...>" if self.several else shown

    def _help(self) -> str:
        if self.default in (None, (), NODEFAULT) or isinstance(self.default, bool) or self.help.endswith("]."):
            return self.help
        shown = ", ".join(map(str, self.default)) if isinstance(self.default, tuple) else self.default
        return f"{self.help.removesuffix('.')} [{shown}]."


def _number(text: str, kind: Any) -> Any:
    """The number, or none, that a text stands for; other texts stay."""
    if kind not in (str, Path):
        with suppress(msgspec.ValidationError):
            return msgspec.convert(text, kind | None, strict=False)
    return text


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field that its config parameters offer; no two fields share an option.

    Its `options` are a table from argument to option.
    """
    hints = get_type_hints(command, include_extras=True)
    configs = {name: found for name in hints if (found := _config_of(hints[name])) is not None}
    offered = [one for name, found in configs.items() for one in _fields(name, *found)]
    options = {one.key: one for one in offered if one.listed}
    settings = {one.name: one for one in reversed(offered) if not one.listed}
    parameters = {
        name: own.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, own in inspect.signature(command).parameters.items()
        if name not in configs
    }
    for one in offered:
        if one.listed and (one.key in parameters or options[one.key] is not one):
            raise TypeError(f"{command.__name__}: two fields have the option --{one.option}; rename one of them")
    parameters |= {key: one.declared() for key, one in options.items()}
    if settings:
        set_option = inspect.Parameter("set_", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_Set)
        parameters["set_"] = set_option

    def run(set_: Sequence[str] | None = None, **values: Any) -> None:
        for name, value in values.items():
            _check_unicode(name, value)
        found: dict[str, dict[str, Any]] = {name: {} for name in configs}
        for key, one in options.items():
            if values[key] is not None:
                found[one.parameter][one.name] = one.value(f"--{one.option}", values[key])
        for name, text in _settings(set_ or (), settings, "--set").items():
            found[settings[name].parameter][name] = settings[name].value(name, text)
        built = {
            name: found[name] if wanted.config else kind(**found[name]) for name, (kind, wanted) in configs.items()
        }
        command(**built, **{name: value for name, value in values.items() if name not in options})

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    own_names = {name: f"--{name}" for name in parameters}
    run.options = own_names | {one.name: f"--{one.option}" for one in options.values()}  # type: ignore[attr-defined]
    return run


def _config_of(hint: Any) -> tuple[type[Config], Fields] | None:
    """The config of a parameter of this type, and what it offers; None for an option of its own."""
    base, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if (offered := next((one for one in more if isinstance(one, Fields)), None)) is not None:
        return offered.config or base, offered
    if isinstance(base, type) and issubclass(base, Config):
        return base, Fields([one.name for one in fields(base)])
    return None


def _fields(parameter: str, kind: type[Config], offered: Fields) -> list[_FieldOption]:
    """The fields that have an option, or that `--set` gives."""
    found = []
    for one in fields(kind):
        typed, listed = field_types(kind)[one.name], one.name in offered.only
        text, option = described_as(typed)
        if option == "" or not (listed or offered.others is None or one.name in offered.others):
            continue
        option, text = option or one.name.replace("_", "-"), offered.help.get(one.name, text)
        required, panel = one.required and offered.config is None, f"{kind.__name__.removesuffix('Config')} options"
        found.append(_FieldOption(parameter, one.name, option, typed, one.default, text, listed, required, panel))
    return found


def from_settings(kind: type[C], texts: Sequence[str], option: str) -> C:
    """The config that settings such as "k=1,3" describe; the name of the option begins every message about them."""
    settings = {one.name: one for one in _fields("", kind, Fields(()))}
    typed = _settings(texts, settings, option)
    return kind(**{name: settings[name].value(f"{option} {name}", text) for name, text in typed.items()})


def _settings(texts: Sequence[str], settings: Mapping[str, _FieldOption], option: str) -> dict[str, str]:
    """The text of each setting by its name; a list that is named again is continued."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInputError(f"{option} {text}: expected NAME=VALUE")
        if name not in settings:
            raise InvalidInputError(f"{option} {text}: {unknown_name('setting', name, settings)}")
        found[name] = f"{found[name]},{value}" if name in found and settings[name].several else value
    return found


def _check_unicode(name: str, value: Any) -> None:
    if isinstance(value, str | Path) and not is_unicode(os.path.abspath(value)):  # noqa: PTH100 - keeps a text
        raise InvalidInputError(f"--{name.replace('_', '-')} {value}: the name is not UTF-8; rename it")


def typed_command() -> str:
    """The command line as it was typed, for the record."""
    return shlex.join(["multiguard", *sys.argv[1:]])


def name_option(message: str, options: Mapping[str, str]) -> str:
    """The message of the library with the option in place of the argument that it begins with.

    >>> name_option("k_prime = 3, but these votes keep 2 labels per draw", {"k_prime": "--k-prime"})
    '--k-prime = 3, but these votes keep 2 labels per draw'
    """
    argument, _, rest = message.partition(" ")
    return f"{options[argument]} {rest}" if argument in options and rest.startswith(_VERBS) else message
