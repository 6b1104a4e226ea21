import json

import pytest
from PIL import Image

from multiguard.data.annotations import COCO_CATEGORY_IDS, COCO_LABELS, open_coco
from multiguard.errors import DataError


def write_split(root, split, annotations, categories=None):
    (root / "annotations").mkdir(parents=True, exist_ok=True)
    (root / split).mkdir(exist_ok=True)
    images = [{"id": number, "file_name": f"COCO_{split}_{number:012d}.jpg"} for number in (7, 3, 12)]
    for image in images:
        Image.new("L", (12, 9)).save(root / split / image["file_name"])
    if categories is None:
        pairs = list(zip(COCO_CATEGORY_IDS, COCO_LABELS, strict=True))[::-1]
        categories = [{"id": number, "name": name} for number, name in pairs]
    listing = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(listing))


def annotation(image, category):
    return {"id": 1, "image_id": image, "category_id": category}


@pytest.fixture
def coco(tmp_path):
    write_split(tmp_path, "val2014", [annotation(3, 90), annotation(3, 1), annotation(3, 90), annotation(7, 13)])
    return tmp_path


def names(dataset, index):
    return [dataset.label_names[label] for label in dataset[index].labels]


def test_labels_of_annotations(coco):
    """An image's labels are the categories of its annotations, without repetition."""
    dataset = open_coco(coco, "val", size=8)
    assert dataset.ids[0] == "COCO_val2014_000000000007"
    assert [names(dataset, i) for i in range(3)] == [["stop sign"], ["person", "toothbrush"], []]


def test_both_years(coco):
    """Where both years exist, the split must name one."""
    write_split(coco, "val2017", [annotation(3, 2)])
    with pytest.raises(DataError, match="both years exist"):
        open_coco(coco, "val")
    assert names(open_coco(coco, "val2017"), 1) == ["bicycle"]


def test_bad_annotations(coco, tmp_path):
    """A missing or broken file, and categories other than the official 80, are named."""
    for split, message in (("train", "neither 2014 nor 2017 exists"), ("train2017", r"train2017\.json: no such file")):
        with pytest.raises(DataError, match=message):
            open_coco(tmp_path, split)
    write_split(coco, "val2014", [annotation(3, 12)])
    with pytest.raises(DataError, match="unknown category 12"):
        open_coco(coco)
    write_split(coco, "val2014", [], categories=[{"id": 1, "name": "pedestrian"}])
    with pytest.raises(DataError, match="category 1 'pedestrian' is not one of COCO's 80"):
        open_coco(coco)
    (coco / "annotations" / "instances_val2014.json").write_text("{")
    with pytest.raises(DataError, match=r"instances_val2014\.json: not readable as JSON"):
        open_coco(coco)


def test_real_coco_images(coco_root):
    """The real annotations give the official labels of every image."""
    listing = json.loads((coco_root / "annotations" / "instances_val2014.json").read_text())
    official = [category["name"] for category in sorted(listing["categories"], key=lambda c: c["id"])]
    dataset = open_coco(coco_root, "val", size=32)
    assert list(dataset.label_names) == official
    assert len(dataset) == 500
    assert sum(map(len, dataset.labels)) == len({(a["image_id"], a["category_id"]) for a in listing["annotations"]})
    assert dataset[499].image.shape == (3, 32, 32)
    assert len(open_coco(coco_root, "train")) == 3000
