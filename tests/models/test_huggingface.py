"""Hugging Face folders: loaded in full, hashed in full, and without running any of their code."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from small_models import LABELS, Trap, expected_votes, votes_of

from multiguard.errors import ModelError
from multiguard.models import load_classifier


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory):
    """A tiny Hugging Face model, and the folder it was saved in; it is made once and copied."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=16,
        id2label=dict(enumerate(LABELS)),
        label2id={name: i for i, name in enumerate(LABELS)},
        problem_type="multi_label_classification",
    )
    folder = tmp_path_factory.mktemp("hf")
    model = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(folder)
    return model, folder


@pytest.fixture
def make_folder(saved_model, tmp_path):
    """Copies the folder, with these changes to config.json and preprocessor_config.json."""

    def make(config=(), **processor):
        folder = Path(shutil.copytree(saved_model[1], tmp_path / "model"))
        stored = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**stored, **dict(config)}))
        processor = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], **processor}
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
        return folder

    return make


@pytest.fixture
def folder(make_folder):
    """A good folder."""
    return make_folder()


def test_normalised_votes(saved_model, folder):
    """The votes are those of the model behind its own normalisation."""
    classifier = load_classifier(f"hf:{folder}")
    assert classifier.output == "logits"
    mean, std = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1), torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)
    assert np.array_equal(votes_of(classifier), expected_votes(lambda x: saved_model[0]((x - mean) / std).logits))


def test_votes_without_normalisation(saved_model, make_folder):
    """A processor that does not normalise leaves the image as it is."""
    votes = votes_of(load_classifier(f"hf:{make_folder(do_normalize=False)}"))
    assert np.array_equal(votes, expected_votes(lambda x: saved_model[0](x).logits))


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "preprocessor_config.json"])
def test_weights_hash(saved_model, folder, file):
    """The hash covers every file that is read."""
    before = load_classifier(f"hf:{folder}").weights_hash
    if file == "model.safetensors":
        tensors = {name: tensor + 1 for name, tensor in saved_model[0].state_dict().items()}
        save_file(tensors, folder / file, {"format": "pt"})
    else:
        (folder / file).write_text((folder / file).read_text() + "\n")
    assert load_classifier(f"hf:{folder}").weights_hash != before


@pytest.mark.parametrize("head", ["missing", "mismatched"])
def test_model_without_head(saved_model, folder, head):
    """A checkpoint whose head would stay random is refused."""
    tensors = saved_model[0].state_dict()
    names = {"classifier.weight", "classifier.bias"}
    if head == "missing":
        tensors = {name: tensor for name, tensor in tensors.items() if name not in names}
    else:
        tensors |= {name: tensors[name][:3].clone() for name in names}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"classifier\.(bias|weight)" if head == "missing" else "cannot be loaded"):
        load_classifier(f"hf:{folder}")


def test_names_of_unfilled_tensors(folder, monkeypatch):
    """Missing and mismatched tensors are named."""
    transformers = pytest.importorskip("transformers")
    info = {"missing_keys": {"head.weight"}, "mismatched_keys": {("head.bias", (4,), (3,))}}
    monkeypatch.setattr(transformers.AutoModelForImageClassification, "from_pretrained", lambda *_, **__: (None, info))
    with pytest.raises(ModelError, match=r"hf:.*\('head.bias', \(4,\), \(3,\)\), head.weight \(2 in all\)"):
        load_classifier(f"hf:{folder}")


def test_float32(saved_model, folder):
    """A model is loaded in float32, whatever it was saved in."""
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in saved_model[0].state_dict().items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert {tensor.dtype for tensor in load_classifier(f"hf:{folder}").parameters()} == {torch.float32}


def test_library_that_does_not_import(folder, monkeypatch):
    """A library that a model needs and that does not import is named."""
    transformers = pytest.importorskip("transformers")

    def fails(*_, **__):
        raise ImportError("requires a library that is not here")

    monkeypatch.setattr(transformers.AutoModelForImageClassification, "from_pretrained", fails)
    with pytest.raises(ModelError, match="a library that is not here"):
        load_classifier(f"hf:{folder}")


def test_declared_probabilities(folder):
    """A Hugging Face model returns logits; another declaration is refused."""
    with pytest.raises(ModelError, match="returns logits"):
        load_classifier(f"hf:{folder}", output="probabilities")


@pytest.mark.parametrize(
    ("config", "processor", "message"),
    [
        ({"problem_type": "single_label_classification"}, {}, "problem_type"),
        ({}, {"rescale_factor": 1 / 127.5}, r"\[0, 1\]"),
        ({}, {"do_rescale": False}, r"\[0, 1\]"),
    ],
)
def test_unsuitable_model(make_folder, config, processor, message):
    """A single-label model, and one whose pixels are not in [0, 1], are refused."""
    with pytest.raises(ModelError, match=message):
        load_classifier(f"hf:{make_folder(config, **processor)}")


def test_empty_hf_folder(tmp_path):
    """A folder without a config is refused."""
    with pytest.raises(ModelError, match=r"config\.json cannot be read"):
        load_classifier(f"hf:{tmp_path}")


def test_code_in_hf_folder(folder, make_folder):
    """No code of the folder runs: neither a pickle nor a module that its config names."""
    sprung = folder / "sprung"
    (folder / "model.safetensors").unlink()
    torch.save({"x": Trap(sprung)}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"no tensors in \.safetensors files"):
        load_classifier(f"hf:{folder}")
    (folder / "own.py").write_text(f"import os\nos.mkdir({str(sprung)!r})\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.C", "AutoModelForImageClassification": "own.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="auto_map"):
        load_classifier(f"hf:{folder}")
    assert not sprung.exists()
