"""One door to every dataset: its name, its root folder, its split."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from multiguard.data.coco import open_coco
from multiguard.data.digits import DigitsDataset
from multiguard.data.folder import open_folder
from multiguard.data.nuswide import open_nuswide
from multiguard.data.sample import Dataset
from multiguard.data.voc import open_voc2007
from multiguard.errors import DataError
from multiguard.naming import unknown_name


@dataclass(frozen=True)
class Known:
    """A dataset that has a name here.

    Attributes:
        opener: Called with (root, split, size, options).
        needs_root: Whether its pictures lie in a folder of the user's.
        train_split: What training reads by default.
        val_split: What validation reads by default; None where a part of the training split is held out.
        options: The further keyword options that it understands.
    """

    opener: Callable[..., Dataset]
    needs_root: bool
    train_split: str
    val_split: str | None
    options: tuple[str, ...] = ()


def _open_digits(split: str, size: int | None, **options: int) -> Dataset:
    return DigitsDataset(split, size=32 if size is None else size, **options)


DATASETS: Mapping[str, Known] = {
    "voc2007": Known(open_voc2007, True, "train", "val", ("difficult",)),
    "coco": Known(open_coco, True, "train", "val"),
    "nuswide": Known(open_nuswide, True, "train", "val", ("table",)),
    "folder": Known(open_folder, True, "all", None, ("table", "separator", "label_names")),
    "digits": Known(_open_digits, False, "train", "val", ("images", "seed")),
}


def find_known(name: str) -> Known:
    """What is known of the dataset of this name; an unknown name raises `DataError` with the nearest one."""
    if name not in DATASETS:
        raise DataError(unknown_name("dataset", name, DATASETS))
    return DATASETS[name]


def open_dataset(
    name: str, *, root: Path | str | None = None, split: str, size: int | None = None, **options: object
) -> Dataset:
    """The dataset of this name and split, its listing read and checked, its pictures decoded only when read.

    Args:
        name: voc2007, coco, nuswide, folder or digits.
        root: The folder that holds it; digits need none.
        split: Which part of it, in its own words.
        size: Height and width to squash each picture to; None keeps its own (digits: 32).
        **options: What this dataset understands beyond these: see its own opener.
    """
    known = find_known(name)
    for option in options:
        if option not in known.options:
            raise DataError(f"{name}: {unknown_name('option', option, known.options)}")
    if not known.needs_root:
        return known.opener(split, size, **options)
    if root is None:
        raise DataError(f"{name}: no root folder given; say where the pictures lie")
    return known.opener(Path(root), split, size=size, **options)
