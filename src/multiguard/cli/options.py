"""The options that several commands share, worded once."""

from pathlib import Path
from typing import Annotated

import typer

Root = Annotated[Path | None, typer.Option(help="The folder that holds the dataset; digits need none.")]
Table = Annotated[Path | None, typer.Option(help="The CSV of labels (folder, nuswide), if not the usual one.")]
Separator = Annotated[str | None, typer.Option(help="What stands between two labels in a CSV field (folder) [;].")]
Difficult = Annotated[
    bool | None, typer.Option("--difficult", help="Count difficult-only labels as present (voc2007).")
]
Images = Annotated[int | None, typer.Option(help="Read a random part of so many pictures [all].")]
Seed = Annotated[int, typer.Option(help="Which part that is.")]
Workers = Annotated[int | None, typer.Option(help="Decoding threads [one a core].")]


def given(**options: object) -> dict[str, object]:
    """Those of the options that were given."""
    return {name: value for name, value in options.items() if value is not None}
