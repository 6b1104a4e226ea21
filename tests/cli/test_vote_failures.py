"""A folder of images from the wild and a model with a weak spot, through every command."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from tests.pipeline.tiny_run import command

from multiguard.evaluate import read_certificates
from multiguard.votes import read_votes

MODEL = ["--model", "tests.cli.test_vote_failures:linear_model", "--output", "logits", "--size", 16, "--sigma", 0.25]
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


def test_replaced_image_in_gallery(recorded):
    """A replaced image is left out of the gallery."""
    assert "1 image is not shown: it is not the one voted on" in recorded["report"]


def test_predict_failures(home):
    """Predict names every file that it cannot predict, predicts the others, in folders too, and exits with 2."""
    images = [home / "images" / name for name in ("a.png", "cut.png", "dark.png", "empty.png", "gone.png")]
    asked = [*MODEL, "--labels", home / "names.txt", "--draws", 60, "--noise-seed", 0]
    code, text, err = command("predict", *images, *asked)
    assert (code, err.count("could not be predicted: ")) == (2, 4)
    assert re.search(r"dark\.png: could not be predicted: draw 0: the classifier failed: .*so dark", err)
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
