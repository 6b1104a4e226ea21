"""Datasets, tables and images that anyone may have written: read, or refused with an error of ours."""

import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from PIL import Image
from tests.fuzz.mutations import (
    HOSTILE,
    copy_folder,
    damaged,
    estranged,
    estranged_text,
    fuzz,
    read_or_refused,
    soaked,
    write_file,
)

from multiguard.data import open_dataset
from multiguard.data.annotations import COCO_CATEGORY_IDS, COCO_LABELS, VOC_LABELS
from multiguard.data.config import DataConfig
from multiguard.data.image import read_image
from multiguard.io.config import from_tree, to_tree
from multiguard.io.files import read_lines


@soaked
def test_stored_source_of_images(tmp_path, examples):
    """A record of images opens or is refused."""
    stored = to_tree(DataConfig("digits", split="test", images=2))

    def check(value) -> None:
        source = read_or_refused(lambda: from_tree(DataConfig, value))
        if source is not None and source.name != "digits":
            read_or_refused(source.open)

    fuzz(check, estranged(stored), examples)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Datasets of two images in every layout, each in a folder of its own."""
    home = tmp_path_factory.mktemp("data")
    small = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    for folder in ("voc/VOC2007/JPEGImages", "coco/val2014", "nuswide/images", "folder"):
        (home / folder).mkdir(parents=True)
        for name in ("1.jpg", "2.jpg"):
            Image.fromarray(small).save(home / folder / name)
    main = home / "voc/VOC2007/ImageSets/Main"
    main.mkdir(parents=True)
    (main / "test.txt").write_text("1\n2\n")
    for name in VOC_LABELS:
        (main / f"{name}_test.txt").write_text("1  1\n2 -1\n")
    categories = [{"id": i, "name": name} for i, name in zip(COCO_CATEGORY_IDS, COCO_LABELS, strict=True)]
    images = [{"id": i, "file_name": f"{i}.jpg", "width": 4, "height": 10**9} for i in (1, 2)]
    annotations = [{"id": 7, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}]
    listing = {"images": images, "annotations": annotations, "categories": categories}
    (home / "coco/annotations").mkdir()
    (home / "coco/annotations/instances_val2014.json").write_text(json.dumps(listing))
    (home / "nuswide/Concepts81.txt").write_text("".join(f"concept {i}\n" for i in range(81)))
    rows = "1.jpg,\"['concept 1', 'concept 2']\",val\n2.jpg,[],val\n"
    (home / "nuswide/nus_wid_data.csv").write_text(f"filepath,label,split_name\n{rows}")
    (home / "folder/labels.csv").write_text("file,labels,split\n1.jpg,a;b,test\n2.jpg,,test\n")
    return home


LISTINGS = {
    "voc2007": ("voc", "VOC2007/ImageSets/Main/test.txt"),
    "voc2007 marks": ("voc", "VOC2007/ImageSets/Main/cat_test.txt"),
    "nuswide": ("nuswide", "nus_wid_data.csv"),
    "nuswide concepts": ("nuswide", "Concepts81.txt"),
    "folder": ("folder", "labels.csv"),
    "coco": ("coco", "annotations/instances_val2014.json"),
}


def read_all(name: str, root: Path) -> None:
    """Open the dataset and read its images."""
    split = {"voc2007": "test", "nuswide": "val", "folder": "test", "coco": "val"}[name]
    dataset = open_dataset(name, root=root, split=split, size=4)
    for index in range(len(dataset)):
        assert dataset[index].image.shape == (3, 4, 4)


@soaked
@pytest.mark.parametrize("listing", LISTINGS)
def test_listing(images, tmp_path, listing, examples):
    """The listing of each dataset is read or refused."""
    folder, file = LISTINGS[listing]
    name, content = listing.split()[0], (images / folder / file).read_bytes()
    root = copy_folder(images / folder, tmp_path / "d")
    read_all(name, root)

    def check(data: bytes) -> None:
        write_file(root / file, data)
        read_or_refused(lambda: read_all(name, root))

    fuzz(check, damaged(content), examples)
    if listing == "coco":
        listed = json.loads(content)
        fuzz(check, estranged_text({**listed, "categories": listed["categories"][:2]}), 2 * examples)


@soaked
def test_label_field(images, tmp_path, examples):
    """The labels in a CSV are read or refused."""
    root = copy_folder(images / "nuswide", tmp_path / "d")
    fields = [
        *(str(value) for value in HOSTILE),
        "[" * 5000,
        "['concept 1'" * 500,
        "(" * 300,
        "{" * 99,
        "9" * 9999,
        "-" * 9999,
    ]

    # As st.text() would give, without its tables of all Unicode categories, which take seconds to build.
    texts = st.lists(st.integers(0, 0x10FFFF).map(chr), max_size=30).map("".join)

    def check(field: str) -> None:
        cell = field.replace('"', '""').encode("utf-8", "surrogatepass")
        write_file(root / "nus_wid_data.csv", b'filepath,label,split_name\n1.jpg,"' + cell + b'",val\n')
        read_or_refused(lambda: read_all("nuswide", root))

    fuzz(check, st.one_of(st.sampled_from(fields), texts), examples)


@soaked
def test_list_of_labels(tmp_path, examples):
    """A file of label names is read or refused."""
    path = tmp_path / "labels.txt"
    fuzz(
        lambda data: read_or_refused(lambda: read_lines(write_file(path, data))),
        damaged(b"cat\ndog\n\xc3\xa9\n"),
        examples,
    )


@soaked
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000"])
def test_image_bytes(tmp_path, kind, examples):
    """An image is decoded or refused."""
    held, rng = io.BytesIO(), random.Random(0)
    Image.frombytes("RGB", (12, 10), rng.randbytes(360)).save(held, kind)
    path = tmp_path / "p"

    def check(data: bytes) -> None:
        found = read_or_refused(lambda: read_image(write_file(path, data), 8))
        assert found is None or (found.shape == (3, 8, 8) and found.dtype == np.uint8)

    fuzz(check, damaged(held.getvalue()), examples)
