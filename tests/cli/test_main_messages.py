"""What the commands say: the order of the scores, what is wrong with a command, and how to mend it."""

import json

import pytest
import torch
from PIL import Image
from tests.pipeline.tiny_run import RECIPE, command

from multiguard.data import DigitsDataset
from multiguard.votes import read_votes

MODEL = ["--model", "tests.cli.test_main_messages:linear_model", "--output", "logits", "--size", 16]
VOTE = ["vote", *MODEL, "--data", "digits", "--images", 3, "--draws", 20, "--sigma", 0.5]
NAMES = "\n".join("0123456789")


def linear_model():
    """A linear classifier of ten labels."""
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 10))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.txt").write_text(NAMES)
    Image.fromarray(DigitsDataset("test", size=40)[1].image[0]).save(tmp_path / "digit.png")
    return tmp_path


def refused(*arguments):
    code, _, err = command(*arguments)
    assert (code, err.count("\n")) == (2, 1), err
    return err


def test_score_order_note(home):
    """The assumed order of the scores is printed unless a file gives it."""
    code, out, err = command(*VOTE, "--out", "v")
    assert code == 0, err
    assert out.splitlines()[0] == (
        "scores are read in the dataset's order of labels: 0, 1, 2, 3, 4, ... (10 in all); "
        "give the file of labels (--labels, model.labels) if the model's differs"
    )
    assert json.loads((home / "v/source.json").read_text())["model"]["labels"] is None
    code, out, err = command(*VOTE, "--labels", "names.txt", "--out", "w")
    assert code == 0, err
    assert "scores are read" not in out
    assert json.loads((home / "w/source.json").read_text())["model"]["labels"] == "names.txt"


def test_score_order_in_run(home):
    """A run says the order of the scores too."""
    lines = [line for line in RECIPE.splitlines() if not line.startswith("train")]
    model = "model: {spec: 'tests.cli.test_main_messages:linear_model', output: logits}"
    (home / "r.yaml").write_text("\n".join([*lines, model]))
    code, out, err = command("run", "r.yaml", "--out", "r", "--until", "vote")
    assert code == 0, err
    said = "vote: scores are read in the dataset's order of labels: 0, 1, 2, 3, 4, ... (10 in all); give the file"
    assert said in " ".join(out.split())
    code, out, _ = command("run", "r.yaml", "--out", "r", "--until", "vote")
    assert code == 0
    assert "vote: skipped (unchanged)\n" in out


def test_failed_first_image(home):
    """A vote that is refused blocks nothing."""
    wrong = [*VOTE, "--images", 1, "--labels", "few.txt", "--no-labels", "--data", "folder", "--root", "p"]
    (home / "p").mkdir()
    (home / "digit.png").rename(home / "p/digit.png")
    (home / "few.txt").write_text("a\nb")
    refused(*wrong, "--out", "v")
    assert not (home / "v").exists()
    right = [*wrong, "--labels", "names.txt"]
    code, _, err = command(*right, "--out", "v")
    assert code == 0, err
    assert len(read_votes(home / "v")) == 1


def test_other_noise_and_seed(home):
    """Votes of other noise and another noise seed are refused, and both are named."""
    assert command(*VOTE, "--out", "v")[0] == 0
    err = refused(*VOTE, "--noise-seed", 3, "--sigma", 1, "--images", 3, "--out", "v")
    assert "noise and noise_seed differ. Vote with --force to throw them away, or choose another folder." in err


def test_page_names(home):
    """A page is named by a folder or without its ending."""
    assert command(*VOTE, "--out", "v")[0] == 0
    assert command("certify", "v", "--k", 2, "--k-prime", 1, "--out", "c")[0] == 0
    for out, page in (("new/", "new/report.html"), ("new", "new/report.html"), ("plain.html", "plain.html")):
        code, said, err = command("report", "c", "--out", out, "--no-images", "--force")
        assert code == 0, err
        assert said.endswith(f"report: {page}\n")
        assert (home / page).is_file()


def test_unknown_labels(home):
    """Labels that the model does not know are named."""
    (home / "labels.csv").write_text("file,labels\ndigit.png,cat\n")
    asked = ["vote", *MODEL, "--data", "folder", "--root", ".", "--labels", "names.txt", "--sigma", 1, "--out", "v"]
    assert "unknown label 'cat'" in (err := refused(*asked))
    assert "(the known labels are the model's)" in err


def test_changed_settings(home):
    """Training with other settings names only those."""
    train = ["train", "--data", "digits", "--model", "cnn:2", "--size", 16, "--images", 16, "--set", "val_images=40"]
    assert command(*train, "--epochs", 1, "--out", "m")[0] == 0
    err = refused(*train, "--epochs", 2, "--out", "m")
    assert "m holds a run with other settings: epochs was 1 and is 2. Train with --force" in err


def test_more_images_than_there_are(home):
    """More images than there are means all of them, and is said."""
    code, out, err = command(*VOTE, "--images", 2000, "--draws", 1, "--out", "all")
    assert code == 0, err
    assert "note: 2000 images requested, and there are 1000: all of them are taken" in out
