"""`multiguard models`: the classifiers that the package contains, and their cards."""

from typing import Annotated

from rich.table import Table
from typer import Argument

from multiguard.cli.console import PlainConsole, echo

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
    console.print("certified: recall that no perturbation up to this l2-norm takes away,")
    console.print(f"on images that trained nothing; multiguard models {DEFAULT_MODEL} says more")


def _table() -> Table:
    from multiguard.io.rounding import percent, plain
    from multiguard.models.built_in import read_measured, weights_bytes
    from multiguard.models.spec import built_in_names

    table = Table("name", "labels", "pixels", "sigma", "weights", "certified", "licence", box=None)
    for name in built_in_names():
        measured = read_measured(name)
        recalls = zip(measured["radii"], measured["recall"], strict=True)
        sigma, size = measured["sigma"], measured["size"]
        certified = ", ".join(f"{percent(recall)} at {plain(r)}" for r, recall in recalls if r in (sigma, 2 * sigma))
        weights = f"{measured['parameters'] / 1e6:.1f} M, {weights_bytes(name) / 1e6:.1f} MB"
        labels = f"{measured['labels']} {measured['task']}"
        table.add_row(name, labels, f"{size} x {size}", plain(sigma), weights, certified, measured["licence"])
    return table
