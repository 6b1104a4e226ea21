"""Datasets in their official layouts: MS-COCO, PASCAL VOC 2007, and NUS-WIDE as the CSV of its released split."""

import ast
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from multiguard.data.image_folder import Row, label_index, normal_name, read_table
from multiguard.data.sample import FileDataset, ImageFile
from multiguard.errors import DataError, ImageError
from multiguard.io.files import read_lines, read_regular
from multiguard.io.names import unknown_name
from multiguard.io.records import decode_json

COCO_LABELS = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow", "elephant",
    "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard",
    "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich", "orange", "broccoli",
    "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch", "potted plant", "bed", "dining table", "toilet",
    "tv", "laptop", "mouse", "remote", "keyboard", "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator",
    "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip
VOC_LABELS = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
_UNUSED_IDS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}
COCO_CATEGORY_IDS = tuple(number for number in range(1, 91) if number not in _UNUSED_IDS)
_COCO_SPLITS = ("train", "val", "train2014", "val2014", "train2017", "val2017")
_YEARS = ("2014", "2017")
_RECORDS: dict[str, dict[str, type]] = {
    "images": {"id": int, "file_name": str},
    "annotations": {"image_id": int, "category_id": int},
    "categories": {"id": int, "name": str},
}
_VOC_SPLITS = ("train", "val", "trainval", "test")
_CONCEPTS, _COLUMNS = 81, ("filepath", "label", "split_name")  # of NUS-WIDE


def open_coco(root: Path, split: str = "val", *, size: int | None = None) -> FileDataset:
    """The COCO images of one split with their labels, in the official order of the 80 categories.

    A label is present when any annotation, crowd or not, has its category. The split train or val is of the year of
    annotations/instances_SPLIT.json that is there.
    """
    split = _with_year(root, split)
    path = root / "annotations" / f"instances_{split}.json"
    listing = _read_listing(path)
    labels = _image_labels(listing, path)
    files = [
        ImageFile(Path(image["file_name"]).stem, root / split / image["file_name"], labels[image["id"]])
        for image in listing["images"]
    ]
    return FileDataset(f"coco {split}", COCO_LABELS, files, size=size, home=root / split)


def _with_year(root: Path, split: str) -> str:
    if split not in _COCO_SPLITS:
        raise DataError(f"coco: {unknown_name('split', split, _COCO_SPLITS)}")
    if split.endswith(_YEARS):
        return split
    years = [year for year in _YEARS if (root / "annotations" / f"instances_{split}{year}.json").is_file()]
    if len(years) != 1:
        state = "both years exist" if years else "neither 2014 nor 2017 exists"
        file = f"annotations/instances_{split}YEAR.json"
        raise DataError(f"{root}: {state} as {file}; check the root, or give the year, as in {split}2014")
    return split + years[0]


def _read_listing(path: Path) -> dict[str, Any]:
    try:
        listing = decode_json(read_regular(path), dict[str, Any])
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; give the folder that contains 'annotations' as the root") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not readable as JSON ({error})") from error
    for key, types in _RECORDS.items():
        if not isinstance(listing.get(key), list):
            raise DataError(f"{path}: no '{key}'; expected an official COCO instances file")
        for record in listing[key]:
            if not isinstance(record, dict) or any(type(record.get(name)) is not kind for name, kind in types.items()):
                expected = " and ".join(f"{name} ({kind.__name__})" for name, kind in types.items())
                raise DataError(f"{path}: {str(record)[:80]} under '{key}'; expected {expected}, as COCO writes them")
    return listing


def _image_labels(listing: Mapping[str, Any], path: Path) -> dict[int, tuple[int, ...]]:
    """The labels of each image, by the image's number."""
    positions = {number: index for index, number in enumerate(COCO_CATEGORY_IDS)}
    for category in listing["categories"]:
        if (index := positions.get(category["id"])) is None or COCO_LABELS[index] != category["name"]:
            given = f"category {category['id']} '{category['name']}'"
            raise DataError(f"{path}: {given} is not one of COCO's 80; for other labels use the 'folder' dataset")
    present: defaultdict[int, set[int]] = defaultdict(set)
    for annotation in listing["annotations"]:
        category = annotation["category_id"]
        if category not in positions:
            raise DataError(f"{path}: annotation {annotation.get('id')} has the unknown category {category}")
        present[annotation["image_id"]].add(positions[category])
    labels = {image["id"]: tuple(sorted(present[image["id"]])) for image in listing["images"]}
    if len(labels) < len(listing["images"]):
        raise DataError(f"{path}: two images share one id, so their labels are ambiguous; use the official file")
    return labels


def open_voc2007(root: Path, split: str = "test", *, size: int | None = None, difficult: bool = False) -> FileDataset:
    """The VOC 2007 images of one split, with their labels in alphabetical order; the arguments are `open_dataset`'s.

    The root is the folder that contains VOCdevkit, or VOCdevkit, or VOC2007 itself.
    """
    if split not in _VOC_SPLITS:
        raise DataError(f"voc2007: {unknown_name('split', split, _VOC_SPLITS)}")
    homes = (root / "VOCdevkit" / "VOC2007", root / "VOC2007", root)
    if (home := next((one for one in homes if (one / "ImageSets" / "Main").is_dir()), None)) is None:
        raise DataError(f"{root}: no VOCdevkit/VOC2007/ImageSets/Main in it; give the folder that contains VOCdevkit")
    ids = [line.split()[0] for line in read_lines(home / "ImageSets" / "Main" / f"{split}.txt")]
    marks = [_read_marks(home, name, split, ids) for name in VOC_LABELS]
    least, images = (0 if difficult else 1), home / "JPEGImages"
    labels = [tuple(index for index, mark in enumerate(marks) if mark[name] >= least) for name in ids]
    files = [ImageFile(name, images / f"{name}.jpg", own) for name, own in zip(ids, labels, strict=True)]
    return FileDataset(f"voc2007 {split}", VOC_LABELS, files, size=size, home=images)


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


def open_nuswide(root: Path, split: str = "val", *, size: int | None = None, table: Path | None = None) -> FileDataset:
    """The NUS-WIDE images of one split with their concepts, in the order of Concepts81.txt.

    Images are where the CSV says, or in the folder `images`. Arguments as in `open_dataset`.
    """
    path = root / "Concepts81.txt"
    concepts = read_lines(path)
    if len(concepts) != _CONCEPTS:
        raise DataError(f"{path}: {len(concepts)} concepts; expected {_CONCEPTS}, one per line")
    indices = label_index(concepts, path)
    listing = read_table(root, table, default="nus_wid_data.csv", columns=_COLUMNS)

    def make(row: Row) -> ImageFile:
        name = normal_name(row.fields["filepath"].replace("\\", "/"))
        path, below = root / name, root / "images" / name
        with suppress(OSError):  # a name that no file can have; reading it raises ImageError
            path = below if below.is_file() and not path.is_file() else path
        return ImageFile(name, path, indices(row, _read_concepts(row)))

    return FileDataset(f"nuswide {split}", concepts, listing.files("split_name", split, make), size=size, home=root)


def _read_concepts(row: Row) -> list[str]:
    """The concept names in a field such as "['sky', 'clouds']"."""
    text = row.fields["label"]
    try:
        names = ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two where it is nested too deeply
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ImageError(row.source, f"label {text[:80]!r} is not a list of names such as \"['sky', 'clouds']\"")
    return names
