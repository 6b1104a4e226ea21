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
MODEL_HELP = {"spec": "A built-in name, a model folder, FILE.onnx, timm:NAME, hf:FOLDER or module:function [coco]."}
# What follows an argument in a message of the library.
_VERBS = ("is ", "are ", "must ", "has ", "holds ", "belongs ", "describes ", "tells ", "= ")


@dataclass(frozen=True)
class Fields:
    """Which fields of a config a command offers as options; `--set` gives the others."""

    only: Sequence[str]
    config: type[Config] | None = None  # if the parameter is a dict of only the values that were typed
    help: Mapping[str, str] = field(default_factory=dict)  # texts that differ from the config's
    others: Sequence[str] | None = None  # what `--set` gives, if not all other fields


class _FieldOption:
    """The option, or the setting, of a field of a config."""

    def __init__(self, parameter: str, config: type[Config], name: str, offered: Fields) -> None:
        one = next(one for one in fields(config) if one.name == name)
        self.parameter, self.name, self.kind, self.default = parameter, name, field_types(config)[name], one.default
        text, option = described_as(self.kind)
        self.help, self.hidden = offered.help.get(name, text), option == ""
        self.option = option or name.replace("_", "-")  # without its dashes
        self.key = self.option.replace("-", "_")  # as a parameter
        self.required = one.required and offered.config is None
        self.panel = f"{config.__name__.removesuffix('Config')} options"  # the section of the help
        first = plain_type(members(self.kind)[0])
        self.several = get_origin(first) is tuple  # whether the field is a list
        self.first = plain_type(get_args(first)[0]) if self.several else first  # the first type that a value can have

    def declared(self) -> inspect.Parameter:
        """The parameter that typer reads: flags as booleans, all else as text; None stands for what was not typed."""
        flag = self.first is bool
        names = f"--{self.option}/--no-{self.option}" if flag and self.default is None else f"--{self.option}"
        shown = "|".join(["<int>"] * (self.first is int) + words(self.kind))
        shown = shown or {int: "<int>", float: "<float>", Path: "<path>"}.get(self.first, "<str>")
        metavar = None if flag else f"{shown.removesuffix('>')},...>" if self.several else shown
        text = self.help
        if not (flag or self.default in (None, (), NODEFAULT) or text.endswith("].")):
            given = ", ".join(map(str, self.default)) if isinstance(self.default, tuple) else self.default
            text = f"{text.removesuffix('.')} [{given}]."
        option = Option(names, help=text, metavar=metavar, show_default=False, rich_help_panel=self.panel)
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
            typed = tuple(_number(word.strip(), self.first) for word in text.split(","))
        else:
            typed = _number(typed, self.first)
        return checked(name, typed, self.kind)


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
    options: dict[str, _FieldOption] = {}
    settings: dict[str, _FieldOption] = {}
    keyword, own = inspect.Parameter.KEYWORD_ONLY, inspect.signature(command).parameters
    parameters = {name: own[name].replace(kind=keyword, annotation=hints[name]) for name in own if name not in configs}
    for parameter, (kind, offered) in configs.items():
        for one in _offered(parameter, kind, offered):
            if one.name not in offered.only:
                settings.setdefault(one.name, one)
                continue
            if one.key in parameters:
                raise TypeError(f"{command.__name__}: two fields have the option --{one.option}; rename one of them")
            options[one.key], parameters[one.key] = one, one.declared()
    parameters |= {"set_": inspect.Parameter("set_", keyword, default=None, annotation=_Set)} if settings else {}

    def run(set_: Sequence[str] | None = None, **values: Any) -> None:
        for name, value in values.items():
            _check_unicode(name, value)
        found: dict[str, dict[str, Any]] = {name: {} for name in configs}
        for key, one in options.items():
            if values[key] is not None:
                found[one.parameter][one.name] = one.value(f"--{one.option}", values[key])
        for name, text in _settings(set_ or (), settings, "--set").items():
            found[settings[name].parameter][name] = settings[name].value(name, text)
        own = {name: value for name, value in values.items() if name not in options}
        command(
            **own, **{name: found[name] if at.config else one(**found[name]) for name, (one, at) in configs.items()}
        )

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    own_names = {name: f"--{name}" for name in parameters}
    run.options = own_names | {one.name: f"--{one.option}" for one in options.values()}  # type: ignore[attr-defined]
    return run


def _check_unicode(name: str, value: Any) -> None:
    if isinstance(value, str | Path) and not is_unicode(os.path.abspath(value)):  # noqa: PTH100 - keeps a text
        raise InvalidInputError(f"--{name.replace('_', '-')} {value}: the name is not UTF-8; rename it")


def _config_of(hint: Any) -> tuple[type[Config], Fields] | None:
    """The config of a parameter of this type, and what it offers; None for an option of its own."""
    base, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if (offered := next((one for one in more if isinstance(one, Fields)), None)) is not None:
        return offered.config or base, offered
    if isinstance(base, type) and issubclass(base, Config):
        return base, Fields([one.name for one in fields(base)])
    return None


def _offered(parameter: str, kind: type[Config], offered: Fields) -> list[_FieldOption]:
    """The fields that have an option, or that `--set` gives."""
    names = [*field_types(kind)] if offered.others is None else [*offered.only, *offered.others]
    found = [_FieldOption(parameter, kind, name, offered) for name in field_types(kind) if name in names]
    return [one for one in found if not one.hidden]


def from_settings(kind: type[C], texts: Sequence[str], option: str) -> C:
    """The config that settings such as "k=1,3" describe; the name of the option begins every message about them."""
    settings = {one.name: one for one in _offered("", kind, Fields(()))}
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
