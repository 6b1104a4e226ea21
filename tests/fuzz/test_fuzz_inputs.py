"""Models, recipes, datasets and images that anyone may have written: read, or refused with an error of ours."""

import io
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save
from tests.fuzz.mutations import HOSTILE, damaged, estranged, estranged_text, fuzz, read_or_refused
from tests.pipeline.tiny_run import RECIPE

from multiguard.data import load_pixels, open_dataset
from multiguard.data.coco import COCO_CATEGORY_IDS, COCO_LABELS
from multiguard.data.image import read_image
from multiguard.data.listed import read_lines
from multiguard.data.source import Source
from multiguard.data.voc import VOC_LABELS
from multiguard.models import load_classifier
from multiguard.models.backbone import build_backbone
from multiguard.models.folder import ModelCard, load_folder, read_card, save_folder
from multiguard.models.weights import read_weights
from multiguard.pipeline import parse_recipe
from multiguard.pipeline.record import RunRecord, StepRecord, read_record, write_record
from multiguard.train.checkpoint import Progress, read_progress, read_tensors, save_checkpoint

soaked = pytest.mark.parametrize("examples", [25, pytest.param(2000, marks=pytest.mark.soak)])
few = pytest.mark.parametrize("examples", [12, pytest.param(1000, marks=pytest.mark.soak)])
LABELS = ("a", "b", "c")
# Each line names the one before nine times: 9^20 values, were they written out.
LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model folder of the smallest network."""
    folder = tmp_path_factory.mktemp("model")
    network = build_backbone("cnn:2", 3).network
    card = ModelCard("cnn:2", LABELS, (16, 16), (0.5,) * 3, (0.5,) * 3, 0.5, training={"recipe": {"sigma": 0.5}})
    save_folder(folder, card, network)
    return folder


def copied(folder: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(folder, target))


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# ------------------------------------------------------------------------------------------------- models


@soaked
def test_a_model_card_is_read_or_refused(model, tmp_path, examples):
    stored = json.loads((model / "model.json").read_text())

    def check(data: bytes) -> None:
        place = copied(model, tmp_path / "m")
        written(place / "model.json", data)
        read_or_refused(lambda: load_folder(place))

    fuzz(check, estranged_text(stored), examples)


def test_a_card_cannot_ask_for_more_memory_than_its_weights(model, tmp_path):
    place = copied(model, tmp_path / "m")
    stored = json.loads((model / "model.json").read_text())
    for architecture in ("cnn:2000", "cnn:99999999999"):
        (place / "model.json").write_text(json.dumps({**stored, "architecture": architecture}))
        assert read_card(place).architecture == architecture
        assert read_or_refused(lambda: load_folder(place)) is None


@soaked
@pytest.mark.parametrize("suffix", ["safetensors", "pth", "legacy"])
def test_a_weights_file_is_read_or_refused(tmp_path, suffix, examples):
    tensors = {"head.weight": torch.arange(6.0).view(2, 3), "bias": torch.zeros(2, dtype=torch.float16)}
    written_by = io.BytesIO()
    torch.save({"state_dict": tensors}, written_by, _use_new_zipfile_serialization=suffix == "pth")
    content = save(tensors) if suffix == "safetensors" else written_by.getvalue()
    path = tmp_path / f"w.{'safetensors' if suffix == 'safetensors' else 'pth'}"
    assert len(read_weights(written(path, content))) == 2
    fuzz(lambda data: read_or_refused(lambda: read_weights(written(path, data))), damaged(content), examples)


def test_a_weights_file_that_swells_is_refused(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "w.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", bytes(1 << 24))
    assert read_or_refused(lambda: read_weights(tmp_path / "w.pth")) is None
    header = b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    data = len(header).to_bytes(8, "little") + header + bytes(64)
    assert read_or_refused(lambda: read_weights(written(tmp_path / "w.safetensors", data))) is None
    assert read_or_refused(lambda: read_weights(written(tmp_path / "w.safetensors", b"\xff" * 80))) is None


@soaked
def test_a_training_state_is_read_or_refused(tmp_path, examples):
    progress = Progress({"epochs": 2, "data": {"name": "x"}}, [{"epoch": 1, "loss": 0.5}])
    save_checkpoint(tmp_path, progress, {"network": {"w": torch.zeros(2)}, "optimizer": {"0/step": torch.zeros(1)}})
    path = tmp_path / "state" / "last.safetensors"
    content = path.read_bytes()

    def check(data: bytes) -> None:
        written(path, data)
        found = read_or_refused(lambda: read_progress(tmp_path))
        if found is not None:
            assert isinstance(found.history, list)
            read_or_refused(lambda: read_tensors(tmp_path))

    fuzz(check, damaged(content), examples)

    def check_said(text: bytes) -> None:
        said = text.decode("utf-8", "replace")
        check(save({"network/w": torch.zeros(2)}, metadata={"progress": said}))

    fuzz(check_said, estranged_text({"settings": {"epochs": 2}, "history": [{"epoch": 1}]}), examples)


@few
def test_an_onnx_file_is_read_or_refused(tmp_path, examples):
    helper, content = pytest.importorskip("onnx.helper"), b""
    pytest.importorskip("onnxruntime")
    value = helper.make_tensor_value_info
    weights = helper.make_tensor("w", 1, [4, 3], np.arange(12, dtype=np.float32).tolist())
    nodes = [helper.make_node("Flatten", ["x"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [value("x", 1, [1, 1, 2, 2])], [value("y", 1, [1, 3])], [weights])
    opset = [helper.make_opsetid("", 17)]
    content = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    path = tmp_path / "m.onnx"

    def check(data: bytes) -> None:
        written(path, data)
        read_or_refused(lambda: load_classifier(f"onnx:{path}", labels=LABELS, output="logits"))

    written(path, content)
    assert load_classifier(f"onnx:{path}", labels=LABELS, output="logits")(torch.ones(1, 1, 2, 2)).shape == (1, 3)
    fuzz(check, damaged(content), examples)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json", "model.safetensors"])
def test_a_hugging_face_folder_is_read_or_refused(tmp_path, name):
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    named = {"id2label": dict(enumerate(LABELS)), "problem_type": "multi_label_classification"}
    config = transformers.ViTConfig(image_size=32, patch_size=16, **small, **named)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "m")
    processor = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    (tmp_path / "m" / "preprocessor_config.json").write_text(json.dumps(processor))
    load_classifier(f"hf:{tmp_path / 'm'}")
    content = (tmp_path / "m" / name).read_bytes()

    def check(data: bytes) -> None:
        place = copied(tmp_path / "m", tmp_path / "n")
        written(place / name, data)
        read_or_refused(lambda: load_classifier(f"hf:{place}"))

    cases = damaged(content) if name.endswith("safetensors") else estranged_text(json.loads(content))
    fuzz(check, cases, 200)


# ------------------------------------------------------------------------------------------ recipes, records


@soaked
def test_a_recipe_is_read_or_refused(examples):
    fuzz(
        lambda data: read_or_refused(lambda: parse_recipe(data.decode("utf-8", "replace"), "recipe.yaml")),
        damaged(RECIPE.encode()),
        2 * examples,
    )
    plain = yaml.safe_load(RECIPE)
    fuzz(
        lambda value: read_or_refused(lambda: parse_recipe(json.dumps(value), "recipe.yaml")),
        estranged(plain),
        4 * examples,
    )


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        "[" * 100_000,
        "a: " * 3000,
        "? " * 3000,
        "sigma: " + "9" * 100_000,
        "sigma: 1" + "_1" * 10_000,
        "!!python/object/apply:os.system [echo]",
        "!!python/name:os.system",
        "data: !!binary aGk=\nsigma: 2001-13-45",
        "- " * 5000,
    ],
)  # fmt: skip
def test_a_recipe_made_to_hurt_is_refused(text):
    assert read_or_refused(lambda: parse_recipe(text, "recipe.yaml")) is None


@soaked
def test_the_record_of_a_run_is_read_or_refused(tmp_path, examples):
    record = RunRecord("multiguard run x", True, {"vote": StepRecord({"sigma": 0.5}, {"votes/a": "0" * 64}, 1.5)})
    write_record(tmp_path, record)
    stored = json.loads((tmp_path / "run.json").read_text())
    assert read_record(tmp_path) == record

    def check(data: bytes) -> None:
        written(tmp_path / "run.json", data)
        read_or_refused(lambda: read_record(tmp_path))

    fuzz(check, estranged_text(stored), examples)


@soaked
def test_what_a_file_says_of_its_images_opens_or_is_refused(tmp_path, examples):
    said = Source("digits", split="test", images=2).as_dict()

    def check(value) -> None:
        source = read_or_refused(lambda: Source.from_dict(value))
        if source is not None and source.data != "digits":
            read_or_refused(source.open)

    fuzz(check, estranged(said), examples)


# ----------------------------------------------------------------------------------------------- datasets


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Datasets of two images in every layout, by name: where they lie, and the file to damage."""
    home = tmp_path_factory.mktemp("data")
    small = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    for place in ("voc/VOC2007/JPEGImages", "coco/val2014", "nuswide/images", "folder"):
        (home / place).mkdir(parents=True)
        for name in ("1.jpg", "2.jpg"):
            Image.fromarray(small).save(home / place / name)
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
    for place in range(len(dataset)):
        assert dataset[place].image.shape == (3, 4, 4)


@soaked
@pytest.mark.parametrize("listing", LISTINGS)
def test_a_listing_is_read_or_refused(images, tmp_path, listing, examples):
    folder, file = LISTINGS[listing]
    name, content = listing.split()[0], (images / folder / file).read_bytes()
    root = copied(images / folder, tmp_path / "d")
    read_all(name, root)

    def check(data: bytes) -> None:
        written(root / file, data)
        read_or_refused(lambda: read_all(name, root))

    fuzz(check, damaged(content), examples)
    if listing == "coco":
        listed = json.loads(content)
        fuzz(check, estranged_text({**listed, "categories": listed["categories"][:2]}), 2 * examples)


@soaked
def test_the_labels_of_a_csv_are_read_or_refused(images, tmp_path, examples):
    root = copied(images / "nuswide", tmp_path / "d")
    fields = [
        *(str(value) for value in HOSTILE),
        "[" * 5000,
        "['concept 1'" * 500,
        "(" * 300,
        "{" * 99,
        "9" * 9999,
        "-" * 9999,
    ]

    def check(field: str) -> None:
        cell = field.replace('"', '""').encode("utf-8", "surrogatepass")
        written(root / "nus_wid_data.csv", b'filepath,label,split_name\n1.jpg,"' + cell + b'",val\n')
        read_or_refused(lambda: read_all("nuswide", root))

    fuzz(check, st.one_of(st.sampled_from(fields), st.text(max_size=30)), examples)


@soaked
def test_a_file_of_labels_is_read_or_refused(tmp_path, examples):
    path = tmp_path / "labels.txt"
    fuzz(
        lambda data: read_or_refused(lambda: read_lines(written(path, data))),
        damaged(b"cat\ndog\n\xc3\xa9\n"),
        examples,
    )


@soaked
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000"])
def test_a_image_is_decoded_or_refused(tmp_path, kind, examples):
    held, rng = io.BytesIO(), random.Random(0)
    Image.frombytes("RGB", (12, 10), rng.randbytes(360)).save(held, kind)
    path = tmp_path / "p"

    def check(data: bytes) -> None:
        found = read_or_refused(lambda: read_image(written(path, data), 8))
        assert found is None or (found.shape == (3, 8, 8) and found.dtype == np.uint8)

    fuzz(check, damaged(held.getvalue()), examples)


@soaked
def test_decoded_images_on_disk_are_mapped_or_refused(images, tmp_path, examples):
    dataset = open_dataset("folder", root=images / "folder", split="test", size=4)
    expected = load_pixels(dataset, workers=1, cache=tmp_path / "cache").images.shape
    (path,) = [file for file in (tmp_path / "cache").iterdir() if file.suffix == ".npy"]
    content = path.read_bytes()

    def check(data: bytes) -> None:
        written(path, data)
        found = read_or_refused(lambda: np.array(load_pixels(dataset, workers=1, cache=tmp_path / "cache").images))
        assert found is None or (found.shape[0], found.ndim, found.dtype) == (expected[0], 4, np.uint8)

    fuzz(check, damaged(content), examples)
