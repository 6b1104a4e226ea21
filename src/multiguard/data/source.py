"""Which pictures: a dataset by name, split and sample, as a value that can be written down and opened again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multiguard.data.catalog import open_dataset, voting_split
from multiguard.data.sample import Catalogued
from multiguard.data.subset import subset
from multiguard.errors import DataError

_FIELDS = {"data": str, "root": str, "split": str, "size": int, "images": int, "seed": int, "options": dict}


@dataclass(frozen=True)
class Source:
    """Pictures that open to the same ids, in the same order, wherever the same files lie.

    Attributes:
        data: The dataset's name.
        root: The folder that holds it; digits need none.
        split: Which split; None for the one that is usually tested on.
        size: Height and width to squash each picture to; None keeps its own.
        images: A random part of so many pictures; None for all.
        seed: Which part that is.
        options: The dataset's further options.
    """

    data: str
    root: Path | None = None
    split: str | None = None
    size: int | None = None
    images: int | None = None
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> Catalogued:
        """The pictures, their listing read and checked, none decoded."""
        split = self.split or voting_split(self.data, self.root, self.options.get("table"))
        dataset = open_dataset(self.data, root=self.root, split=split, size=self.size, **self.options)
        return dataset if self.images is None else subset(dataset, self.images, self.seed)

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
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Source":
        """What `as_dict` wrote; anything else raises `DataError`."""
        for name, kind in _FIELDS.items():
            value = stored.get(name)
            if not isinstance(value, kind) and not (value is None and name not in ("data", "seed", "options")):
                raise DataError(f"no description of pictures: {name} is {value!r}; vote again to write it anew")
        options = dict(stored["options"])
        if options.get("table") is not None:
            options["table"] = Path(options["table"])
        root = None if stored["root"] is None else Path(stored["root"])
        rest = {name: stored[name] for name in ("data", "split", "size", "images", "seed")}
        return cls(root=root, options=options, **rest)


def _in_full(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value.resolve())
    return list(value) if isinstance(value, tuple) else value
