"""Which images: a dataset by name, split and subset, as a value that can be stored and opened again."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from multiguard.data.catalog import default_split, open_dataset
from multiguard.data.image_folder import open_images
from multiguard.data.sample import IndexedDataset, subset
from multiguard.errors import DataError
from multiguard.io.files import real_path

FOLDER = "folder"


class _StoredOptions(TypedDict, total=False):
    table: Path | None
    separator: str | None
    difficult: bool | None
    label_names: tuple[str, ...] | None


@dataclass(frozen=True)
class Source:
    """Images that open to the same ids, in the same order, wherever the same files are.

    >>> source = Source("digits", images=3)
    >>> source.open().ids
    ['test-0-00206', 'test-0-00222', 'test-0-00459']
    >>> Source.from_dict(source.as_dict()) == source
    True
    """

    data: str  # the dataset's name
    root: Path | None = None  # the folder that contains it; digits need none
    split: str | None = None  # None for the default one to vote on
    size: int | None = None  # height and width to resize each image to; None keeps its own
    images: int | None = None  # the size of a random subset, all images if there are fewer; None for all images
    seed: int = 0  # of that subset
    options: Mapping[str, Any] = field(default_factory=dict)  # the dataset's further options
    labelled: bool = True  # if not, a folder is all images in it, without a CSV; label_names are the classifier's

    @property
    def unlisted(self) -> bool:
        """Whether the images are all those in a folder, without a CSV that lists them."""
        return self.data == FOLDER and not self.labelled

    def open(self) -> IndexedDataset:
        """The dataset; no image is decoded yet."""
        if self.unlisted:
            dataset = self._open_images()
        else:
            split = self.split or default_split(self.data, "test", self.root, self.options.get("table"))
            dataset = open_dataset(self.data, root=self.root, split=split, size=self.size, **self.options)
        return dataset if self.images is None else subset(dataset, min(self.images, len(dataset)), self.seed)

    def _open_images(self) -> IndexedDataset:
        given = {"split": self.split, **self.options}
        names = given.pop("label_names", None)
        if unused := [name for name, value in given.items() if value is not None]:
            raise DataError(
                f"folder: {' and '.join(unused)} given, but images without labels have no CSV; leave it out"
            )
        if not names:
            raise DataError("folder: neither the images nor the model name any label; give a file of labels (--labels)")
        if self.root is None:
            raise DataError("folder: no root folder given; give the folder of the images")
        return open_images(self.root, names, size=self.size)

    def as_dict(self) -> dict[str, Any]:
        """The source as JSON takes it, its paths absolute, so that it opens from anywhere."""
        stored: dict[str, Any] = msgspec.to_builtins(self, enc_hook=lambda path: str(real_path(path)))
        return stored

    @classmethod
    def from_dict(cls, stored: Any) -> "Source":
        """What `as_dict` returned; anything else raises `DataError`."""
        try:
            source = msgspec.convert(stored, cls, dec_hook=_convert)
            options = msgspec.convert(source.options, _StoredOptions, dec_hook=_convert)
            if wrong := {*stored} ^ {each.name for each in fields(cls)} | source.options.keys() ^ options.keys():
                raise msgspec.ValidationError(f"unknown or missing: {', '.join(sorted(wrong))[:60]}")
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            raise DataError(f"not a stored source of images ({error}); vote again to write it") from error
        return replace(source, options=options)


def _convert(kind: type[Path], value: Any) -> Path:
    return kind(value)
