"""The images to vote on, and the dataset that training reads, as a config."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from multiguard.data.image import MAX_SIDE
from multiguard.data.source import Source
from multiguard.io.config import Config, Count, Whole, described

Side = Annotated[int, Meta(ge=1, le=MAX_SIDE)]


class DataConfig(Config, frozen=True):
    """The images to vote on, and the dataset that training reads.

    >>> DataConfig("digits", images=100).source().images
    100
    """

    name: Annotated[str, described("voc2007, coco, nuswide, folder or digits.", "data")]
    root: Annotated[Path | None, described("The folder that holds the dataset; digits need none.")] = None
    split: Annotated[str | None, described("The split to vote on [test; coco and nuswide: val].")] = None
    images: Annotated[Count | None, described("A random sample of this many images [all].")] = None
    seed: Annotated[Whole, described("Seed of that sample.")] = 0
    size: Annotated[Side | None, described("Height and width of the images [the model's].")] = None
    table: Annotated[Path | None, described("The CSV of labels (folder, nuswide), if not the default one.")] = None
    separator: Annotated[str | None, described("The separator of labels in a CSV field (folder) [;].")] = None
    difficult: Annotated[bool, described("Count difficult-only labels as present (voc2007).")] = False
    labelled: Annotated[bool, described("Let pilot draws choose the labels; a folder needs no CSV.", "no-labels")] = (
        True
    )

    @property
    def options(self) -> dict[str, object]:
        """The further options of the dataset that are given."""
        named = {"table": self.table, "separator": self.separator, "difficult": self.difficult or None}
        return {name: value for name, value in named.items() if value is not None}

    def source(self, size: int | None = None) -> Source:
        """The images to vote on, resized to `size`; None for the model's own size."""
        return Source(self.name, self.root, self.split, size, self.images, self.seed, self.options, self.labelled)
