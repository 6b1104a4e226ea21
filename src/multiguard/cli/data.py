"""`multiguard data check`: read a dataset and print what is in it."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from multiguard.cli.options import Fields, with_options
from multiguard.cli.progress import progress_bar
from multiguard.cli.terminal import PlainConsole
from multiguard.data import DataReport, check_dataset, open_dataset, subset
from multiguard.data.catalog import default_split
from multiguard.data.config import DataConfig
from multiguard.errors import DataError, ImageFailure

data_app = typer.Typer(help="Datasets: look before you train.", no_args_is_help=True, rich_markup_mode=None)

_Name = Annotated[str, typer.Argument(help="voc2007, coco, nuswide, folder or digits.")]
_Part = Annotated[
    dict[str, Any],
    Fields(
        DataConfig,
        without=("name", "labelled"),
        help={"split": "The split [the training split].", "size": "Resize images to this height and width [not]."},
    ),
]
_Workers = Annotated[int | None, typer.Option(help="Decoding threads [one per core].")]


@data_app.callback()
def _root() -> None:
    """Datasets: look before you train."""


@data_app.command("check")
@with_options
def check_command(name: _Name, part: _Part, workers: _Workers = None) -> None:
    """Read every image once; print counts, labels per image, label frequencies and every failure.

    The exit code is 1 if an image or a label cannot be used.

    Example: multiguard data check digits --split test
    """
    data = DataConfig(name, **part)
    console = PlainConsole()
    failures: list[ImageFailure] = []
    try:
        split = data.split or default_split(name, "train", data.root, data.table)
        options: dict[str, Any] = dict(data.options)
        dataset = open_dataset(name, root=data.root, split=split, size=data.size, failures=failures, **options)
    except DataError as error:
        if not failures:
            raise
        _show_failures((*failures, ImageFailure(name, str(error))), console)
        raise typer.Exit(1) from None
    sample = dataset if data.images is None else subset(dataset, min(data.images, len(dataset)), data.seed)
    with progress_bar("images") as progress:
        report = check_dataset(sample, workers, failures, partial(progress, "reading"))
    _show(report, console)
    raise typer.Exit(1 if report.failures else 0)


def _show(report: DataReport, console: Console) -> None:
    console.print(f"{report.name}: {report.images} images, {report.readable} readable")
    _show_failures(report.failures, console)
    shapes = ", ".join(f"{h}x{w} ({n})" for (h, w), n in list(report.shapes.items())[:5])
    more = len(report.shapes) - 5
    console.print(f"sizes: {shapes}{f', and {more} more' if more > 0 else ''}")
    per_image = ", ".join(f"{n} with {count}" for count, n in report.labels_per_image.items())
    console.print(f"labels per image: {report.mean_labels:.2f} on average; {per_image}")
    frequencies = Table("label", "images", "fraction", box=None)
    for label, count in zip(report.label_names, report.frequencies, strict=True):
        frequencies.add_row(label, str(count), f"{count / max(report.readable, 1):.1%}")
    console.print(frequencies, soft_wrap=False)
    if report.empty_labels:
        console.print(f"never present: {', '.join(report.empty_labels)}")


def _show_failures(failures: Sequence[ImageFailure], console: Console) -> None:
    for failure in failures:
        console.print(f"failure: {failure.image_id}: {failure.reason}")
