"""A dataset as a list of image files with their labels: what VOC, COCO, NUS-WIDE and folders become."""

import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from multiguard.data.image import read_image
from multiguard.data.sample import Sample
from multiguard.errors import DataError

_LARGEST_LIST = 1 << 28  # the longest list of a known dataset has a tenth of it


@dataclass(frozen=True)
class Entry:
    """One listed image.

    Attributes:
        id: The sample's stable name.
        path: Where the image lies.
        labels: Sorted label indices without repetition; may be empty.
    """

    id: str
    path: Path
    labels: tuple[int, ...]


class ListedDataset:
    """Images on disk, decoded when read: an unreadable one raises `ImageError`, none is ever skipped.

    Args:
        name: Which dataset and split this is, for the record.
        label_names: The name of each label, in index order.
        entries: The images, in order; ids must differ.
        size: Height and width to squash each image to; None keeps its own.
        home: The folder that every image must lie in, its links followed: a link that leads out of it is refused when
            it is read. None where each file was named by the user.
    """

    def __init__(
        self,
        name: str,
        label_names: Sequence[str],
        entries: Sequence[Entry],
        *,
        size: int | None = None,
        home: Path | None = None,
    ) -> None:
        if not entries:
            raise DataError(f"{name}: no image is listed; check the root folder and the split")
        if not label_names:
            raise DataError(f"{name}: not one label is named; check the file of labels")
        _refuse_repeated(name, entries)
        self.name = name
        self.label_names = tuple(label_names)
        self.entries = tuple(entries)
        self.size = size
        self.home = home

    @property
    def ids(self) -> Sequence[str]:
        """The id of each sample, in order."""
        return [entry.id for entry in self.entries]

    @property
    def labels(self) -> Sequence[tuple[int, ...]]:
        """The labels of each sample, in order, known without decoding any image."""
        return [entry.labels for entry in self.entries]

    @property
    def origins(self) -> Sequence[str]:
        """For each sample, in order, its file, that file's length and time of change, and the size asked for.

        A file that is not there has neither, so that it is another one as soon as it is.
        """
        return [f"{_file_state(entry.path)} at {self.size}" for entry in self.entries]

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int, /) -> Sample:
        entry = self.entries[index]
        return Sample(id=entry.id, image=read_image(entry.path, self.size, home=self.home), labels=entry.labels)


def _file_state(path: Path) -> str:
    try:
        found = path.stat()
        return f"{path.resolve()} {found.st_size} {found.st_mtime_ns}"
    except (OSError, ValueError):
        return f"{path.absolute()} cannot be looked at"


def _refuse_repeated(name: str, entries: Sequence[Entry]) -> None:
    most, times = Counter(entry.id for entry in entries).most_common(1)[0]
    if times > 1:
        raise DataError(f"{name}: the image '{most}' is listed {times} times; list each image once")


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text file without blank ones; a missing or undecodable file raises `DataError`.

    So does what is no regular file (a device or a pipe may have no end), and one that is too large for a list.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_LIST:
            raise DataError(f"{path}: a list must be a regular file of at most {_LARGEST_LIST >> 20} MiB; name another")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; check the root folder and the split") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error})") from error
    return [line.strip() for line in text.splitlines() if line.strip()]
