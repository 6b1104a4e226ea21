"""PASCAL VOC 2007 in its official layout, VOCdevkit/VOC2007/{JPEGImages,ImageSets/Main}."""

from pathlib import Path

from multiguard.data.listed import Entry, ListedDataset, read_lines
from multiguard.errors import DataError
from multiguard.io.names import unknown_name

VOC_LABELS = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
)  # fmt: skip
VOC_SPLITS = ("train", "val", "trainval", "test")
_MARKS = {"1": 1, "0": 0, "-1": -1}


def open_voc2007(root: Path, split: str = "test", *, size: int | None = None, difficult: bool = False) -> ListedDataset:
    """VOC 2007's images of one split, each with its image-level labels in alphabetical label order.

    Args:
        root: The folder that holds VOCdevkit, or VOCdevkit, or VOC2007 itself.
        split: train, val, trainval or test.
        size: Height and width to squash each image to; None keeps its own.
        difficult: Whether a label that only difficult objects carry (mark 0) counts as present.
    """
    if split not in VOC_SPLITS:
        raise DataError(f"voc2007: {unknown_name('split', split, VOC_SPLITS)}")
    home = _home(root)
    ids = [line.split()[0] for line in read_lines(home / "ImageSets" / "Main" / f"{split}.txt")]
    marks = [_class_marks(home, name, split, ids) for name in VOC_LABELS]
    least = 0 if difficult else 1
    entries = [Entry(id_, home / "JPEGImages" / f"{id_}.jpg", _present(marks, id_, least)) for id_ in ids]
    return ListedDataset(f"voc2007/{split}", VOC_LABELS, entries, size=size, home=home / "JPEGImages")


def _home(root: Path) -> Path:
    for home in (root / "VOCdevkit" / "VOC2007", root / "VOC2007", root):
        if (home / "ImageSets" / "Main").is_dir():
            return home
    raise DataError(f"{root}: no VOCdevkit/VOC2007/ImageSets/Main below it; give the folder that holds VOCdevkit")


def _class_marks(home: Path, name: str, split: str, ids: list[str]) -> dict[str, int]:
    path = home / "ImageSets" / "Main" / f"{name}_{split}.txt"
    marks = {}
    for line in read_lines(path):
        words = line.split()
        if len(words) != 2 or words[1] not in _MARKS:
            raise DataError(f"{path}: '{line}' is not 'ID MARK' with a mark of 1, 0 or -1")
        marks[words[0]] = _MARKS[words[1]]
    missing = [id_ for id_ in ids if id_ not in marks]
    if missing:
        raise DataError(f"{path}: no line for image '{missing[0]}' ({len(missing)} missing)")
    return marks


def _present(marks: list[dict[str, int]], id_: str, least: int) -> tuple[int, ...]:
    return tuple(index for index, of_class in enumerate(marks) if of_class[id_] >= least)
