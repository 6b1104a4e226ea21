"""MS-COCO 2014 and 2017 in the official layout: annotations/instances_SPLIT.json beside the folder SPLIT."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multiguard.data.listed import Entry, ListedDataset
from multiguard.errors import DataError
from multiguard.io.names import unknown_name
from multiguard.io.records import decode_json

COCO_LABELS = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow",
    "elephant", "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee",
    "skis", "snowboard", "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard",
    "tennis racket", "bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple",
    "sandwich", "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch",
    "potted plant", "bed", "dining table", "toilet", "tv", "laptop", "mouse", "remote", "keyboard",
    "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator", "book", "clock", "vase", "scissors",
    "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip
_UNUSED_IDS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}
COCO_CATEGORY_IDS = tuple(number for number in range(1, 91) if number not in _UNUSED_IDS)
COCO_SPLITS = ("train", "val", "train2014", "val2014", "train2017", "val2017")
_YEARS = ("2014", "2017")
_NEEDED: dict[str, dict[str, type]] = {
    "images": {"id": int, "file_name": str},
    "annotations": {"image_id": int, "category_id": int},
    "categories": {"id": int, "name": str},
}


def open_coco(root: Path, split: str = "val", *, size: int | None = None) -> ListedDataset:
    """COCO's images of one split with their image-level labels, in the official order of the 80 categories.

    A label is present when at least one annotation, crowd or not, has its category. Images without any
    annotation are kept, with no label.

    Args:
        root: The folder that holds `annotations`.
        split: train or val (the year is the one that is there), or with the year, as in val2017.
        size: Height and width to squash each image to; None keeps its own.
    """
    split = _with_year(root, split)
    path = root / "annotations" / f"instances_{split}.json"
    listing = _read_listing(path)
    positions = _category_positions(listing["categories"], path)
    labels = _image_labels(listing, positions, path)
    entries = [
        Entry(Path(image["file_name"]).stem, root / split / image["file_name"], labels[image["id"]])
        for image in listing["images"]
    ]
    return ListedDataset(f"coco/{split}", COCO_LABELS, entries, size=size, home=root / split)


def _with_year(root: Path, split: str) -> str:
    if split not in COCO_SPLITS:
        raise DataError(f"coco: {unknown_name('split', split, COCO_SPLITS)}")
    if split.endswith(_YEARS):
        return split
    there = [year for year in _YEARS if (root / "annotations" / f"instances_{split}{year}.json").is_file()]
    if len(there) != 1:
        found = "both years are" if there else "neither 2014 nor 2017 is"
        raise DataError(
            f"{root}: {found} there as annotations/instances_{split}YEAR.json; "
            f"check the root, or name the year, as in {split}2014"
        )
    return split + there[0]


def _read_listing(path: Path) -> dict[str, Any]:
    try:
        listing = decode_json(path.read_bytes(), dict[str, Any])
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; give the folder that holds 'annotations' as the root") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not readable as JSON ({error})") from error
    for key, needed in _NEEDED.items():
        found = listing.get(key) if isinstance(listing, dict) else None
        if not isinstance(found, list):
            raise DataError(f"{path}: no '{key}'; expected an official COCO instances file")
        wrong = [one for one in found if not _has(one, needed)]
        if wrong:
            raise DataError(
                f"{path}: {str(wrong[0])[:80]} under '{key}' lacks {' or '.join(needed)} as COCO writes them"
            )
    return dict(listing)


def _has(one: Any, needed: Mapping[str, type]) -> bool:
    return isinstance(one, dict) and all(type(one.get(name)) is kind for name, kind in needed.items())


def _category_positions(categories: list[Mapping[str, Any]], path: Path) -> dict[int, int]:
    official = dict(zip(COCO_CATEGORY_IDS, COCO_LABELS, strict=True))
    for category in categories:
        if official.get(category["id"]) != category["name"]:
            raise DataError(
                f"{path}: category {category['id']} '{category['name']}' is not one of COCO's 80; "
                "for other labels use the 'folder' dataset"
            )
    return {number: index for index, number in enumerate(COCO_CATEGORY_IDS)}


def _image_labels(listing: Mapping[str, Any], positions: Mapping[int, int], path: Path) -> dict[int, tuple[int, ...]]:
    found: defaultdict[int, set[int]] = defaultdict(set)
    for annotation in listing["annotations"]:
        category = annotation["category_id"]
        if category not in positions:
            raise DataError(f"{path}: annotation {annotation.get('id')} has the unknown category {category}")
        found[annotation["image_id"]].add(positions[category])
    labels = {image["id"]: tuple(sorted(found[image["id"]])) for image in listing["images"]}
    if len(labels) < len(listing["images"]):
        raise DataError(f"{path}: two images have one id, so that whose annotations are whose is not known")
    return labels
