"""Which images: a dataset by name, split and sample, as a value that can be written down and opened again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multiguard.data.catalog import open_dataset, voting_split
from multiguard.data.images import open_images
from multiguard.data.sample import Catalogued
from multiguard.data.subset import subset
from multiguard.errors import DataError

FOLDER = "folder"
_FIELDS = {
    "data": str,
    "root": str,
    "split": str,
    "size": int,
    "images": int,
    "seed": int,
    "options": dict,
    "labelled": bool,
}
_NEEDED = ("data", "seed", "options", "labelled")
_OPTIONS = {"table": str, "separator": str, "difficult": bool, "label_names": list}


@dataclass(frozen=True)
class Source:
    """Images that open to the same ids, in the same order, wherever the same files lie.

    Attributes:
        data: The dataset's name.
        root: The folder that holds it; digits need none.
        split: Which split; None for the one that is usually tested on.
        size: Height and width to squash each image to; None keeps its own.
        images: A random part of so many images; None for all.
        seed: Which part that is.
        options: The dataset's further options.
        labelled: Whether the labels of the images are told; if not, a folder is all images in it, without any CSV,
            and its option label_names says what a classifier may call them.
    """

    data: str
    root: Path | None = None
    split: str | None = None
    size: int | None = None
    images: int | None = None
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    labelled: bool = True

    @property
    def unlisted(self) -> bool:
        """Whether the images are those that lie in a folder, with no CSV that lists them."""
        return self.data == FOLDER and not self.labelled

    def open(self) -> Catalogued:
        """The images, their listing read and checked, none decoded."""
        dataset = self._images() if self.unlisted else self._listed()
        return dataset if self.images is None else subset(dataset, self.images, self.seed)

    def _listed(self) -> Catalogued:
        split = self.split or voting_split(self.data, self.root, self.options.get("table"))
        return open_dataset(self.data, root=self.root, split=split, size=self.size, **self.options)

    def _images(self) -> Catalogued:
        """Every image of the folder; what belongs to a CSV of labels is refused."""
        names = self.options.get("label_names")
        told = {"split": self.split, **{name: self.options[name] for name in self.options if name != "label_names"}}
        listing = [name for name, value in told.items() if value is not None]
        if listing:
            raise DataError(
                f"folder: {' and '.join(listing)} given, but images without labels have no CSV; leave it out"
            )
        if not names:
            raise DataError(
                "folder: images without labels name none, and neither does the model; give a file of label names "
                "(--labels)"
            )
        if self.root is None:
            raise DataError("folder: no root folder given; say where the images lie")
        return open_images(self.root, names, size=self.size)

    def as_dict(self) -> dict[str, Any]:
        """The source as JSON takes it; its folders are written in full, so that it opens from anywhere."""
        return {
            "data": self.data,
            "root": _in_full(self.root),
            "split": self.split,
            "size": self.size,
            "images": self.images,
            "seed": self.seed,
            "options": {name: _in_full(value) for name, value in self.options.items()},
            "labelled": self.labelled,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Source":
        """What `as_dict` wrote; anything else raises `DataError`."""
        _check_kinds(stored, _FIELDS)
        options = dict(stored["options"])
        _check_kinds(options, _OPTIONS)
        if options.get("table") is not None:
            options["table"] = Path(options["table"])
        root = None if stored.get("root") is None else Path(stored["root"])
        rest: dict[str, Any] = {
            name: stored.get(name) for name in ("data", "split", "size", "images", "seed", "labelled")
        }
        return cls(root=root, options=options, **rest)


def _check_kinds(stored: Any, kinds: Mapping[str, type]) -> None:
    """Raises `DataError` unless these are values that `as_dict` names, each of its kind."""
    if not isinstance(stored, dict) or not stored.keys() <= kinds.keys():
        raise DataError(f"no description of images: {str(stored)[:60]}; vote again to write it anew")
    for name, kind in kinds.items():
        value = stored.get(name)
        right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if not right and not (value is None and name not in _NEEDED):
            raise DataError(f"no description of images: {name} is {str(value)[:60]!r}; vote again to write it anew")
    if not all(isinstance(name, str) for name in stored.get("label_names") or ()):
        raise DataError("no description of images: label_names holds something else than names")


def _in_full(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value.resolve())
    return list(value) if isinstance(value, tuple) else value
