"""What the commands say: the order of the scores, what is wrong with a command, and how to mend it."""

import json
import os
import shutil

import pytest
import torch
from PIL import Image
from tests.pipeline.tiny_run import RECIPE, command, state

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "digit.png", *MODEL, "--sigma", 1], "--labels FILE, one name per line"),
        (["vote", "--model", MODEL[1], *VOTE[5:], "--rule", "threshold", "--out", "v"], "--output logits or prob"),
        (
            ["predict", "digit.png", *MODEL, "--labels", "names.txt", "--sigma", 1, "--set", "pilot_draws=0"],
            "pilot_draws is 0; expected a whole number from 1 to",
        ),
        ([*VOTE, "--set", "mean=1,2", "--out", "v"], "mean has 2 numbers; images have 3 channels"),
        ([*VOTE[:-4], "--sigma", 1, "--draws", "adaptive", "--k", 2, "--k-prime", 1, "--out", "v"], "--radius 0.5"),
        ([*VOTE, "--root", "p", "--out", "v"], "digits are part of multiguard and take no root"),
        (["run", "digits", "--set", "certify.methods=joint", "--out", "r"], "a list, such as [joint, paper]"),
        (["run", "digitz", "--out", "r"], "did you mean 'digits'? (a file is named by its path)"),
        (["run", ".", "--out", "r"], "is a folder; a recipe is a file in YAML"),
        (["predict", "nothing", *MODEL, "--sigma", 1], "nothing: no image in it or its subfolders; expected files"),
    ],
)
def test_messages_name_options(home, arguments, message):
    """A message names the option as the user typed it."""
    (home / "nothing").mkdir()
    assert message in refused(*arguments)
    assert not (home / "v").exists()
    assert not (home / "r").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("vote.draws=0", "vote.draws is 0; expected a whole number from 1 to 100,000,000"),
        ("vote.shard_images=0", "vote.shard_images is 0"),
        ("certify.alpha=1.5", "below 1, got 1.5"),
        ("certify.k=0", "certify.k is 0"),
        ("certify.bands=95", "bands is 95"),
        ("certify.radius_step=0", "radius_step is 0"),
        ("sweep.n=[10, 0]", "sweep.n is 0"),
        ("sweep.alpha=[2]", "got 2"),
        ("data.images=0", "data.images is 0"),
        ("sigma=0", "sigma is 0"),
    ],
)
def test_recipe_numbers(home, change, message):
    """Numbers of a recipe are checked before anything runs."""
    assert message in refused("run", "digits", "--set", change, "--out", "r")
    assert not (home / "r").exists()


def test_other_folders_kept(home):
    """Folders with other content are refused and stay intact."""
    assert command(*VOTE, "--out", "v")[0] == 0
    before = state(home)
    assert "v holds votes (manifest.json), where a run would go" in refused("run", "digits", "--out", "v")
    certify = ["certify", "v", "--k", 2, "--k-prime", 1]
    assert "v holds votes (manifest.json), where certificates would go" in refused(*certify, "--out", "v", "--force")
    assert state(home) == before
    assert command(*certify, "--out", "c")[0] == 0
    assert "where votes would go" in refused(*VOTE, "--out", "c", "--force")
    assert "c holds certificates" in refused("run", "digits", "--out", "c")
    assert "radius_step" in refused(*certify, "--set", "radius_step=-1", "--out", "d")
    assert "certify them with --k and --k-prime" in refused("certify", "v", "--threshold", 0.5, "--out", "d")


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


def test_number_of_labels(home):
    """A model with another number of scores points at the list of labels."""
    (home / "two.txt").write_text("a\nb\n")
    data = ["--data", "folder", "--root", ".", "--no-labels", "--labels", "two.txt", "--sigma", 0.5]
    code, _, err = command("vote", *MODEL, *data, "--draws", 1, "--out", "v")
    assert (code, "(--labels)" in err) == (2, True), err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*VOTE, "--device", "gpu", "--out", "v"], "--device is 'gpu'; expected one of cpu, cuda, cuda:N"),
        ([*VOTE, "--device", "cuda:9000", "--out", "v"], "which torch cannot use here"),
        ([*VOTE, "--sigma", "1e308", "--out", "v"], "--sigma is 1e+308; expected a finite number"),
        ([*VOTE, "--sigma", "nan", "--out", "v"], "--sigma is nan; expected a finite number"),
        ([*VOTE, "--size", 10**9, "--out", "v"], "--size is 1000000000; expected a whole number from 1 to 8,192"),
        (
            [*VOTE, "--draws", 2**31, "--out", "v"],
            "--draws is 2147483648; expected a whole number from 1 to 100,000,000",
        ),
        ([*VOTE, "--seed", 10**400, "--out", "v"], "--seed is a number of too many digits"),
        ([*VOTE, "--noise-seed", 10**400, "--out", "v"], "--noise-seed is a number of too many digits"),
        ([*VOTE, "--model", ":x", "--out", "v"], "unknown model ':x'"),
        ([*VOTE, "--out", "loop"], "loop: no folder that can be written to"),
        (["train", "--data", "digits", "--set", "lr=1e308", "--out", "v"], "lr is 1e+308; expected a finite number"),
        (
            ["train", "--data", "digits", "--set", f"shift={10**21}", "--out", "v"],
            "shift is a number of too many digits",
        ),
        (["certify", "v", "--k", 2, "--k-prime", 1, "--set", "radius_to=1e308"], "radius_to is 1e+308"),
        (
            ["attack", "v", "--set", "steps=1000000000"],
            "steps is 1000000000; expected a whole number from 1 to 1,000,000",
        ),
        (["run", "digits", "--set", "vote.device=gpu", "--out", "r"], "vote.device is 'gpu'"),
        (["run", "digits", "--out", "loop/x"], "Too many levels of symbolic links"),
        (["report", "v", "--out", "loop/x.html"], "v holds no certificates"),
    ],
)
def test_numbers_and_paths(home, arguments, message):
    """Numbers that nothing can be computed with and paths that lead nowhere are refused before any work."""
    (home / "loop").symlink_to("loop2")
    (home / "loop2").symlink_to("loop")
    assert message in refused(*arguments)


def test_loops_and_steps(home):
    """A folder that is a loop of links, and steps too small to count, are refused in one line."""
    assert command(*VOTE, "--images", 1, "--out", "v")[0] == 0
    (home / "loop").symlink_to("loop")
    certify = ["certify", "v", "--k", 2, "--k-prime", 1]
    assert "loop: no folder" in refused(*certify, "--out", "loop")
    assert "more than 100,000 radii; take larger steps" in refused(
        *certify, "--set", "radius_step=1e-320", "--out", "c"
    )


def test_names_not_utf8(home):
    """Names that no file can store are refused before any work, wherever they stand."""
    bad = os.fsdecode(b"\xfe")
    (home / bad).mkdir()
    for name in ("a.png", f"{bad}.png"):
        shutil.copy(home / "digit.png", home / bad / name)
    data = ["--data", "folder", "--no-labels", "--labels", "names.txt", "--sigma", 1, "--draws", 2]
    assert "--root \\udcfe: the name is not UTF-8" in refused("vote", *MODEL, *data, "--root", bad, "--out", "v")
    assert "--out v\\udcfe: the name is not UTF-8" in refused("vote", *MODEL, *data, "--root", ".", "--out", f"v{bad}")
    (home / bad).rename(home / "p")
    assert "'\\udcfe.png' is not UTF-8" in refused("vote", *MODEL, *data, "--root", "p", "--out", "v")
    assert not (home / "v").exists()
    code, _, err = command("predict", home / "p" / f"{bad}.png", *MODEL, *data[3:], "--set", "pilot_draws=2")
    assert (code, err) == (0, ""), err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["certify"], "Missing argument 'votes'; see multiguard certify --help"),
        (["vote", "--out", "v"], "Missing option '--model'; see multiguard vote --help"),
        (["nosuch"], "No such command 'nosuch'; see multiguard --help"),
        (["certfy"], "No such command 'certfy' (did you mean 'certify'?); see multiguard --help"),
        (["certify", "v", "--nosuch"], "No such option: --nosuch"),
        (["predict", ""], "a name is empty; name an image or a folder"),
    ],
)
def test_one_line(home, arguments, message):
    """A missing argument, an unknown name and an empty one are one line and exit code 2."""
    code, out, err = command(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert message in err
