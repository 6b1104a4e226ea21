"""One door to every dataset: its name, its root folder, its split."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from multiguard.data.coco import open_coco
from multiguard.data.digits import DigitsDataset
from multiguard.data.folder import ALL, folder_splits, open_folder
from multiguard.data.nuswide import open_nuswide
from multiguard.data.sample import Catalogued, Problem
from multiguard.data.voc import open_voc2007
from multiguard.errors import DataError
from multiguard.io.names import unknown_name


@dataclass(frozen=True)
class Known:
    """A dataset that has a name here.

    Attributes:
        opener: Called with (root, split, size, options).
        needs_root: Whether its images lie in a folder of the user's.
        train_split: What training reads by default.
        val_splits: For a training split, what validation reads by default; where none is named here, a part of
            the training split is held out.
        test_split: What is voted on by default.
        options: The further keyword options that it understands.
        own_splits: Called with (root, table), the splits that the user's own table names; None where they are fixed.
        listed: Whether its opener can collect the faulty lines of a table.
    """

    opener: Callable[..., Catalogued]
    needs_root: bool
    train_split: str
    val_splits: Mapping[str, str]
    test_split: str
    options: tuple[str, ...] = ()
    own_splits: Callable[[Path, Path | None], tuple[str, ...]] | None = None
    listed: bool = False


def _open_digits(split: str, size: int | None, **options: int) -> Catalogued:
    return DigitsDataset(split, size=32 if size is None else size, **options)


_DEFAULT = {"train": "val"}
_WITH_YEARS = {"train": "val", "train2014": "val2014", "train2017": "val2017"}
_FOLDER_OPTIONS = ("table", "separator", "label_names")

DATASETS: Mapping[str, Known] = {
    "voc2007": Known(open_voc2007, True, "train", _DEFAULT, "test", ("difficult",)),
    "coco": Known(open_coco, True, "train", _WITH_YEARS, "val"),
    "nuswide": Known(open_nuswide, True, "train", _DEFAULT, "val", ("table",), listed=True),
    "folder": Known(open_folder, True, ALL, _DEFAULT, ALL, _FOLDER_OPTIONS, own_splits=folder_splits, listed=True),
    "digits": Known(_open_digits, False, "train", _DEFAULT, "test", ("images", "seed")),
}


def find_known(name: str) -> Known:
    """What is known of the dataset of this name; an unknown name raises `DataError` with the nearest one."""
    if name not in DATASETS:
        raise DataError(unknown_name("dataset", name, DATASETS))
    return DATASETS[name]


def training_split(name: str, root: Path | str | None = None, table: Path | None = None) -> str:
    """What training reads where no split is asked for: "train", or all of a table that names no splits."""
    return _usual_split(name, "train", find_known(name).train_split, root, table)


def voting_split(name: str, root: Path | str | None = None, table: Path | None = None) -> str:
    """What is voted on where no split is asked for: the dataset's test split, or all of a table without splits."""
    return _usual_split(name, "test", find_known(name).test_split, root, table)


def _usual_split(name: str, wanted: str, fixed: str, root: Path | str | None, table: Path | None) -> str:
    """The fixed split, or the wanted one of a table that names its own."""
    splits = _own_splits(find_known(name), root, table)
    if splits and wanted not in splits:
        raise DataError(f"{name}: no split given, and none is called {wanted}; the table's are {', '.join(splits)}")
    return wanted if splits else fixed


def validation_split(name: str, split: str, root: Path | str | None = None, table: Path | None = None) -> str | None:
    """What validation reads beside this training split; None where a part of that split must be held out."""
    known = find_known(name)
    usual = known.val_splits.get(split)
    missing = known.own_splits is not None and usual not in _own_splits(known, root, table)
    return None if missing else usual


def _own_splits(known: Known, root: Path | str | None, table: Path | None) -> tuple[str, ...]:
    return () if known.own_splits is None or root is None else known.own_splits(Path(root), table)


def open_dataset(
    name: str,
    *,
    root: Path | str | None = None,
    split: str,
    size: int | None = None,
    faults: list[Problem] | None = None,
    **options: object,
) -> Catalogued:
    """The dataset of this name and split, its listing read and checked, its images decoded only when read.

    Args:
        name: voc2007, coco, nuswide, folder or digits.
        root: The folder that holds it; digits need none.
        split: Which part of it, in its own words.
        size: Height and width to squash each image to; None keeps its own (digits: 32).
        faults: A list that takes every line of a CSV that cannot be used; None raises `DataError` at the first.
        **options: What this dataset understands beyond these: see its own opener.
    """
    known = find_known(name)
    for option in options:
        if option not in known.options:
            raise DataError(f"{name}: {unknown_name('option', option, known.options)}")
    if size is not None and size < 1:
        raise DataError(f"{name}: the size is {size}; give a height and width of 1 pixel or more")
    if not known.needs_root and root is not None:
        raise DataError(f"{name} are embedded and take no root; leave out {root}")
    if not known.needs_root:
        return known.opener(split, size, **options)
    if root is None:
        raise DataError(f"{name}: no root folder given; say where the images lie")
    collecting = {"faults": faults} if known.listed else {}
    return known.opener(Path(root), split, size=size, **collecting, **options)
