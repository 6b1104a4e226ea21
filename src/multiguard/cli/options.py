"""Options made from config dataclasses: a field's name, type, default and help are declared once, in the config.

A command takes configs as parameters; `with_options` gives it an option for each of their fields, and hands it the
configs built from the options that were typed.
"""

import inspect
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from typer import Option

from multiguard.errors import InvalidInputError
from multiguard.io.names import is_unicode, unknown_name
from multiguard.pipeline.part_fields import Help, check_value, field_help
from multiguard.pipeline.recipe_file import expected_text, union_members

Force = Annotated[bool, Option("--force", help="Replace an older result, and write beside files of others.")]
ForceOther = Annotated[bool, Option("--force", help="Discard another run's work, and write beside files of others.")]
Sigma = Annotated[float | None, Option(help="Gaussian noise (l2), for pixels in [0, 1] [the model folder's].")]
NoiseText = Annotated[
    str | None,
    Option("--noise", help="Other noise: uniform:0.5 (l1), pixels:45 (changed pixels) or band:4 (a patch)."),
]


@dataclass(frozen=True)
class Fields:
    """Which fields of a config a command offers, and how."""

    config: type | None = None  # where the parameter is a dict of only the values that were typed
    only: Sequence[str] = ()  # empty for all
    without: Sequence[str] = ()
    help: Mapping[str, str] = field(default_factory=dict)  # texts that differ from the config's


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of its config parameters; no two fields share an option."""
    hints = get_type_hints(command, include_extras=True)
    parameters: dict[str, inspect.Parameter] = {}
    configs: dict[str, _Config] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        config = _config(hints[name])
        if config is None:
            parameters[name] = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
            continue
        configs[name] = config
        for one in config.options:
            if one.key in parameters:
                option = one.key.replace("_", "-")
                raise TypeError(f"{command.__name__}: two fields have the option --{option}; rename one of them")
            required = one.required and not config.partial
            parameters[one.key] = one.parameter(required=required, panel=config.panel)

    def run(**values: Any) -> None:
        for name, value in values.items():
            check_value(f"--{name.replace('_', '-')}", value, Help(""))
            if isinstance(value, str | Path) and not is_unicode(str(Path(value).absolute())):
                raise InvalidInputError(f"--{name.replace('_', '-')} {value}: the name is not UTF-8; rename it")
        built = {name: config.build(values) for name, config in configs.items()}
        command(**built, **{name: value for name, value in values.items() if name in hints and name not in built})

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def typed_command() -> str:
    """The command line as it was typed, for the record."""
    return shlex.join(["multiguard", *sys.argv[1:]])


def name_options(message: str) -> str:
    """The message with options in place of the names that they have in Python.

    >>> name_options("k_prime = 3, but these votes keep 2 labels per draw (k_max)")
    '--k-prime = 3, but these votes keep 2 labels per draw (--k-max)'
    >>> name_options("alpha must be strictly between 0 and 1; vote again (on_error='stop')")
    '--alpha must be strictly between 0 and 1; vote again'
    """
    from multiguard.pipeline import parts, recipe
    from multiguard.serve.limits import ServePart

    configs = [parts.DataPart, parts.ModelPart, parts.VotePart, parts.TrainPart, parts.PredictPart, parts.AttackPart]
    names = {
        name: f"--{(declared.name or name).replace('_', '-')}"
        for config in (*configs, recipe.CertifyPart, recipe.ReportPart, recipe.ComparePart, ServePart)
        for name, declared in field_help(config).items()
    }
    long = "|".join(name for name in names if "_" in name)
    message = re.sub(r" \(\w+=[^()]*\)", "", message)
    message = re.sub(r"(--[\w-]+) \(\w+\)", r"\1", message)
    message = re.sub(rf"(?<![\w./-])({long})(?![\w./])", lambda found: names[found[1]], message)
    return re.sub(r"^(\w+)(?= (?:is|must|has|=) )", lambda found: names.get(found[1], found[1]), message)


@dataclass(frozen=True)
class _FieldOption:
    """The option of one field."""

    field: "Field[Any]"
    kind: Any
    help: Help

    @property
    def name(self) -> str:
        """The option without its dashes."""
        return (self.help.name or self.field.name).replace("_", "-")

    @property
    def key(self) -> str:
        """The name of its value among those that were typed."""
        return self.name.replace("-", "_")

    @property
    def required(self) -> bool:
        """Whether the config has no default for it."""
        return self.field.default is MISSING and self.field.default_factory is MISSING

    @property
    def members(self) -> list[Any]:
        """The types that a value can have."""
        return [one for one in union_members(self.kind) if one is not NoneType]

    @property
    def words(self) -> list[str]:
        """The words that a value can be."""
        return [word for one in self.members if get_origin(one) is Literal for word in get_args(one)]

    def parameter(self, *, required: bool, panel: str) -> inspect.Parameter:
        """The parameter that typer reads; None stands for an option that was not typed."""
        kind = self._typed_kind()
        two_sided = kind is bool and self.field.default is None
        names = f"--{self.name}/--no-{self.name}" if two_sided else f"--{self.name}"
        metavar = "|".join(["<int>"] * (self.members[0] is int) + self.words) or None
        if get_origin(self.members[0]) is tuple:
            metavar = f"<{'float' if get_args(self.members[0])[0] is float else 'str'},...>"
        declared = Option(names, help=self._help(), metavar=metavar, show_default=False, rich_help_panel=panel)
        default = inspect.Parameter.empty if required else None
        annotation: Any = Annotated[kind if required else kind | None, declared]
        return inspect.Parameter(self.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def value(self, typed: Any) -> Any:
        """What the field takes for what was typed; a mistake raises `InvalidInputError`."""
        if get_origin(self.members[0]) is tuple:
            return self._several([word.strip() for text in typed for word in text.split(",")])
        if self.members == [bool] and self.name.startswith("no-"):
            return not typed
        if not self.words or typed in self.words:
            return typed
        if self.members[0] is not int:
            raise InvalidInputError(f"--{self.name}: {unknown_name('value', typed, self.words)}")
        try:
            return int(typed)
        except ValueError:
            raise InvalidInputError(f"--{self.name} {typed}: expected {expected_text(self.kind)}") from None

    def _several(self, words: list[str]) -> tuple[Any, ...]:
        try:
            return tuple(float(word) if get_args(self.members[0])[0] is float else word for word in words)
        except ValueError:
            raise InvalidInputError(f"--{self.name} {','.join(words)}: expected numbers separated by commas") from None

    def _typed_kind(self) -> Any:
        if get_origin(self.members[0]) is tuple:
            return list[str]
        return str if self.words else self.members[0]

    def _help(self) -> str:
        default = self.field.default
        if (
            self.required
            or isinstance(default, bool)
            or default in (None, ())
            or self.help.text.rstrip(".").endswith("]")
        ):
            return self.help.text
        shown = ", ".join(map(str, default)) if isinstance(default, tuple) else default
        return f"{self.help.text.removesuffix('.')} [{shown}]."


@dataclass(frozen=True)
class _Config:
    """A config parameter of a command."""

    kind: type
    options: list[_FieldOption]
    partial: bool

    @property
    def panel(self) -> str:
        """The section of the help that lists its options."""
        return f"{self.kind.__name__.removesuffix('Part')} options"

    def build(self, values: Mapping[str, Any]) -> Any:
        """The config from the options that were typed; for a partial one, their values by field."""
        typed = {one.field.name: one.value(values[one.key]) for one in self.options if values[one.key] is not None}
        for one in self.options:
            check_value(f"--{one.name}", typed.get(one.field.name), one.help)
        return typed if self.partial else self.kind(**typed)


def _config(hint: Any) -> _Config | None:
    """The config that a parameter asks for; None where it is an option of its own."""
    base, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    offered = next((one for one in more if isinstance(one, Fields)), Fields())
    kind = offered.config or base
    if not is_dataclass(kind):
        return None
    hints, texts = get_type_hints(kind), field_help(kind)
    names = offered.only or [name for name in hints if name not in offered.without]
    options = [
        _FieldOption(one, hints[one.name], _worded(texts[one.name], offered.help.get(one.name)))
        for one in fields(kind)
        if one.name in names
    ]
    return _Config(kind, options, partial=offered.config is not None)


def _worded(declared: Help, text: str | None) -> Help:
    return declared if text is None else replace(declared, text=text)
