"""Folders of images: with a CSV file of labels, as most people have them, or without labels, for prediction.

The CSV has one of two forms, recognised by its header, and optionally a column `split`:

- `file,labels`: the labels of an image in one field, separated by `;` (or another separator);
- `file,cat,dog,...`: one column per label, holding 0 or 1.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from multiguard.data.label_table import LabelIndex, LabelTable, Row, list_images, normal_name, read_table
from multiguard.data.sample import FileDataset, ImageFile
from multiguard.errors import DataError, ImageError
from multiguard.io.names import shorten_names

ALL = "all"
_RESERVED = ("file", "labels", "split")
_TABLE = "labels.csv"
_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


def open_folder(
    root: Path,
    split: str = ALL,
    *,
    size: int | None = None,
    table: Path | None = None,
    separator: str = ";",
    label_names: Sequence[str] | None = None,
) -> FileDataset:
    """The images that the CSV lists with their labels; the arguments are those of `open_dataset`."""
    if not separator:
        raise DataError("folder: the separator is empty; give the text between two labels, such as ;")
    listing = read_table(root, table, default=_TABLE, columns=["file"])
    if "labels" not in listing.columns and not _label_columns(listing):
        raise DataError(f"{listing.path}: no column 'labels' and no 0/1 column per label beside 'file'")
    names = list(label_names) if label_names is not None else _all_labels(listing, separator)
    _check_columns(listing, names)
    note = "" if label_names is None else " (the known labels are the model's)"
    index = LabelIndex(names, listing.path, note)

    def make(row: Row) -> ImageFile:
        name = normal_name(row.fields["file"])
        return ImageFile(name, root / name, index.of(row, _row_labels(row, listing, separator)))

    files = list_images(listing.split_rows("split", split, [ALL]), make)
    chosen = "" if split == ALL else f", split {split}"
    return FileDataset(f"folder {root.absolute().name}{chosen}", names, files, size=size, home=root)


def folder_splits(root: Path, table: Path | None = None) -> list[str]:
    """The splits that the CSV's column `split` names, sorted; none where it has no such column."""
    return read_table(root, table, default=_TABLE, columns=[]).values("split")


def _label_columns(listing: LabelTable) -> list[str]:
    return [column for column in listing.columns if column not in _RESERVED]


def _check_columns(listing: LabelTable, names: Sequence[str]) -> None:
    """Raises unless every label of the model has a column of its own: a missing one does not say that it is absent."""
    columns = {*names} if "labels" in listing.columns else {*listing.columns}
    missing = [name for name in names if name not in columns]
    if missing:
        raise DataError(
            f"{listing.path}: no column for {len(missing)} of the model's labels: {shorten_names(missing)}; add a "
            "column of 0 and 1 for each"
        )


def _all_labels(listing: LabelTable, separator: str) -> list[str]:
    """Every label of the table, whatever the split, so that all splits share one order."""
    if "labels" in listing.columns:
        return sorted({name for row in listing.rows for name in _split_field(row, separator)})
    return _label_columns(listing)


def _row_labels(row: Row, listing: LabelTable, separator: str) -> list[str]:
    if "labels" in listing.columns:
        return _split_field(row, separator)
    columns = _label_columns(listing)
    wrong = [f"'{row.fields[column]}' under '{column}'" for column in columns if row.fields[column] not in ("0", "1")]
    if wrong:
        raise ImageError(row.source, f"{', '.join(wrong)}; expected 0 or 1")
    return [column for column in columns if row.fields[column] == "1"]


def _split_field(row: Row, separator: str) -> list[str]:
    return [name.strip() for name in row.fields["labels"].split(separator) if name.strip()]


def open_images(
    source: str | Path | Sequence[str | Path], label_names: Sequence[str], *, size: int | None = None
) -> FileDataset:
    """Every image of a folder, or the files given, without labels; an unreadable one raises `ImageError` when read.

    Args:
        source: A folder, searched with its subfolders for files with the suffix of an image (hidden ones are left out,
            links to folders are not followed), or image files. The id of an image is its path within the folder, or
            the name of its file.
        label_names: The labels of the classifier.
        size: Height and width to resize each image to; None keeps its own.

    >>> from PIL import Image
    >>> Image.new("RGB", (4, 2)).save(out / "a.png")
    >>> images = open_images(out, ["cat", "dog"], size=8)
    >>> images.ids, images[0].image.shape
    (['a.png'], (3, 8, 8))
    """
    if isinstance(source, str | Path):
        folder = Path(source)
        files = [ImageFile(name, folder / name, ()) for name in find_images(folder)]
        return FileDataset(f"images {folder.absolute().name}", label_names, files, size, home=folder)
    paths = [Path(path) for path in source]
    for name, count in Counter(path.name for path in paths).items():
        if count > 1:
            raise DataError(f"{count} files are named '{name}', and the name is the id; give their folder instead")
    return FileDataset("images", label_names, [ImageFile(path.name, path, ()) for path in paths], size, None)


def find_images(folder: Path) -> list[str]:
    """The paths of all images within a folder, as `open_images` finds them; none raises `DataError`."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; give a folder of images, or the files themselves")
    paths = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    visible = sorted(path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts))
    files = [name for name in visible if name.lower().endswith(_SUFFIXES)]
    if not files:
        raise DataError(f"{folder}: no image in it or its subfolders; expected files ending in {', '.join(_SUFFIXES)}")
    return files
