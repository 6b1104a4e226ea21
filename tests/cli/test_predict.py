"""`multiguard predict` with a calibration: the labels, the promise, and which calibration is taken."""

import json
import shutil

import pytest
from tests.calibrations import calibration_of
from tests.pipeline.tiny_run import command

from multiguard.evaluate.calibration import _FORMAT as FORMAT
from multiguard.io.config import to_tree
from multiguard.io.records import encode_checked
from multiguard.models import load, spec
from multiguard.smooth import Smoother
from multiguard.smooth.predictor import shipped_name

MODEL = "coco"
PHOTO = "src/multiguard/data/photos/cat.jpg"


def write_calibration(file, recall=0.8, radius=0.5, **changes):
    """A calibration of the built-in model, made by hand; its votes were drawn with the form in torch."""
    made = calibration_of(Smoother(MODEL, sigma=0.5, device="cpu"), recall, radius, k_prime=2, least_hits=4, draws=10)
    classifier = made.classifier | {"classifier_hash": "that of the form in torch"} | changes
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(encode_checked(to_tree(made.replace(classifier=classifier)), **FORMAT))


@pytest.fixture(scope="module")
def built_in(tmp_path_factory):
    """The built-in model with two calibrations."""
    home = tmp_path_factory.mktemp("weights")
    shutil.copytree(spec.BUILT_IN / MODEL, home / MODEL)
    shutil.rmtree(home / MODEL / "calibrations", ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spec, "BUILT_IN", home)
        for recall, radius in ((0.8, 0.5), (0.9, 0.0)):
            write_calibration(home / MODEL / "calibrations" / f"{shipped_name(recall, radius)}.json", recall, radius)
        yield home / MODEL


def test_default(built_in):
    """The built-in model predicts with its calibration, and says what is promised, and what R means."""
    code, out, err = command("predict", PHOTO)
    said = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "(10 draws)" in said
    assert "at least 80 % of the true labels of an image, even under any perturbation of" in said
    assert "R = 0.5: 0.16 of 255 is how far all colour values of a 448 x 448 image can move at once" in said
    assert "one pixel alone can go 28 % of the way to white" in said
    assert "no promise for one image alone" in said
    assert "The sender of an image must not know them beforehand" in said


def test_json(built_in):
    """The document has the same; another radius chooses another calibration, and a seed repeats an answer."""
    code, out, _ = command("predict", PHOTO, "--recall", 0.9, "--radius", 0, "--json")
    found = json.loads(out)
    assert (code, found["rule"], found["recall"], found["radius"]) == (0, "calibrated", 0.9, 0.0)
    assert (found["least_hits"], found["draws"], found["images"][0]["draws"]) == (4, 10, 10)
    assert "an image that is not attacked" in found["promise"]
    again = command("predict", PHOTO, "--recall", 0.9, "--radius", 0, "--json", "--noise-seed", found["noise_seed"])
    assert json.loads(again[1]) == found
    other = json.loads(command("predict", PHOTO, "--recall", 0.9, "--radius", 0, "--json")[1])
    assert other["noise_seed"] != found["noise_seed"]


def test_rule(built_in):
    """An option of a rule is taken without a calibration."""
    found = json.loads(command("predict", PHOTO, "--k", 2, "--draws", 10, "--set", "pilot_draws=5", "--json")[1])
    assert (found["rule"], found["k"]) == ("top-k", 2)
    assert "promise" not in found


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--recall", 0.85],
            "coco has no calibration recall-85-radius-0.5; it has recall-80-radius-0.5, recall-90",
        ),
        (["--model", "coco/../x.onnx", "--recall", 0.8], "has no calibration recall-80-radius-0.5; it has none"),
        (["--recall", 0.8, "--k", 3], "--k belongs to a rule, and a calibration has a rule of its own"),
        (["--calibration", "c.json", "--recall", 0.8], "--calibration has its own recall and radius; leave out"),
    ],
)
def test_mistakes(built_in, options, words):
    """What cannot be promised is one line."""
    code, _, err = command("predict", PHOTO, *options)
    assert (code, err.count("\n")) == (2, 1)
    assert words in err


@pytest.mark.parametrize(("named", "differs"), [(True, "classifier_hash"), (False, "weights_hash")])
def test_other_model(built_in, tmp_path, named, differs):
    """A calibration of other weights is refused; one that the user names is compared in full."""
    file = tmp_path / "c.json" if named else built_in / "calibrations" / f"{shipped_name(0.7, 1)}.json"
    write_calibration(file, 0.7, 1, **({} if named else {"weights_hash": "another"}))
    options = ["--calibration", file] if named else ["--recall", 0.7, "--radius", 1]
    code, _, err = command("predict", PHOTO, *options)
    assert (code, f"differs in {differs}; calibrate this one" in err) == (2, True)
    file.unlink()


def test_size_of_calibration(built_in, tmp_path):
    """A calibration is about images of one size, which a model of any size gets, and no other."""
    write_calibration(tmp_path / "c.json")
    (tmp_path / "means.py").write_text("def means(images):\n    return images.mean((2, 3)).repeat(1, 27)[:, :80]\n")
    (tmp_path / "labels.txt").write_text("\n".join(load(MODEL).label_names))
    own = (
        "--model",
        f"{tmp_path / 'means.py'}:means",
        "--labels",
        tmp_path / "labels.txt",
        "--output",
        "probabilities",
    )
    for size, words in (((), "calibrate this one"), (("--size", 32), "--size is 32x32, but the calibration")):
        code, _, err = command("predict", PHOTO, *own, "--calibration", tmp_path / "c.json", *size)
        assert (code, words in err) == (2, True), err
