"""The images to vote on, and the dataset that training reads, as a config."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from multiguard.data.catalog import default_split, open_dataset
from multiguard.data.image import MAX_SIDE
from multiguard.data.image_folder import open_images
from multiguard.data.sample import IndexedDataset, subset
from multiguard.errors import DataError
from multiguard.io.config import Config, Count, Whole, described
from multiguard.io.files import real_path

FOLDER = "folder"  # the dataset whose labels are the user's own
Side = Annotated[int, Meta(ge=1, le=MAX_SIDE)]


class DataConfig(Config, frozen=True):
    """The images to vote on, and the dataset that training reads.

    >>> DataConfig("digits", images=3).open().ids
    ['test-0-00206', 'test-0-00222', 'test-0-00459']
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
    def options(self) -> dict[str, Any]:
        """The further options of the dataset that are given."""
        named = {"table": self.table, "separator": self.separator, "difficult": self.difficult or None}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def unlisted(self) -> bool:
        """Whether the images are all those in a folder, without a CSV that lists them."""
        return self.name == FOLDER and not self.labelled

    def open(self, size: int | None = None, label_names: Sequence[str] | None = None) -> IndexedDataset:
        """The same ids in the same order wherever the same files are; no image is decoded yet.

        Args:
            size: Height and width of the images in place of the config's.
            label_names: The labels of the classifier, in its order. A folder takes this order; other datasets have one.
        """
        side = self.size if size is None else size
        if self.unlisted:
            dataset: IndexedDataset = self._open_images(side, label_names)
        else:
            options = {**self.options, **({"label_names": label_names} if self.name == FOLDER else {})}
            split = self.split or default_split(self.name, "test", self.root, self.table)
            dataset = open_dataset(self.name, root=self.root, split=split, size=side, **options)
        return dataset if self.images is None else subset(dataset, min(self.images, len(dataset)), self.seed)

    def absolute(self) -> "DataConfig":
        """The config with absolute paths, as votes record it: it opens from any working directory."""
        root, table = (None if path is None else real_path(path) for path in (self.root, self.table))
        return self.replace(root=root, table=table)

    def _open_images(self, size: int | None, names: Sequence[str] | None) -> IndexedDataset:
        unused = [name for name in ("split", "table", "separator", "difficult") if getattr(self, name)]
        if unused:
            raise DataError(
                f"folder: {' and '.join(unused)} given, but images without labels have no CSV; leave it out"
            )
        if not names:
            raise DataError("folder: neither the images nor the model name any label; give a file of labels (--labels)")
        if self.root is None:
            raise DataError("folder: no root folder given; give the folder of the images")
        return open_images(self.root, names, size=size)
