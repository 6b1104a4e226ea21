"""A Hugging Face folder of a stranger runs no code, opens no file elsewhere and asks for no more than it holds."""

import json
import os

import pytest
import torch
from torch import nn

from multiguard.errors import ModelError
from multiguard.io.files import read_regular
from multiguard.models import load
from multiguard.models.huggingface import MODEL_TYPES, size_limit

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    """A tiny vision transformer, saved once."""
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(image_size=32, patch_size=16, problem_type="multi_label_classification", **small)
    folder = tmp_path_factory.mktemp("vit")
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text('{"image_mean": [0.5], "image_std": [0.5]}')
    return folder


def edited(folder, home, **entries):
    """A copy of the folder with other entries in its config."""
    copy = home / "model"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    config = {**json.loads((copy / "config.json").read_text()), **entries}
    (copy / "config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize("kind", ["own", "timm_wrapper", "perceiver", "shieldgemma2", "bert", None, ["vit"]])
def test_model_type(vit, tmp_path, kind):
    """Only known image classifiers are built."""
    with pytest.raises(ModelError, match="model_type"):
        load(f"hf:{edited(vit, tmp_path, model_type=kind)}")


def test_known_model_types():
    """Each type that is allowed is an image classifier of transformers."""
    known = transformers.models.auto.modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
    assert set(known) >= MODEL_TYPES


@pytest.mark.parametrize(
    "entries",
    [
        {"num_labels": 10**9},
        {"num_labels": 10**400},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": 10**6},
        {"hidden_size": 10**6},
        {"hidden_size": 1e30},
        {"image_size": 10**6},
        {"image_size": [10**9, 10**9]},
        {"id2label": {str(number): "x" for number in range(10**4)}},
        {"hidden_size": 2, "num_attention_heads": 1, "intermediate_size": 0, "num_hidden_layers": 10**6},
        {"model_type": "swin", "depths": [10**6] * 50, "num_heads": [1] * 50},
        {"model_type": "efficientnet", "depth_coefficient": 1e6},
        {"model_type": "resnet", "depths": [2000] * 4},
    ],
)
def test_size(vit, tmp_path, entries):
    """A network larger than the tensors in the folder is refused before it is built."""
    with pytest.raises(ModelError, match=r"at most 1,048,576 is|a larger network than its files hold|is no height"):
        load(f"hf:{edited(vit, tmp_path, **entries)}")


def test_size_of_buffers():
    """Positions and masks that are computed, not stored, are limited as well."""
    with pytest.raises(ModelError, match="a larger network"), size_limit(10, 1, "hf:x"), torch.device("meta"):
        nn.Module().register_buffer("positions", torch.zeros(1 << 27))
    nn.Module().register_buffer("afterwards", torch.zeros(1 << 27, device="meta"))


@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json", "model.safetensors"])
def test_pipe(vit, tmp_path, name):
    """A pipe in the place of a file is refused at once."""
    folder = edited(vit, tmp_path)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ModelError, match=f"{name} cannot be read"):
        load(f"hf:{folder}")


def test_endless_file(vit, tmp_path):
    """A link to a device without end, or a huge config, is refused; a link to a file is followed."""
    folder = edited(vit, tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(vit / "model.safetensors")
    load(f"hf:{folder}")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/dev/zero")
    with pytest.raises(ModelError, match="not a regular file"):
        load(f"hf:{folder}")
    with pytest.raises(OSError, match="more than the 10 allowed"):
        read_regular(vit / "config.json", 10)
