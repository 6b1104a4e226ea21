"""The known datasets by name, and the images to vote on as a config."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from multiguard.data.annotations import open_coco, open_nuswide, open_voc2007
from multiguard.data.digits import DigitsDataset
from multiguard.data.image import check_size
from multiguard.data.image_folder import ALL, folder_splits, open_folder, open_images
from multiguard.data.sample import IndexedDataset, subset
from multiguard.errors import DataError, InvalidInputError
from multiguard.io.config import Config, Count, Side, Whole, described
from multiguard.io.files import real_path
from multiguard.io.names import check_path, unknown_name

FOLDER = "folder"  # the dataset whose labels are the user's own
Use = Literal["train", "test"]
_VALIDATION_SPLITS = {"train": "val", "train2014": "val2014", "train2017": "val2017"}
# The opener of each dataset, the splits that training reads and that votes are on by default, and further options.
_DATASETS: Mapping[str, tuple[Callable[..., IndexedDataset], str, str, tuple[str, ...]]] = {
    "voc2007": (open_voc2007, "train", "test", ("difficult",)),
    "coco": (open_coco, "train", "val", ()),
    "nuswide": (open_nuswide, "train", "val", ("table",)),
    FOLDER: (open_folder, ALL, ALL, ("table", "separator", "label_names")),
    "digits": (DigitsDataset, "train", "test", ("images", "seed")),
}


def check_dataset(name: str) -> None:
    """Raises `DataError` for an unknown name, with the nearest one."""
    if name not in _DATASETS:
        raise DataError(unknown_name("dataset", name, _DATASETS))


def default_split(name: str, use: Use, root: Path | str | None = None, table: Path | None = None) -> str:
    """The split for this use where none is given: the dataset's default, or all of a table without splits."""
    check_dataset(name)
    splits = _table_splits(name, root, table)
    if not splits:
        _, train, test, _ = _DATASETS[name]
        return train if use == "train" else test
    if use not in splits:
        raise DataError(f"{name}: no split given, and none is called {use}; the table has {', '.join(splits)}")
    return use


def validation_split(name: str, split: str, root: Path | str | None = None, table: Path | None = None) -> str | None:
    """The validation split that belongs to this training split; None where a part of it must be held out."""
    partner = _VALIDATION_SPLITS.get(split)
    return None if name == FOLDER and partner not in _table_splits(name, root, table) else partner


def _table_splits(name: str, root: Path | str | None, table: Path | None) -> list[str]:
    return folder_splits(Path(root), table) if name == FOLDER and root is not None else []


def open_dataset(
    name: str, *, root: Path | str | None = None, split: str, size: int | None = None, **options: object
) -> IndexedDataset:
    """The dataset of this name and split: its listing is read and checked, its images are decoded only when read.

    Args:
        name: voc2007, coco, nuswide, folder or digits.
        root: The folder that contains it; digits need none.
        split: One of the dataset's splits; for a folder, a value of its table's column `split`, or "all".
        size: Height and width to resize each image to; None keeps its own (digits: 32).
        **options: voc2007: `difficult`, whether labels of difficult objects count. nuswide and folder: `table`, the CSV
            if it has another name or folder. folder: `separator` of labels (default: the one of ; , | that is there),
            and `label_names` in order (default: the header's, or alphabetical). digits: `images` and `seed`.

    >>> dataset = open_dataset("digits", split="test")
    >>> len(dataset), dataset[0].id, dataset[0].image.shape, dataset[0].labels
    (1000, 'test-0-00000', (3, 32, 32), (0, 2, 3, 9))
    """
    check_dataset(name)
    opener, _, _, known = _DATASETS[name]
    for option in options:
        if option not in known:
            raise DataError(f"{name}: {unknown_name('option', option, known)}")
    try:
        check_path("root", root or "")
        check_size(size)
    except InvalidInputError as error:
        raise DataError(f"{name}: {error}") from error
    if name == "digits":
        if root is not None:
            raise DataError(f"{name} are part of multiguard and take no root; leave out {root}")
        return opener(split, size=size, **options)
    if root is None:
        raise DataError(f"{name}: no root folder given; give the folder of the dataset")
    return opener(Path(root), split, size=size, **options)


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
    separator: Annotated[str | None, described("The separator of labels in a CSV field (folder) [; , or |].")] = None
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
        if unused := [name for name in ("split", "table", "separator", "difficult") if getattr(self, name)]:
            raise DataError(f"folder: {unused[0]} given, but images without labels have no CSV; leave it out")
        if not names:
            raise DataError("folder: neither the images nor the model name any label; give a file of labels (--labels)")
        if self.root is None:
            raise DataError("folder: no root folder given; give the folder of the images")
        return open_images(self.root, names, size=size)
