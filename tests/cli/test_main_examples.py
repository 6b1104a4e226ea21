"""vote, certify, report, predict and demo: their examples work, they resume, and they overwrite nothing unasked."""

import json
import re
import shutil

import numpy as np
import pytest
from accelerate import Accelerator
from PIL import Image
from tests.conftest import REPOSITORY
from tests.pipeline.tiny_run import PHOTOS, RECIPE, command, state

from multiguard.data import DataConfig, DigitsDataset
from multiguard.errors import InvalidInputError
from multiguard.evaluate import read_certificates
from multiguard.io.config import from_tree
from multiguard.models.spec import DEFAULT_MODEL
from multiguard.train.loop import prepare_folder
from multiguard.votes import read_votes

TAGGER = "tests.cli.test_main_examples:linear_model"
SMALL = {
    "train": ["--epochs", 1, "--images", 64, "--set", "val_images=40", "--model", "cnn:4", "--size", 16],
    "vote": ["--images", 5, "--draws", 60, "--set", "shard_images=2"],
    "certify": [],
    "report": ["--gallery", 5],
    "predict": ["--model", "runs/digits", "--k", 4, "--draws", 200, "--set", "pilot_draws=20"],
}


DEMO = [line for line in (REPOSITORY / "Makefile").read_text().splitlines() if "multiguard run" in line]


def example_of(name):
    words = " ".join(command(name, "--help")[1].split())
    return re.search(r"Example: multiguard (.+?) (Arguments|Options):", words)[1].split()


@pytest.fixture(scope="session")
def examples(tmp_path_factory):
    """The examples of the help, typed one after another in one folder; what each of them printed."""
    home = tmp_path_factory.mktemp("examples")
    said = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        Image.fromarray(DigitsDataset("test", size=40)[1].image[0]).save(home / "digit.png")
        shutil.copy(home / "digit.png", home / "photo.jpg")
        for name, small in SMALL.items():
            code, said[name], err = command(*example_of(name), *small)
            assert code == 0, (name, err)
    return home, said


@pytest.fixture
def place(examples, tmp_path, monkeypatch):
    """A copy of what the examples left behind, as the current folder."""
    shutil.copytree(examples[0], tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


def test_example_outputs(examples):
    """Every example says where its output is."""
    home, said = examples
    assert said["train"].endswith("model: runs/digits\n")
    assert said["vote"].endswith("on each of 5 images, gaussian:0.25, by torch float32 on cpu: runs/votes\n")
    assert said["certify"].endswith("certificates.parquet and curves.csv: runs/certificates\n")
    assert said["report"].endswith("report: runs/report.html\n")
    for name in ("votes/source.json", "certificates/curves.csv", "report.html", "figures", "tables"):
        assert (home / "runs" / name).exists()
    lines = [line for text in said.values() for line in text.splitlines() if not line.startswith("warning: ")]
    assert [line for line in lines if len(line) > 80] == []


def test_demo(tmp_path, monkeypatch):
    """`make demo` runs the recipe of digits, then photos with the labels that stay."""
    (tmp_path / "digits.yaml").write_text(RECIPE)
    (tmp_path / "photos.yaml").write_text(PHOTOS)
    monkeypatch.setattr("multiguard.run.recipe._FOLDER", tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").symlink_to(REPOSITORY / "src")
    said = [command(*line.split()[1:]) for line in DEMO]
    assert [code for code, _, _ in said] == [0, 0], said
    out = "".join(shown for _, shown, _ in said)
    assert re.search(r"^joint +recall +\d", out, re.MULTILINE)
    assert "\nreport: runs/demo/report.html\n" in out
    assert out.splitlines()[-1] == "report: runs/demo/photos/report.html"
    assert " 16 x 16 pixels with values from 0" in " ".join(out.split())
    shown = re.findall(r"^(\w+\.jpg)  \(\d+ draws\)\nlabel +stays up to", out, re.MULTILINE)
    page = (tmp_path / "runs/demo/photos/report.html").read_text(encoding="utf-8")
    assert len(shown) == 2
    assert "<code>multiguard run photos --out runs/demo/photos" in page
    assert {read_votes(f"runs/demo/{name}votes").provenance.noise_seed for name in ("", "photos/")} == {0}
    thumbnails = re.findall(r"data:image/webp;base64,[^\"]{60}", page)  # plotly.js 3 has shorter ones of its own
    assert len(thumbnails) == 3 * 2  # as it is, perturbed and with noise
    code, again, _ = command(*example_of("run")[:-1], "runs/demo")
    assert (code, again.count("skipped (unchanged)")) == (0, 4)


def test_other_sigma(place):
    """Votes of another sigma are refused and stay intact; with --force they are replaced."""
    before = state(place / "runs/votes")
    code, out, err = command(*example_of("vote"), *SMALL["vote"], "--sigma", 0.5)
    assert code == 2
    assert out.startswith("note: runs/digits was made for gaussian:0.25; this votes with gaussian:0.5\n")
    assert "runs/votes holds the votes of another run: noise differs. Vote with --force" in err
    assert err.count("\n") == 1
    assert state(place / "runs/votes") == before
    code, _, err = command(*example_of("vote"), *SMALL["vote"], "--sigma", 0.5, "--force")
    assert code == 0, err
    assert read_votes(place / "runs/votes").provenance.noise.sigma == 0.5


def test_force_in_other_process(place, monkeypatch):
    """Processes other than the main one hold no lock, and --force removes nothing in them."""
    before = state(place)
    for name, value in {"WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInputError, match="other settings"):
        prepare_folder(place / "runs/digits", {"seed": 3}, True, Accelerator(cpu=True))
    mistake = ["--set", "teacher=gone"]
    code, _, err = command(*example_of("train"), *SMALL["train"], "--set", "seed=3", "--force", *mistake)
    assert (code, err.count("\n")) == (2, 1)
    assert state(place) == before


def test_force_with_mistake(place):
    """Force throws nothing away for a mistake."""
    before = state(place)
    mistakes = {
        "vote": (["--sigma", 0], ["--set", "k_max=11"]),
        "train": (["--model", "cnn:0"], ["--weights", "gone.pth"]),
    }
    for name, given in mistakes.items():
        for mistake in given:
            code, _, err = command(*example_of(name), *SMALL[name], "--force", *mistake)
            assert (code, err.count("\n")) == (2, 1), err
    assert state(place) == before


def test_force_trains_again(place):
    """With --force another run's model is replaced, the same run resumes."""
    again = [*example_of("train"), *SMALL["train"], "--set", "seed=3"]
    code, _, err = command(*again)
    assert code == 2
    assert "runs/digits holds a run with other settings: " in err
    code, _, err = command(*again, "--force")
    assert code == 0, err
    assert json.loads((place / "runs/digits/model.json").read_text())["training"]["recipe"]["seed"] == 3
    before = state(place / "runs/digits")
    code, out, err = command(*again, "--force")
    after = state(place / "runs/digits")
    assert (code, "epoch   1" in out) == (0, False), "the same run has ended already"
    assert all(after[name] == before[name] for name in before if name != "curve.png")


def test_rounded_radii(place):
    """The radii of the table are rounded down."""
    asked = ["--k", 3, "--k-prime", 1, "--alpha", 0.0123456789, "--set", "radius_step=0.0987654"]
    code, out, err = command("certify", "runs/votes", *asked, "--out", "odd/certificates")
    assert code == 0, err
    radius = read_certificates(place / "odd/certificates").curves[0].scores.radius
    heads = re.search(r"R = (.+)", out)[1].split()
    assert len(heads) == 7
    for head in heads:
        near = radius[np.argmin(np.abs(radius - float(head)))]
        assert 0 <= near - float(head) <= 0.001 * near
    assert "alpha = 0.0123456789, sigma = 0.25" in out
    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize(("draws", "confirmed"), [(200, True), (5, False)])
def test_prediction_table(examples, draws, confirmed):
    """A prediction is rounded down and its guesses are named."""
    home = examples[0]
    said = command(*_predicting(home, "--draws", draws))[1]
    code, text, err = command(*_predicting(home, "--draws", draws, "--json"))
    assert code == 0, err
    found = json.loads(text)
    assert (found["k"], found["k_prime"], found["noise"], found["size"]) == (4, 2, "gaussian:0.25", 16)
    assert found["precision"] == "float32"
    assert found["images"][0]["draws"] in (5, 50, 100, 200)
    labels = found["images"][0]["labels"]
    rows = [line.split("  ") for line in said.splitlines()[2 : 2 + len(labels)]]
    for label, row in zip(labels, rows, strict=True):
        cells = [cell.strip() for cell in row if cell.strip()]
        assert cells[0] == label["label"]
        if label["confirmed"]:
            assert 0 <= label["radius"] - float(cells[1]) < 0.001
        else:
            assert (label["radius"], cells[1]) == (None, "unconfirmed")
    assert labels[0]["confirmed"] == confirmed
    assert len(found["images"][0]["set_radii"]) == len(labels) <= 4


def _predicting(home, *more):
    more = [*SMALL["predict"][4:], "--noise-seed", 0, *more]
    return ["predict", home / "digit.png", "--model", home / "runs/digits", "--k", 4, *more]


def test_default_model(examples, monkeypatch):
    """Without --model the built-in tagger predicts, and the help says which."""
    monkeypatch.setattr("multiguard.models.spec.DEFAULT_MODEL", str(examples[0] / "runs/digits"))
    code, out, err = command("predict", examples[0] / "digit.png", *SMALL["predict"][2:])
    assert code == 0, err
    assert f"{examples[0] / 'runs/digits'}, torch float32 on cpu, k' = 2, k = 4" in " ".join(out.split())
    monkeypatch.undo()
    assert f"module:function [{DEFAULT_MODEL}]." in " ".join(command("predict", "--help")[1].split())


def test_example_photo(examples, tmp_path, monkeypatch):
    """An example photo of the package is found by its name; a file of this name in the current folder comes first."""
    monkeypatch.chdir(tmp_path)
    arguments = ["predict", "coffee.jpg", *_predicting(examples[0], "--json")[2:]]
    code, out, err = command(*arguments)
    assert code == 0, err
    example = json.loads(out)["images"][0]
    assert "coffee.jpg  (" in command(*arguments[:-1])[1]
    shutil.copy(examples[0] / "digit.png", tmp_path / "coffee.jpg")
    assert json.loads(command(*arguments)[1])["images"][0]["sha256"] != example["sha256"]


def test_infinite_radius(examples):
    """An infinite radius is valid JSON."""
    code, text, err = command(*_predicting(examples[0], "--json", "--k", 10, "--set", "k_prime=2"))
    assert code == 0, err
    assert {label["radius"] for label in json.loads(text)["images"][0]["labels"]} == {"inf"}
    code, text, _ = command(*_predicting(examples[0], "--k", 10, "--set", "k_prime=2"))
    assert "unlimited" in text


def labelled_folder(home, names):
    rows = ["file,labels"]
    for number in range(24):
        Image.new("RGB", (16, 16), (250 * (number % 2), 90, 250 * (number % 3 == 0))).save(home / f"{number}.png")
        rows.append(f"{number}.png,{names[number % 2]};{names[2 + number % 3]}")
    (home / "labels.csv").write_text("\n".join(rows), encoding="utf-8")
    return home


@pytest.fixture(scope="session")
def odd(tmp_path_factory):
    """A model of labels that look like markup, and its images."""
    home = labelled_folder(tmp_path_factory.mktemp("odd"), ["[red]tag", "[/x]", ":cat:", "=1+1", "ordinary"])
    asked = ["--data", "folder", "--root", home, "--model", "cnn:4", "--size", 16, "--epochs", 1, "--batch-size", 4]
    code, _, err = command("train", *asked, "--out", home / "model")
    assert code == 0, err
    return home


def test_markup_labels(odd):
    """Labels that look like markup are printed as they are."""
    code, out, err = command("predict", odd / "0.png", "--model", odd / "model", "--draws", 50, "--set", "k_prime=5")
    assert code == 0, err
    assert all(label in out for label in ("[red]tag", "[/x]", ":cat:", "=1+1", "ordinary"))


def test_label_order(odd, tmp_path):
    """The labels of a folder take the order of the model."""
    (tmp_path / "names.txt").write_text("ordinary\n[/x]\n:cat:\n[red]tag\n=1+1\n")
    model = ["--model", TAGGER, "--labels", tmp_path / "names.txt", "--output", "logits"]
    asked = ["--data", "folder", "--root", odd, "--sigma", 0.5, "--draws", 20, "--images", 4, "--size", 16]
    code, _, err = command("vote", *model, *asked, "--out", tmp_path / "votes")
    assert code == 0, err
    votes = read_votes(tmp_path / "votes")
    assert votes.provenance.label_names == ("ordinary", "[/x]", ":cat:", "[red]tag", "=1+1")
    data = from_tree(DataConfig, json.loads((tmp_path / "votes/source.json").read_text())["data"])
    assert tuple(data.open(label_names=votes.provenance.label_names).labels) == votes.labels


def linear_model():
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 5))
