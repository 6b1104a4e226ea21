"""`multiguard models`: the classifiers that the package contains, and their cards."""

from typing import Annotated

from rich.table import Table
from typer import Argument

from multiguard.cli.console import PlainConsole, echo

_SHOWN = (0.5, 1.0, 2.0)  # radii
_Name = Annotated[str | None, Argument(help="The model whose card to show [all models in a table].")]


def models_command(name: _Name = None) -> None:
    """List the built-in models, or show the card of one: data, recipe, scores, limits, licence.

    Every command takes their names as --model, and multiguard.load takes them in Python.

    Example: multiguard models
    """
    from multiguard.models.built_in import model_card
    from multiguard.models.spec import DEFAULT_MODEL

    if name is not None:
        echo(model_card(name).rstrip())
        return
    console = PlainConsole()
    console.print(_table(), soft_wrap=False)
    console.print("certified: recall that no perturbation up to this l2-norm takes away, at the best sigma,")
    console.print(f"on images that trained nothing; multiguard models {DEFAULT_MODEL} says more")


def _table() -> Table:
    from multiguard.io.rounding import percent, plain
    from multiguard.models.built_in import read_measured, weights_bytes
    from multiguard.models.spec import built_in_names

    table = Table("name", "labels", "pixels", "weights", "certified", "licence", box=None)
    for name in built_in_names():
        measured = read_measured(name)
        best = [max(column) for column in zip(*(curve["recall"] for curve in measured["curves"]), strict=True)]
        recalls, size = dict(zip(measured["radii"], best, strict=True)), measured["size"]
        certified = ", ".join(f"{percent(recalls[radius])} at {plain(radius)}" for radius in _SHOWN)
        weights = f"{measured['parameters'] / 1e6:.1f} M, {weights_bytes(name) / 1e6:.1f} MB"
        labels = f"{measured['labels']} {measured['task']}"
        table.add_row(name, labels, f"{size} x {size}", weights, certified, measured["licence"])
    return table
