"""MS-COCO 2014 and 2017 in the official layout: annotations/instances_SPLIT.json and the folder SPLIT."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiguard.data.sample import FileDataset, ImageFile
from multiguard.errors import DataError
from multiguard.io.files import read_regular
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
_UNUSED_IDS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}
COCO_CATEGORY_IDS = tuple(number for number in range(1, 91) if number not in _UNUSED_IDS)
COCO_SPLITS = ("train", "val", "train2014", "val2014", "train2017", "val2017")
_YEARS = ("2014", "2017")
_RECORDS: dict[str, dict[str, type]] = {
    "images": {"id": int, "file_name": str},
    "annotations": {"image_id": int, "category_id": int},
    "categories": {"id": int, "name": str},
}


def open_coco(root: Path, split: str = "val", *, size: int | None = None) -> FileDataset:
    """The COCO images of one split with their image-level labels, in the official order of the 80 categories.

    A label is present when any annotation, crowd or not, has its category. The split train or val is of the year that
    is there.
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
    if split not in COCO_SPLITS:
        raise DataError(f"coco: {unknown_name('split', split, COCO_SPLITS)}")
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
    official = dict(zip(COCO_CATEGORY_IDS, COCO_LABELS, strict=True))
    for category in listing["categories"]:
        if official.get(category["id"]) != category["name"]:
            given = f"category {category['id']} '{category['name']}'"
            raise DataError(f"{path}: {given} is not one of COCO's 80; for other labels use the 'folder' dataset")
    positions = {number: index for index, number in enumerate(COCO_CATEGORY_IDS)}
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
