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
from multiguard.models import load


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
    """The votes equal the model's behind its own normalisation."""
    classifier = load(f"hf:{folder}")
    assert classifier.output == "logits"
    mean, std = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1), torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)
    assert np.array_equal(votes_of(classifier), expected_votes(lambda x: saved_model[0]((x - mean) / std).logits))


def test_size_of_folder(make_folder):
    """The size comes from the last step that changes it, or from the config."""
    crop = {"do_center_crop": True, "crop_size": {"height": 224, "width": 224}, "size": {"shortest_edge": 256}}
    cases = [
        ({}, (32, 32)),
        ({"size": {"height": 48, "width": 64}}, (48, 64)),
        ({"size": 24}, (24, 24)),
        ({"size": {"shortest_edge": 40}}, (40, 40)),
        (crop, (224, 224)),
        ({**crop, "do_center_crop": False}, (256, 256)),
        ({"size": 24, "do_resize": False}, (32, 32)),
    ]
    folder = make_folder()
    for processor, size in cases:
        (folder / "preprocessor_config.json").write_text(json.dumps({"do_normalize": False, **processor}))
        assert load(f"hf:{folder}").image_size == size
    assert load(f"hf:{folder}", image_size=(16, 16)).image_size == (16, 16)


def test_missing_processor(folder):
    """A missing preprocessor config is named with the options that replace it."""
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(ModelError, match=r"no preprocessor_config\.json.*mean and std .* size"):
        load(f"hf:{folder}")
    classifier = load(f"hf:{folder}", mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    assert (classifier.image_size, classifier.std.flatten().tolist()) == ((32, 32), pytest.approx([0.4, 0.5, 0.6]))


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "preprocessor_config.json"])
def test_weights_hash(saved_model, folder, file):
    """The hash covers every file that is read."""
    before = load(f"hf:{folder}").weights_hash
    if file == "model.safetensors":
        tensors = {name: tensor + 1 for name, tensor in saved_model[0].state_dict().items()}
        save_file(tensors, folder / file, {"format": "pt"})
    else:
        (folder / file).write_text((folder / file).read_text() + "\n")
    assert load(f"hf:{folder}").weights_hash != before


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
        load(f"hf:{folder}")


def test_float32(saved_model, folder):
    """A model is loaded in float32, whatever it was saved in."""
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in saved_model[0].state_dict().items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert {tensor.dtype for tensor in load(f"hf:{folder}").parameters()} == {torch.float32}


def test_declared_probabilities(folder):
    """A Hugging Face model returns logits; another declaration is refused."""
    with pytest.raises(ModelError, match="returns logits"):
        load(f"hf:{folder}", output="probabilities")


@pytest.mark.parametrize(
    ("config", "processor", "message"),
    [
        ({"problem_type": "single_label_classification"}, {}, "problem_type"),
        ({}, {"do_rescale": False}, "do_rescale"),
        ({}, {"rescale_factor": -1}, "rescale_factor"),
        ({}, {"do_convert_grayscale": True}, "do_convert_grayscale"),
        ({}, {"include_top": True}, "include_top"),
        ({}, {"image_std": [0.5, 0.0, 0.5]}, "image_std .* above 0"),
        ({}, {"image_mean": [0.5, 0.5]}, "image_mean .* expected 1 or 3 numbers"),
        ({}, {"size": {"longest_edge": 3}}, "--size"),
        ({}, {"do_flip_channel_order": True}, "do_flip_channel_order"),
    ],
)
def test_unsuitable_model(make_folder, config, processor, message):
    """A single-label model, and preprocessing that is not supported, are refused by name."""
    with pytest.raises(ModelError, match=message):
        load(f"hf:{make_folder(config, **processor)}")


def test_code_in_hf_folder(folder, make_folder):
    """No code of the folder runs: neither a pickle nor a module that its config names."""
    sprung = folder / "sprung"
    (folder / "model.safetensors").unlink()
    torch.save({"x": Trap(sprung)}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"no tensors in \.safetensors files"):
        load(f"hf:{folder}")
    (folder / "own.py").write_text(f"import os\nos.mkdir({str(sprung)!r})\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.C", "AutoModelForImageClassification": "own.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="auto_map"):
        load(f"hf:{folder}")
    assert not sprung.exists()


def test_model_object(saved_model):
    """A model object has its labels and returns logits."""
    with pytest.warns(UserWarning, match=r"preprocessor_config\.json is not applied"):
        classifier = load(saved_model[0])
    assert (classifier.output, classifier.label_names) == ("logits", tuple(LABELS))
    assert np.array_equal(votes_of(classifier), expected_votes(lambda x: saved_model[0](x).logits))
    with pytest.raises(ModelError, match="returns logits"):
        load(saved_model[0], output="probabilities")
    with pytest.raises(ModelError, match="returns 4 scores, and --labels"):
        load(saved_model[0], labels=["cat"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"id2label": {"0": "cat", "1": "dog", "2": "cow", "4": "sky"}}, "id2label has the indices 0, 1, 2, 4"),
        ({"id2label": {"-1": "cat", "0": "dog", "1": "cow", "2": "sky"}}, "expected 0 to 3"),
        ({"label2id": {"cat": 1, "dog": 0}}, "label2id has 'cat' at 1, and id2label contradicts it"),
    ],
)
def test_labels(make_folder, config, message):
    """Labels with gaps or negative indices, and two lists that contradict each other, are no order of the scores."""
    with pytest.raises(ModelError, match=message):
        load(f"hf:{make_folder(config)}")


def test_text_model_object():
    """A model of token ids is refused: no noise can be added to them."""
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=20, **small))
    with pytest.raises(ModelError, match="token ids"):
        load(model)
