"""Model files that anyone may have written: read, or refused with an error of ours."""

import io
import json
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save
from tests.fuzz.mutations import (
    copy_folder,
    damaged,
    estranged_text,
    few,
    fuzz,
    read_or_refused,
    soaked,
    write_file,
)

from multiguard.certify import Gaussian
from multiguard.models import load
from multiguard.models.backbone import build_backbone
from multiguard.models.card import ModelCard, read_card
from multiguard.models.model_folder import load_folder, save_folder
from multiguard.models.weight_files import read_weights

LABELS = ("a", "b", "c")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model folder of the smallest network."""
    folder = tmp_path_factory.mktemp("model")
    network = build_backbone("cnn:2", 3).network
    card = ModelCard(
        "cnn:2", LABELS, (16, 16), (0.5,) * 3, (0.5,) * 3, Gaussian(0.5), training={"recipe": {"noise": "gaussian:0.5"}}
    )
    save_folder(folder, card, network)
    return folder


@soaked
def test_model_card(model, tmp_path, examples):
    """A model card is read or refused."""
    stored = json.loads((model / "model.json").read_text())

    def check(data: bytes) -> None:
        folder = copy_folder(model, tmp_path / "m")
        write_file(folder / "model.json", data)
        read_or_refused(lambda: load_folder(folder))

    fuzz(check, estranged_text(stored), examples)


def test_model_card_of_huge_network(model, tmp_path):
    """A card cannot request more memory than its weights have, nor name a file that no disk can have."""
    folder = copy_folder(model, tmp_path / "m")
    stored = json.loads((model / "model.json").read_text())
    for architecture in ("cnn:2000", "cnn:99999999999", f"{9**400}cnn:2"):
        (folder / "model.json").write_text(json.dumps({**stored, "architecture": architecture}))
        assert read_card(folder).architecture == architecture
        assert read_or_refused(lambda: load_folder(folder)) is None


@soaked
@pytest.mark.parametrize("suffix", ["safetensors", "pth", "legacy"])
def test_weights_file(tmp_path, suffix, examples):
    """A weights file is read or refused."""
    tensors = {"head.weight": torch.arange(6.0).view(2, 3), "bias": torch.zeros(2, dtype=torch.float16)}
    written_by = io.BytesIO()
    torch.save({"state_dict": tensors}, written_by, _use_new_zipfile_serialization=suffix == "pth")
    content = save(tensors) if suffix == "safetensors" else written_by.getvalue()
    path = tmp_path / f"w.{'safetensors' if suffix == 'safetensors' else 'pth'}"
    assert len(read_weights(write_file(path, content))) == 2
    fuzz(lambda data: read_or_refused(lambda: read_weights(write_file(path, data))), damaged(content), examples)


def test_weights_bomb(tmp_path):
    """A weights file that unpacks to more than its size is refused."""
    with zipfile.ZipFile(tmp_path / "w.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", bytes(1 << 24))
    assert read_or_refused(lambda: read_weights(tmp_path / "w.pth")) is None
    header = b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    data = len(header).to_bytes(8, "little") + header + bytes(64)
    assert read_or_refused(lambda: read_weights(write_file(tmp_path / "w.safetensors", data))) is None
    assert read_or_refused(lambda: read_weights(write_file(tmp_path / "w.safetensors", b"\xff" * 80))) is None


@few
def test_onnx_bytes(tmp_path, examples):
    """An ONNX file is read or refused."""
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
        write_file(path, data)
        read_or_refused(lambda: load(f"onnx:{path}", labels=LABELS, output="logits"))

    write_file(path, content)
    assert load(f"onnx:{path}", labels=LABELS, output="logits")(torch.ones(1, 1, 2, 2)).shape == (1, 3)
    fuzz(check, damaged(content), examples)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json", "model.safetensors"])
def test_hugging_face_folder(tmp_path, name):
    """A Hugging Face folder is read or refused."""
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    named = {"id2label": dict(enumerate(LABELS)), "problem_type": "multi_label_classification"}
    config = transformers.ViTConfig(image_size=32, patch_size=16, **small, **named)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "m")
    processor = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    (tmp_path / "m" / "preprocessor_config.json").write_text(json.dumps(processor))
    load(f"hf:{tmp_path / 'm'}")
    content = (tmp_path / "m" / name).read_bytes()

    def check(data: bytes) -> None:
        folder = copy_folder(tmp_path / "m", tmp_path / "n")
        write_file(folder / name, data)
        read_or_refused(lambda: load(f"hf:{folder}"))

    cases = damaged(content) if name.endswith("safetensors") else estranged_text(json.loads(content))
    fuzz(check, cases, 200)
