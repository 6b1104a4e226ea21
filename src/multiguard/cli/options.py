"""Options made from configs: a field's name, type, range, default and help are declared once, in the config.

A command takes configs as parameters; `with_options` gives it an option for each of their fields, and hands it the
configs built from the options that were typed.
"""

import inspect
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT
from msgspec.structs import FieldInfo
from typer import Option

from multiguard.errors import InvalidInputError
from multiguard.io.config import (
    Config,
    checked,
    config_fields,
    described_as,
    expected,
    field_types,
    members,
    plain_type,
    words,
)
from multiguard.io.names import is_unicode, unknown_name

Force = Annotated[bool, Option("--force", help="Replace an older result, and write beside files of others.")]
ForceOther = Annotated[bool, Option("--force", help="Discard another run's work, and write beside files of others.")]
Sigma = Annotated[float | None, Option(help="Gaussian noise (l2), for pixels in [0, 1] [the model folder's].")]
NoiseText = Annotated[
    str | None,
    Option("--noise", help="Other noise: uniform:0.5 (l1), pixels:45 (changed pixels) or band:4 (a patch)."),
]

_VERBS = (
    "is ",
    "are ",
    "must ",
    "has ",
    "holds ",
    "belongs ",
    "describes ",
    "tells ",
    "= ",
)  # after an argument in a message
RARE = ("mean", "std", "denoiser")  # of a model: by --set, or in a YAML file
_Set = Annotated[
    list[str] | None,
    Option("--set", help="Any other setting, by its name in the docs; repeat for several.", metavar="NAME=VALUE"),
]


@dataclass(frozen=True)
class Fields:
    """Which fields of a config a command offers, and how."""

    config: type[Config] | None = None  # where the parameter is a dict of only the values that were typed
    only: Sequence[str] = ()  # empty for all
    without: Sequence[str] = ()
    help: Mapping[str, str] = field(default_factory=dict)  # texts that differ from the config's
    rest: bool | Sequence[str] = False  # which of the others --set gives


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of its config parameters; no two fields share an option.

    Its `options` are a table from argument to option. If a config gives its rest, `--set NAME=VALUE` sets each of its
    fields that has no option.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: dict[str, inspect.Parameter] = {}
    configs: dict[str, _Options] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        options = _options(hints[name])
        if options is None:
            parameters[name] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
            continue
        configs[name] = options
        for one in options.of:
            if one.key in parameters:
                raise TypeError(f"{command.__name__}: two fields have the option --{one.name}; rename one of them")
            parameters[one.key] = one.parameter(required=one.required and not options.partial, panel=options.panel)
    if any(options.rest for options in configs.values()):
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters["set_"] = inspect.Parameter("set_", kind, default=None, annotation=_Set)

    def run(set_: Sequence[str] | None = None, **values: Any) -> None:
        for name, value in values.items():
            _check_text(name, value)
        settings = _settings(configs, set_ or ())
        built = {name: options.build(values, settings[name]) for name, options in configs.items()}
        command(**built, **{name: value for name, value in values.items() if name in hints and name not in built})

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.options = {  # type: ignore[attr-defined]
        **{name: f"--{name}" for name in parameters},
        **{one.field.name: f"--{one.name}" for options in configs.values() for one in options.of},
    }
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def _settings(configs: Mapping[str, "_Options"], typed: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The values that settings such as "crop=0.25" give to the fields of each config parameter."""
    found: dict[str, dict[str, Any]] = {name: {} for name in configs}
    where = {one.field.name: (name, one) for name, options in reversed(list(configs.items())) for one in options.rest}
    for text in typed:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidInputError(f"--set {text}: expected NAME=VALUE")
        if key not in where:
            raise InvalidInputError(f"--set {text}: {unknown_name('setting', key, list(where))}")
        name, one = where[key]
        found[name][key] = one.setting(value)
    return found


def _check_text(name: str, value: Any) -> None:
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, str | Path) and not is_unicode(str(Path(value).absolute())):
        raise InvalidInputError(f"{option} {value}: the name is not UTF-8; rename it")
    if isinstance(value, int | float) and not isinstance(value, bool):
        checked(option, value, type(value))


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


@dataclass(frozen=True)
class _FieldOption:
    """The option of one field."""

    field: FieldInfo
    kind: Any
    help: str
    name: str  # without its dashes

    @property
    def key(self) -> str:
        """The name of the parameter."""
        return self.name.replace("-", "_")

    @property
    def required(self) -> bool:
        """Whether the config has no default for it."""
        return self.field.required

    @property
    def first(self) -> Any:
        """The first type that a value can have."""
        return plain_type(members(self.kind)[0])

    def parameter(self, *, required: bool, panel: str) -> inspect.Parameter:
        """The parameter that typer reads; None stands for an option that was not typed."""
        kind = self._typed_kind()
        two_sided = kind is bool and self._default is None
        names = f"--{self.name}/--no-{self.name}" if two_sided else f"--{self.name}"
        declared = Option(names, help=self._help(), metavar=self._metavar(), show_default=False, rich_help_panel=panel)
        default = inspect.Parameter.empty if required else None
        annotation: Any = Annotated[kind if required else kind | None, declared]
        return inspect.Parameter(self.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def value(self, typed: Any) -> Any:
        """What the field takes for what was typed; a mistake raises `InvalidInputError` that names the option."""
        option = f"--{self.name}"
        if get_origin(self.first) is tuple:
            typed = self._several(option, ",".join(typed))
        elif self.first is bool and self.name.startswith("no-"):
            return not typed
        elif words(self.kind) and self.first is int and typed not in words(self.kind):
            try:
                typed = int(typed)
            except ValueError:
                raise InvalidInputError(f"{option} {typed}: expected {expected(self.kind)}") from None
        return checked(option, typed, self.kind)

    def setting(self, text: str) -> Any:
        """What the field takes for the text of a setting; a mistake raises `InvalidInputError` that names the field."""
        value: Any = text
        if get_origin(self.first) is tuple:
            value = self._several(self.field.name, text)
        elif self.first not in (str, Path):
            with suppress(msgspec.ValidationError):
                value = msgspec.convert(text, self.first | None, strict=False)
        return checked(self.field.name, value, self.kind)

    def _several(self, name: str, text: str) -> list[Any]:
        kind = plain_type(get_args(self.first)[0])
        try:
            return [kind(word) if kind in (int, float) else word for word in map(str.strip, text.split(","))]
        except ValueError:
            raise InvalidInputError(f"{name} {text}: expected numbers separated by commas") from None

    def _typed_kind(self) -> Any:
        if get_origin(self.first) is tuple:
            return list[str]
        return str if words(self.kind) else self.first

    def _metavar(self) -> str | None:
        if get_origin(self.first) is tuple:
            return f"<{'float' if plain_type(get_args(self.first)[0]) is float else 'str'},...>"
        return "|".join(["<int>"] * (self.first is int) + words(self.kind)) or None

    @property
    def _default(self) -> Any:
        return None if self.field.default is NODEFAULT else self.field.default

    def _help(self) -> str:
        default = self._default
        if default in (None, ()) or isinstance(default, bool) or self.help.rstrip(".").endswith("]"):
            return self.help
        shown = ", ".join(map(str, default)) if isinstance(default, tuple) else default
        return f"{self.help.removesuffix('.')} [{shown}]."


@dataclass(frozen=True)
class _Options:
    """The options of a config parameter of a command."""

    kind: type[Config]
    of: list[_FieldOption]
    rest: list[_FieldOption]  # without options of their own
    partial: bool

    @property
    def panel(self) -> str:
        """The section of the help that lists them."""
        return f"{self.kind.__name__.removesuffix('Config').removesuffix('Part')} options"

    def build(self, values: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
        """The config of the options and settings that were typed; for a partial one, their values by field."""
        typed = {one.field.name: one.value(values[one.key]) for one in self.of if values[one.key] is not None}
        typed |= settings
        return typed if self.partial else self.kind(**typed)


def _options(hint: Any) -> _Options | None:
    """The options of a parameter of this type; None where it is an option of its own."""
    base, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    offered = next((one for one in more if isinstance(one, Fields)), Fields())
    kind = offered.config or base
    if not (isinstance(kind, type) and issubclass(kind, Config)):
        return None
    options, rest = list[_FieldOption](), list[_FieldOption]()
    for one in config_fields(kind):
        text, name = described_as(field_types(kind)[one.name])
        if name == "":
            continue
        shown = offered.help.get(one.name, text), name or one.name.replace("_", "-")
        listed = one.name in offered.only if offered.only else one.name not in offered.without
        if listed or offered.rest is True or (offered.rest and one.name in offered.rest):
            (options if listed else rest).append(_FieldOption(one, field_types(kind)[one.name], *shown))
    return _Options(kind, options, rest, partial=offered.config is not None)
