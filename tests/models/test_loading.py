"""Every kind of base classifier, made here, loaded for real and sampled; and no weights file runs code."""

import contextlib
import hashlib
import json
import os
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from toy_models import a_classifier

from multiguard.errors import ModelError
from multiguard.models import Classifier, load_classifier
from multiguard.models.backbone import build_backbone
from multiguard.models.folder import ModelCard, save_folder
from multiguard.smooth import Smoother

torch.set_num_threads(1)
LABELS = ["cat", "dog", "cow", "hen"]
IMAGE = np.random.default_rng(0).random((3, 32, 32), dtype=np.float32)
TIMM = "test_efficientnet"  # small, and its mean is not its deviation


def small_network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4)).eval()


def expected_votes(scores, draws: int = 20, size: int = 32) -> np.ndarray:
    reference = load_classifier(scores, labels=LABELS, output="logits")
    return Smoother(reference, sigma=0.5, device="cpu").votes(IMAGE[:, :size, :size], draws, seed=0, image_id="a")


def votes_of(classifier: Classifier, draws: int = 20, size: int = 32) -> np.ndarray:
    assert classifier.label_names == tuple(LABELS)
    return Smoother(classifier, sigma=0.5, device="cpu").votes(IMAGE[:, :size, :size], draws, seed=0, image_id="a")


def timm_model(labels: int = 4) -> nn.Module:
    timm = pytest.importorskip("timm")
    torch.manual_seed(2)
    return timm.create_model(TIMM, num_classes=labels).eval()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_timm(tmp_path, suffix):
    model, file = timm_model(), tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save({"state_dict": model.state_dict()}, file)
    else:
        save_file(model.state_dict(), file)
    classifier = load_classifier(f"timm:{TIMM}", labels=LABELS, weights=file)
    assert classifier.output == "logits"
    assert classifier.weights_hash == hashlib.sha256(file.read_bytes()).hexdigest()
    mean, std = (torch.tensor(model.pretrained_cfg[key]).view(3, 1, 1) for key in ("mean", "std"))
    images = torch.rand(2, 3, 48, 48)
    with torch.no_grad():
        assert torch.equal(classifier.eval()(images), model((images - mean) / std))
    smoother = Smoother(classifier, sigma=0.5, device="cpu")
    image = np.zeros((3, 48, 48), dtype=np.uint8)
    assert smoother.votes(image, 3, seed=0, image_id="a").shape == (3, 4)


def test_timm_weights_must_fit(tmp_path):
    save_file(timm_model(labels=5).state_dict(), tmp_path / "five.safetensors")
    with pytest.raises(ModelError, match=r"five.safetensors does not fit.*'classifier.weight'"):
        load_classifier(f"timm:{TIMM}", labels=LABELS, weights=tmp_path / "five.safetensors")
    partial = {k: v for k, v in timm_model().state_dict().items() if "classifier" not in k}
    save_file(partial, tmp_path / "headless.safetensors")
    with pytest.raises(
        ModelError, match=r"headless.safetensors does not fit.*'classifier.weight' has another shape or is missing"
    ):
        load_classifier(f"timm:{TIMM}", labels=LABELS, weights=tmp_path / "headless.safetensors")


def test_timm_needs_a_known_name_labels_and_weights(tmp_path):
    with pytest.raises(ModelError, match="weights=FILE"):
        load_classifier(f"timm:{TIMM}", labels=LABELS)
    with pytest.raises(ModelError, match="labels="):
        load_classifier(f"timm:{TIMM}", weights=tmp_path / "x.pth")
    with pytest.raises(ModelError, match=r"unknown timm model.*resnet18"):
        load_classifier("timm:esnet18", labels=LABELS, weights=tmp_path / "x.pth")
    with pytest.raises(ModelError, match="no such weights file"):
        load_classifier(f"timm:{TIMM}", labels=LABELS, weights=tmp_path / "x.pth")


def save_hf(folder, **changes) -> nn.Module:
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
        problem_type=changes.pop("problem_type", "multi_label_classification"),
    )
    model = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(folder)
    processor = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], **changes}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return model


def test_hugging_face_folder(tmp_path):
    model = save_hf(tmp_path)
    classifier = load_classifier(f"hf:{tmp_path}")
    assert classifier.output == "logits"
    mean, std = torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1), torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)
    assert np.array_equal(votes_of(classifier), expected_votes(lambda x: model((x - mean) / std).logits))


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "preprocessor_config.json"])
def test_the_hash_of_a_hugging_face_folder_covers_all_that_is_read(tmp_path, file):
    model = save_hf(tmp_path)
    before = load_classifier(f"hf:{tmp_path}").weights_hash
    if file == "model.safetensors":
        save_file({name: tensor + 1 for name, tensor in model.state_dict().items()}, tmp_path / file, {"format": "pt"})
    else:
        (tmp_path / file).write_text((tmp_path / file).read_text() + "\n")
    assert load_classifier(f"hf:{tmp_path}").weights_hash != before


@pytest.mark.parametrize("fault", ["missing", "mismatched"])
def test_a_hugging_face_folder_without_its_head_is_refused(tmp_path, fault):
    tensors = save_hf(tmp_path).state_dict()
    head = {"classifier.weight", "classifier.bias"}
    if fault == "missing":
        tensors = {name: tensor for name, tensor in tensors.items() if name not in head}
    else:
        tensors |= {name: tensors[name][:3].clone() for name in head}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"classifier\.(bias|weight)" if fault == "missing" else "cannot be loaded"):
        load_classifier(f"hf:{tmp_path}")


def test_the_missing_and_the_mismatched_are_named():
    from multiguard.models.from_hf import _check_filled

    with pytest.raises(ModelError, match=r"hf:x.*\('head.bias', \(4,\), \(3,\)\), head.weight \(2 in all\)"):
        _check_filled("hf:x", {"head.weight"}, {("head.bias", (4,), (3,))})
    _check_filled("hf:x", set(), set())


def test_a_hugging_face_folder_is_loaded_in_float32_whatever_it_was_saved_in(tmp_path):
    save_hf(tmp_path).to(torch.bfloat16).save_pretrained(tmp_path)
    assert {tensor.dtype for tensor in load_classifier(f"hf:{tmp_path}").parameters()} == {torch.float32}


def test_a_hugging_face_folder_whose_libraries_do_not_import_is_said(tmp_path, monkeypatch):
    save_hf(tmp_path)
    transformers = pytest.importorskip("transformers")

    def fails(*_, **__):
        raise ImportError("requires a library that is not here")

    monkeypatch.setattr(transformers.AutoModelForImageClassification, "from_pretrained", fails)
    with pytest.raises(ModelError, match="a library that is not here"):
        load_classifier(f"hf:{tmp_path}")


def test_a_hugging_face_folder_gives_logits(tmp_path):
    save_hf(tmp_path)
    with pytest.raises(ModelError, match="gives logits"):
        load_classifier(f"hf:{tmp_path}", output="probabilities")


def test_hugging_face_folder_without_normalisation(tmp_path):
    model = save_hf(tmp_path, do_normalize=False)
    votes = votes_of(load_classifier(f"hf:{tmp_path}"))
    assert np.array_equal(votes, expected_votes(lambda x: model(x).logits))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem_type": "single_label_classification"}, "problem_type"),
        ({"rescale_factor": 1 / 127.5}, r"\[0, 1\]"),
        ({"do_rescale": False}, r"\[0, 1\]"),
    ],
)
def test_a_hugging_face_folder_that_will_not_do_is_refused(tmp_path, changes, message):
    save_hf(tmp_path, **changes)
    with pytest.raises(ModelError, match=message):
        load_classifier(f"hf:{tmp_path}")


def test_a_folder_that_is_no_hugging_face_folder(tmp_path):
    with pytest.raises(ModelError, match=r"config\.json cannot be read"):
        load_classifier(f"hf:{tmp_path}")


def export_onnx(file, *, dynamic: bool, rows: int = 1) -> nn.Module:
    pytest.importorskip("onnxruntime")
    network = small_network()
    shapes = ({0: torch.export.Dim("rows")},) if dynamic else None
    torch.onnx.export(
        network,
        (torch.rand(rows + dynamic, 3, 32, 32),),
        str(file),
        dynamo=True,
        dynamic_shapes=shapes,
        verbose=False,
    )
    return network


@pytest.mark.parametrize(("dynamic", "rows"), [(True, 1), (False, 1), (False, 8)])
def test_onnx(tmp_path, dynamic, rows):
    network = export_onnx(tmp_path / "model.onnx", dynamic=dynamic, rows=rows)
    classifier = load_classifier(f"onnx:{tmp_path / 'model.onnx'}", labels=LABELS, output="logits")
    assert classifier.image_size == (32, 32)
    images = torch.rand(11, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(classifier(images), network(images), atol=1e-5)
    assert np.array_equal(votes_of(classifier), expected_votes(network))


def test_the_hash_of_an_onnx_model_covers_weights_kept_beside_it(tmp_path):
    file = tmp_path / "model.onnx"
    export_onnx(file, dynamic=True)
    onnx = pytest.importorskip("onnx")
    loaded = onnx.load(file)
    (tmp_path / "split").mkdir()
    split = tmp_path / "split" / "model.onnx"
    onnx.save(loaded, split, save_as_external_data=True, location="weights.bin", size_threshold=64)
    before = load_classifier(f"onnx:{split}", labels=LABELS, output="logits").weights_hash
    weights = split.parent / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert load_classifier(f"onnx:{split}", labels=LABELS, output="logits").weights_hash != before


def test_onnx_scores_must_be_declared(tmp_path):
    export_onnx(tmp_path / "model.onnx", dynamic=True)
    with pytest.raises(ModelError, match="--output logits"):
        load_classifier(f"onnx:{tmp_path / 'model.onnx'}", labels=LABELS)


def test_a_file_that_is_no_onnx_model(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"nonsense")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_classifier(f"onnx:{tmp_path / 'model.onnx'}", labels=LABELS, output="logits")
    with pytest.raises(ModelError, match="no such file"):
        load_classifier(f"onnx:{tmp_path / 'none.onnx'}", labels=LABELS, output="logits")


def test_module_and_callable():
    network = small_network()
    as_module = load_classifier(network, labels=LABELS, output="logits")
    as_callable = load_classifier(lambda x: network(x), labels=LABELS, output="probabilities")
    assert (as_module.output, as_callable.output) == ("logits", "probabilities")
    assert np.array_equal(votes_of(as_module), votes_of(as_callable))
    assert as_callable.weights_hash is None


def test_the_hash_of_a_module_is_the_hash_of_its_weights():
    one, same, other = small_network(), small_network(), small_network()
    with torch.no_grad():
        other[0].weight[0, 0, 0, 0] += 1
    hashes = [load_classifier(n, labels=LABELS, output="logits").weights_hash for n in (one, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("maker", ["a_module", "a_callable"])
def test_module_function(maker):
    classifier = load_classifier(f"toy_models:{maker}", labels=LABELS, output="logits")
    assert classifier.name == f"toy_models:{maker}"
    assert votes_of(classifier, size=8).shape == (20, 4)


def test_module_function_that_returns_a_classifier_speaks_for_itself():
    classifier = load_classifier("toy_models:a_classifier")
    assert (classifier.name, classifier.output) == ("my own", "probabilities")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("toy_models:missing", "no function"),
        ("no_such_module_here:f", "no function"),
        ("toy_models:not_a_function", "is a int"),
        ("toy_models:a_number", "not int"),
        ("resnet18", "is no model"),
        ("timm:", "is no model"),
    ],
)
def test_a_spec_that_names_nothing_is_said(spec, message):
    with pytest.raises(ModelError, match=message):
        load_classifier(spec, labels=LABELS, output="logits")


def test_what_a_module_cannot_say_must_be_declared():
    with pytest.raises(ModelError, match="labels="):
        load_classifier(small_network(), output="logits")
    with pytest.raises(ModelError, match="--output logits"):
        load_classifier(small_network(), labels=LABELS)
    with pytest.raises(ModelError, match="'scores'"):
        load_classifier(small_network(), labels=LABELS, output="scores")
    with pytest.raises(ModelError, match="brings its own weights"):
        load_classifier(small_network(), labels=LABELS, output="logits", weights="x.pth")


OPTIONS = {
    "labels": LABELS,
    "weights": "x.pth",
    "output": "logits",
    "mean": [0.5] * 3,
    "std": [0.5] * 3,
    "image_size": (8, 8),
    "name": "mine",
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("kind", ["classifier", "function", "folder"])
def test_no_option_is_silently_dropped(tmp_path, kind, option):
    if kind == "folder":
        card = ModelCard("cnn:4", tuple(LABELS), (16, 16), (0.5,) * 3, (0.5,) * 3, 0.25)
        save_folder(tmp_path, card, build_backbone("cnn:4", 4).network)
    spec = {"classifier": a_classifier(), "function": "toy_models:a_classifier", "folder": str(tmp_path)}[kind]
    load_classifier(spec)
    with pytest.raises(ModelError, match=f"leave out {option}"):
        load_classifier(spec, **{option: OPTIONS[option]})


@pytest.mark.parametrize("method", ["forward", "__call__"])
def test_a_method_of_a_module_is_refused(method):
    with pytest.raises(ModelError, match="give the module itself"):
        load_classifier(getattr(small_network(), method), labels=LABELS, output="logits")


def test_timm_scores_are_declared_in_known_words(tmp_path):
    save_file(timm_model().state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(ModelError, match="'scores'"):
        load_classifier(f"timm:{TIMM}", labels=LABELS, weights=tmp_path / "w.safetensors", output="scores")


class Trap:
    """Unpickled, it makes a folder."""

    def __init__(self, folder) -> None:
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("save", [torch.save, lambda thing, file: file.write_bytes(pickle.dumps(thing))])
def test_a_weights_file_runs_no_code(tmp_path, save):
    file, sprung = tmp_path / "weights.pth", tmp_path / "sprung"
    save({"state_dict": Trap(sprung)}, file)
    with pytest.raises(ModelError, match=r"weights\.pth"):
        load_classifier(f"timm:{TIMM}", labels=LABELS, weights=file)
    assert not sprung.exists()
    with contextlib.suppress(RuntimeError):
        torch.load(file, weights_only=False)
    assert sprung.exists(), "the trap itself must work"


def test_a_hugging_face_folder_runs_no_code(tmp_path):
    save_hf(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"x": Trap(tmp_path / "sprung")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_classifier(f"hf:{tmp_path}")
    config = json.loads((tmp_path / "config.json").read_text())
    code = f"import os\nos.mkdir({str(tmp_path / 'sprung')!r})\n"
    (tmp_path / "own.py").write_text(code)
    config |= {
        "model_type": "own",
        "auto_map": {"AutoConfig": "own.C", "AutoModelForImageClassification": "own.M"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="auto_map"):
        load_classifier(f"hf:{tmp_path}")
    assert not (tmp_path / "sprung").exists()


def test_a_missing_library_is_named_with_its_extra():
    from multiguard.models.extras import require

    with pytest.raises(ModelError, match=r"pip install 'multiguard\[onnx\]'"):
        require("no_such_library_here", "onnx")


def test_a_library_that_fails_to_import_is_named_with_its_extra(tmp_path, monkeypatch):
    from multiguard.models.extras import require

    (tmp_path / "built_for_another_torch.py").write_text("raise RuntimeError('operator nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match=r"operator nms does not exist.*multiguard\[timm\]"):
        require("built_for_another_torch", "timm")
