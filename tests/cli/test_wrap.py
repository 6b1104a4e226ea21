"""A model that is described once: its folder votes as the long description does, and no stranger's code runs."""

import json
import sys
from pathlib import Path

import pytest
import torch
from tests.models.small_models import LABELS, write_denoiser, write_detector, write_onnx
from tests.pipeline.tiny_run import command, state

from multiguard.data import DigitsDataset
from multiguard.errors import InvalidInputError
from multiguard.io.records import checksum
from multiguard.models.backbone import build_backbone
from multiguard.models.config import ModelConfig
from multiguard.models.model_folder import ModelCard, save_folder
from multiguard.pipeline import wrap_job
from multiguard.pipeline.wrap_job import WRAP_FILE, unwrap
from multiguard.votes import read_votes

DATA = ["--data", "folder", "--root", "images", "--no-labels", "--draws", 20, "--pilot-draws", 5, "--noise-seed", 3]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Two images, label names, code, and a place for what is trusted, in the current folder."""
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "wrapped_code", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "trusted"))
    (tmp_path / "images").mkdir()
    for index in range(2):
        Image.fromarray(DigitsDataset("test", size=32)[index].image[0]).save(tmp_path / "images" / f"{index}.png")
    (tmp_path / "names.txt").write_text("\n".join(LABELS))
    (tmp_path / "wrapped_code.py").write_text(
        "from tests.models.small_models import small_network\n\n\ndef make():\n    return small_network()\n"
    )
    yield tmp_path
    sys.modules.pop("wrapped_code", None)


def make_onnx(home):
    write_onnx(home / "net.onnx", "N")
    return ["--model", "net.onnx", "--labels", "names.txt", "--output", "logits", "--mean", 0.5, "--std", 0.25]


def make_hf(home):
    transformers = pytest.importorskip("transformers")
    names = {"id2label": dict(enumerate(LABELS)), "label2id": {name: i for i, name in enumerate(LABELS)}}
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(
        **sizes, **names, image_size=32, patch_size=16, problem_type="multi_label_classification"
    )
    transformers.ViTForImageClassification(config).save_pretrained(home / "vit")
    return ["--model", "hf:vit", "--size", 32, "--mean", 0.5, "--std", 0.5]


def make_timm(home):
    timm, safetensors = pytest.importorskip("timm"), pytest.importorskip("safetensors.torch")
    torch.manual_seed(0)
    network = timm.create_model("test_resnet", num_classes=4)
    safetensors.save_file(network.state_dict(), home / "w.safetensors")
    return ["--model", "timm:test_resnet", "--weights", "w.safetensors", "--labels", "names.txt", "--size", 32]


def make_code(home):
    return ["--model", "wrapped_code.py:make", "--labels", "names.txt", "--output", "logits", "--size", 32]


def make_denoised_detector(home):
    """A detector whose third class is no label, behind a denoiser."""
    write_detector(home / "boxes.onnx", 5)
    write_denoiser(home / "clean.safetensors")
    (home / "classes.txt").write_text("\n".join([*LABELS[:2], "-", *LABELS[2:]]))
    options = ["--model", "boxes.onnx", "--detector", "nms:scores,classes", "--labels", "classes.txt"]
    return [*options, "--denoiser", "clean.safetensors"]


def done(*arguments):
    code, out, err = command(*arguments)
    assert code == 0, err
    return out


@pytest.mark.parametrize("make", [make_onnx, make_hf, make_timm, make_code, make_denoised_detector])
def test_wrapped_votes(home, make):
    """A wrapped model votes as the model with all its options does, without them; so do predictions."""
    options = make(home)
    done("wrap", *options, "--sigma", 0.5, "--out", "mine")
    done("vote", *options, *DATA, "--sigma", 0.5, "--out", "long")
    for path in home.iterdir():  # the folder holds everything but code
        if path.suffix in (".onnx", ".safetensors") or path.name == "vit":
            path.rename(home / "images" / f".{path.name}")
    done("vote", "--model", "mine", *DATA, "--out", "short")
    long, short = (read_votes(home / name) for name in ("long", "short"))
    assert (short.provenance.label_names, str(short.provenance.noise)) == (tuple(LABELS), "gaussian:0.5")
    for index in range(2):
        assert (short.ranked(index) == long.ranked(index)).all()
    assert short.provenance.classifier_hash == long.provenance.classifier_hash
    asked = ["predict", "images/0.png", "--model", "mine", "--k", 2, "--draws", 20, "--noise-seed", 1, "--json"]
    assert json.loads(done(*asked))["noise"] == "gaussian:0.5"


def test_repeated_wrap(home):
    """The same command changes nothing; other options need --force; foreign files stay."""
    options = make_code(home)
    done("wrap", *options, "--out", "mine")
    before = state(home / "mine")
    done("wrap", *options, "--out", "mine")
    assert state(home / "mine") == before
    code, _, err = command("wrap", *options, "--sigma", 1, "--out", "mine")
    assert (code, "holds a wrapped model already, made with other settings; --force" in err) == (2, True), err
    done("wrap", *options, "--sigma", 1, "--out", "mine", "--force")
    (home / "other").mkdir()
    (home / "other" / "labels.txt").write_text("mine")
    code, _, err = command("wrap", *options, "--out", "other", "--force")
    assert (code, (home / "other" / "labels.txt").read_text()) == (2, "mine"), err


def test_changed_files(home):
    """A file that changed, and code that changed, are refused."""
    done("wrap", *make_onnx(home), "--out", "mine")
    (home / "mine" / "labels.txt").write_text("\n".join(reversed(LABELS)))
    code, _, err = command("vote", "--model", "mine", *DATA, "--sigma", 1, "--out", "v")
    assert (code, "labels.txt is missing or not as it was when it was wrapped" in err) == (2, True), err
    done("wrap", *make_code(home), "--out", "code")
    card = home / "code" / "wrap.json"
    text = card.read_text().replace('"noise"', '"nose"')
    card.write_text(text)
    code, _, err = command("vote", "--model", "code", *DATA, "--sigma", 1, "--out", "v")
    assert (code, "wrap.json cannot be used" in err) == (2, True), err


def test_code_of_strangers(home, monkeypatch):
    """A wrapped folder runs code only for who wrapped it: elsewhere it is refused before anything is imported."""
    done("wrap", *make_code(home), "--sigma", 1, "--out", "mine")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "somebody else"))
    (home / "wrapped_code.py").write_text("raise SystemExit('it ran')")
    code, _, err = command("vote", "--model", "mine", *DATA, "--out", "v")
    assert (code, "names code" in err, "it ran" in err) == (2, True, False), err


def test_card_replaced_by_a_trusted_one(home, replace_after_reading):
    """The card that is used is the one whose hash is trusted, though a trusted one comes in its place."""
    done("wrap", *make_code(home), "--sigma", 1, "--out", "mine")
    path = Path("mine") / WRAP_FILE
    trusted, card = path.read_bytes(), json.loads(path.read_bytes())
    (home / "evil.py").write_text("raise SystemExit('it ran')")
    card["spec"] = f"{home / 'evil.py'}:make"
    path.write_text(json.dumps({**card, "sha256": checksum(card)}))
    replace_after_reading(path, trusted)
    with pytest.raises(InvalidInputError, match=r"names code .*evil.py.* and was not wrapped by you"):
        unwrap(ModelConfig("mine"))


def test_model_replaced_while_wrapping(home, monkeypatch):
    """The folder holds the model that was tried, or is not written."""
    options, load = make_onnx(home), wrap_job.load_model

    def load_then_replace(*arguments):
        classifier = load(*arguments)
        write_onnx(home / "net.onnx", 1)
        return classifier

    monkeypatch.setattr(wrap_job, "load_model", load_then_replace)
    code, _, err = command("wrap", *options, "--out", "mine")
    assert (code, "net.onnx has changed while it was wrapped" in err) == (2, True), err
    assert not (home / "mine" / WRAP_FILE).exists()


def test_options_beside_wrapped(home):
    """A wrapped model takes no further options of models."""
    done("wrap", *make_onnx(home), "--out", "mine")
    code, _, err = command("vote", "--model", "mine", "--mean", 0.1, *DATA, "--sigma", 1, "--out", "v")
    assert (code, "leave out the other options of the model" in err) == (2, True), err


def test_detector_with_thresholds(home):
    """A detector is a threshold classifier by nature: its scores are probabilities without being declared so."""
    asked = [*make_denoised_detector(home), *DATA, "--sigma", 0.2, "--rule", "threshold", "--score-threshold", 0.6]
    done("vote", *asked, "--out", "v")
    hits = read_votes(home / "v").hits(0)
    assert 0 < hits.mean() < 1


def test_denoised_folder(home):
    """A trained model folder votes, predicts and is attacked behind a denoiser that is named beside it."""
    card = ModelCard("cnn:2", tuple("0123456789"), (16, 16), (0.5,), (0.5,), None)
    save_folder(home / "clean", card, build_backbone("cnn:2", 10).network)
    write_denoiser(home / "clean.safetensors")
    model = ["--model", "clean", "--denoiser", "clean.safetensors", "--sigma", 0.25]
    out = done(
        "vote", *model, "--data", "digits", "--images", 3, "--draws", 60, "--noise-seed", 0, "--out", "run/votes"
    )
    assert "images, gaussian:0.25" in out
    run = read_votes(home / "run/votes").provenance
    assert run.model == "ffdnet(sigma=0.25)+cnn:2"
    done("certify", "run/votes", "--k", 9, "--k-prime", 2, "--alpha", 0.4)
    attack = ["attack", "run/certificates", "--attack", "random", "--tries", 2, "--draws", 20, "--radius", 0.1]
    done(*attack)
    write_denoiser(home / "clean.safetensors", seed=1)
    code, _, err = command(*attack, "--out", "again")
    assert (code, "is not the classifier that" in err) == (2, True), err
    asked = ["predict", "images/0.png", *model, "--k", 2, "--draws", 20, "--noise-seed", 1, "--json"]
    assert json.loads(done(*asked))["noise"] == "gaussian:0.25"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--detector", "yolov9"], "--detector yolov9: unknown layout"),
        (["--detector", "nms:scores,labels"], "unknown output 'labels'"),
        (["--denoiser", "clean.safetensors"], "clean.safetensors removes the noise of one sigma; give --sigma"),
        (["--denoiser", "none.pth", "--sigma", 0.1], "--denoiser none.pth: no such file"),
        (["--denoiser", "boxes.onnx", "--sigma", 0.1], "not readable as safetensors"),
        (["--model", "wrapped_code.py:make"], "is no ONNX file; --detector says how to read"),
    ],
)
def test_detector_mistakes(home, arguments, message):
    """Each mistake is one line, and no folder is written."""
    options = make_denoised_detector(home)[:-2]
    code, _, err = command("wrap", *options, *arguments, "--out", "mine")
    assert (code, err.count("\n")) == (2, 1), err
    assert message in err
    assert not (home / "mine").exists()
