"""PASCAL VOC 2007 in its official layout, VOCdevkit/VOC2007/{JPEGImages,ImageSets/Main}."""

from pathlib import Path

from multiguard.data.sample import FileDataset, ImageFile
from multiguard.errors import DataError
from multiguard.io.files import read_lines
from multiguard.io.names import unknown_name

VOC_LABELS = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
VOC_SPLITS = ("train", "val", "trainval", "test")


def open_voc2007(root: Path, split: str = "test", *, size: int | None = None, difficult: bool = False) -> FileDataset:
    """The VOC 2007 images of one split, with their labels in alphabetical order; the arguments are `open_dataset`'s.

    The root is the folder that contains VOCdevkit, or VOCdevkit, or VOC2007 itself.
    """
    if split not in VOC_SPLITS:
        raise DataError(f"voc2007: {unknown_name('split', split, VOC_SPLITS)}")
    home = _find_home(root)
    ids = [line.split()[0] for line in read_lines(home / "ImageSets" / "Main" / f"{split}.txt")]
    marks = [_read_marks(home, name, split, ids) for name in VOC_LABELS]
    least, images = (0 if difficult else 1), home / "JPEGImages"
    labels = {name: tuple(index for index, mark in enumerate(marks) if mark[name] >= least) for name in ids}
    files = [ImageFile(name, images / f"{name}.jpg", labels[name]) for name in ids]
    return FileDataset(f"voc2007 {split}", VOC_LABELS, files, size=size, home=images)


def _find_home(root: Path) -> Path:
    for home in (root / "VOCdevkit" / "VOC2007", root / "VOC2007", root):
        if (home / "ImageSets" / "Main").is_dir():
            return home
    raise DataError(f"{root}: no VOCdevkit/VOC2007/ImageSets/Main in it; give the folder that contains VOCdevkit")


def _read_marks(home: Path, name: str, split: str, ids: list[str]) -> dict[str, int]:
    path = home / "ImageSets" / "Main" / f"{name}_{split}.txt"
    marks: dict[str, int] = {}
    for line in read_lines(path):
        words = line.split()
        if len(words) != 2 or words[1] not in ("1", "0", "-1"):
            raise DataError(f"{path}: '{line}' is not 'ID MARK' with a mark of 1, 0 or -1")
        if marks.setdefault(words[0], int(words[1])) != int(words[1]):
            raise DataError(f"{path}: image '{words[0]}' has the marks {marks[words[0]]} and {words[1]}; keep one")
    if missing := [image_id for image_id in ids if image_id not in marks]:
        raise DataError(f"{path}: no line for image '{missing[0]}' ({len(missing)} missing)")
    return marks
