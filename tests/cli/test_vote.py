"""`multiguard vote`: what it says, and bad images and a model with a weak spot, through every command."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from tests.pipeline.tiny_run import command

from multiguard.data import DigitsDataset
from multiguard.evaluate import read_certificates
from multiguard.votes import read_votes

MODEL = ["--model", "tests.cli.test_vote:linear_model", "--output", "logits", "--size", 16, "--sigma", 0.25]
PLAIN = ["--model", "tests.cli.test_vote:plain_model", "--output", "logits", "--size", 16]
DIGITS = ["vote", *PLAIN, "--data", "digits", "--images", 3, "--draws", 20, "--sigma", 0.5]
DRAWS = ["--draws", 40, "--set", "shard_images=3"]
BAD = {
    "cut.png": "not a readable image (",
    "empty.png": "not a readable image (the file is empty)",
    "out.png": "outside the image folder",
    "dark.png": "draw 0: the classifier failed: ZeroDivisionError: so dark",
}


class Tagger(torch.nn.Module):
    """A linear classifier that fails on dark images."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(3 * 16 * 16, 10)

    def forward(self, images):
        if (images.flatten(1).mean(dim=1) < 0.1).any():
            raise ZeroDivisionError("so dark")
        return self.layer(images.flatten(1))


def linear_model():
    return Tagger()


def plain_model():
    """A linear classifier of ten labels."""
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 10))


def said(*arguments, code=0):
    found, out, err = command(*arguments)
    assert found == code, (out, err)
    return out if code == 0 else err


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder of six images with labels, four of them bad in their own ways."""
    home = tmp_path_factory.mktemp("wild")
    (home / "images").mkdir()
    for name in ("a.png", "b.png", "cut.png", "out.png"):
        pixels = np.random.default_rng(len(name)).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(home / "images" / name)
    (home / "images/cut.png").write_bytes((home / "images/cut.png").read_bytes()[:400])
    (home / "images/empty.png").touch()
    shutil.move(home / "images/out.png", home / "elsewhere.png")
    (home / "images/out.png").symlink_to(home / "elsewhere.png")
    Image.new("RGB", (16, 16)).save(home / "images/dark.png")
    names = ["a.png", *BAD, "b.png"]
    (home / "images/labels.csv").write_text("file,labels\n" + "".join(f"{name},1;3\n" for name in names))
    (home / "names.txt").write_text("\n".join("0123456789"))
    return home


def voting(home, out, *more):
    folder = ["--data", "folder", "--root", home / "images", "--labels", home / "names.txt"]
    return ["vote", *MODEL, *folder, *DRAWS, "--out", home / out, *more]


def test_stop_by_default(home):
    """The default is a stop that names the file."""
    err = said(*voting(home, "stopped"), code=2)
    assert re.fullmatch(r"multiguard: \S*images/cut\.png: not a readable image \(.*\); replace .*\n", err)


@pytest.fixture(scope="module")
def recorded(home):
    """What vote, certify and report printed; during the report another image was in the place of b.png."""
    out = {"vote": said(*voting(home, "votes", "--on-error", "record"))}
    out["certify"] = said("certify", home / "votes", "--k", 4, "--k-prime", 2, "--alpha", 0.05, "--sweep", "k=2")
    (home / "images/b.png").rename(home / "kept.png")
    Image.new("RGB", (16, 16), "white").save(home / "images/b.png")
    out["report"] = said("report", home / "certificates")
    (home / "kept.png").rename(home / "images/b.png")
    return out


def test_recorded_failures(home, recorded):
    """With record the others go all the way and everyone says who is missing."""
    votes = read_votes(home / "votes")
    assert votes.ids == ("a.png", "b.png")
    assert [failure.image_id for failure in votes.failures] == list(BAD)
    for failure, reason in zip(votes.failures, BAD.values(), strict=True):
        assert failure.reason.startswith(reason)
        assert str(home) not in failure.reason
    for text in recorded.values():
        assert "4 of 6 images could not be voted on and are left out" in text
    found = read_certificates(home / "certificates")
    assert found.certificates.failures == votes.failures
    assert {curve.failed for curve in found.curves} == {4}
    page = (home / "report.html").read_text(encoding="utf-8")
    assert all(name in page for name in BAD)


def test_resume_and_retry(home, recorded):
    """Going on keeps what is recorded and a stop tries again."""
    before = read_votes(home / "votes").manifest_hash
    said(*voting(home, "votes", "--on-error", "record"))
    assert read_votes(home / "votes").manifest_hash == before
    assert "cut.png: not a readable image" in said(*voting(home, "votes"), code=2)


def test_predict_failures(home):
    """Predict names every file that it cannot predict, predicts the others, in folders too, and exits with 2."""
    images = [home / "images" / name for name in ("a.png", "cut.png", "dark.png", "empty.png", "gone.png")]
    asked = [*MODEL, "--labels", home / "names.txt", "--draws", 60, "--noise-seed", 0]
    code, text, err = command("predict", *images, *asked)
    assert (code, err.count("could not be predicted: ")) == (2, 4)
    assert re.search(r"dark\.png: could not be predicted: the input, draw 0: the classifier failed: .*so dark", err)
    assert text.startswith(f"{images[0]}  (")
    assert text.count("stays up to") == 1
    code, text, _ = command("predict", *images, *asked, "--json")
    found = json.loads(text)
    assert [one["file"] for one in found["images"]] == [str(images[0])]
    assert [one["file"] for one in found["failed"]] == [str(path) for path in images[1:]]
    folder = json.loads(command("predict", home / "images", *asked, "--json")[1])
    assert {one["file"] for one in folder["failed"]} >= {str(path) for path in images[1:4]}
    assert found["images"][0] in folder["images"]
    code, text, err = command("predict", *images[1:], *asked)
    assert (code, text, err.count(".png: ")) == (2, "", 4)


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A folder with a list of labels and an image."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.txt").write_text("\n".join("0123456789"))
    Image.fromarray(DigitsDataset("test", size=40)[1].image[0]).save(tmp_path / "digit.png")
    return tmp_path


def refused(*arguments):
    code, _, err = command(*arguments)
    assert (code, err.count("\n")) == (2, 1), err
    return err


def test_score_order_note(alone):
    """The assumed order of the scores is printed unless a file gives it."""
    code, out, err = command(*DIGITS, "--out", "v")
    assert code == 0, err
    assert out.splitlines()[0] == (
        "scores are read in the dataset's order of labels: 0, 1, 2, 3, 4, ... (10 in all); "
        "give the file of labels (--labels, model.labels) if the model's differs"
    )
    assert json.loads((alone / "v/source.json").read_text())["model"]["labels"] is None
    code, out, err = command(*DIGITS, "--labels", "names.txt", "--out", "w")
    assert code == 0, err
    assert "scores are read" not in out
    assert json.loads((alone / "w/source.json").read_text())["model"]["labels"] == "names.txt"


def test_failed_first_image(alone):
    """A vote that is refused blocks nothing."""
    wrong = [*DIGITS, "--images", 1, "--labels", "few.txt", "--no-labels", "--data", "folder", "--root", "p"]
    (alone / "p").mkdir()
    (alone / "digit.png").rename(alone / "p/digit.png")
    (alone / "few.txt").write_text("a\nb")
    refused(*wrong, "--out", "v")
    assert not (alone / "v").exists()
    right = [*wrong, "--labels", "names.txt"]
    code, _, err = command(*right, "--out", "v")
    assert code == 0, err
    assert len(read_votes(alone / "v")) == 1


def test_built_in_by_torch(alone):
    """The built-in classifier votes by torch, too: its hash is that of the network that runs."""
    Image.new("RGB", (64, 64), (90, 60, 30)).save(alone / "plain.png")
    folder = ["--model", "coco", "--data", "folder", "--root", ".", "--no-labels"]
    code, _, err = command("vote", *folder, "--draws", 2, "--set", "precision=bfloat16", "--out", "v")
    assert code == 0, err
    assert len(read_votes(alone / "v")) == 2
