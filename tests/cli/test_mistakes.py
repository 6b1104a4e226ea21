"""Mistakes that people make: one line, exit code 2, and nothing that was there changes."""

import os
import shutil

import pytest
import torch
from PIL import Image
from tests.evaluate.votes_cases import KINDS, random_votes, votes_of_kind
from tests.pipeline.tiny_run import command, state

from multiguard.data import DigitsDataset

MODEL = ["--model", "tests.cli.test_mistakes:linear_model", "--output", "logits", "--size", 16, "--sigma", 0.5]
UNNAMED = ["--model", "tests.cli.test_mistakes:linear_model", "--size", 16, "--sigma", 0.5]
VOTE = ["vote", *MODEL, "--data", "digits", "--images", 3, "--draws", 20, "--out", "new"]
BANDS = ["vote", *MODEL[:-2], "--data", "digits", "--images", 3, "--out", "new", "--noise"]
ADAPTIVE = [*VOTE, "--draws", "adaptive"]
TRAIN = ["train", "--data", "digits", "--size", 16, "--images", 20, "--set", "val_images=20", "--out", "new"]
TOP_K = ["--k", 4, "--k-prime", 2]
PREDICT = ["predict", "digit.png", *MODEL, "--labels", "names.txt"]
CALIBRATE = ["calibrate", "v", "--recall", 0.8]


def linear_model():
    """A linear classifier of ten labels."""
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 10))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Votes of every kind, certificates, an image, a list of labels and a circle of links."""
    home = tmp_path_factory.mktemp("mistakes")
    random_votes(home / "v", images=4, draws=60)
    for name, kind in (("sets", "threshold"), ("adaptive", "adaptive"), ("unlabelled", "unlabelled")):
        votes_of_kind(home / name, **KINDS[kind])
    (home / "names.txt").write_text("\n".join("0123456789"))
    (home / "few.txt").write_text("a\nb")
    (home / "empty").touch()
    (home / "nothing").mkdir()
    Image.fromarray(DigitsDataset("test", size=40)[1].image[0]).save(home / "digit.png")
    (home / "images").mkdir()
    shutil.copy(home / "digit.png", home / "images/0.png")
    (home / "loop").symlink_to("loop2")
    (home / "loop2").symlink_to("loop")
    for out in ("one", "two"):
        code, _, err = command("certify", home / "v", *TOP_K, "--out", home / out)
        assert code == 0, err
    return home


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # the command line itself
        (["certify"], "Missing argument 'votes'; see multiguard certify --help"),
        (["vote", "--out", "new"], "Missing option '--model'; see multiguard vote --help"),
        (["nosuch"], "No such command 'nosuch'; see multiguard --help"),
        (["certfy"], "No such command 'certfy' (did you mean 'certify'?); see multiguard --help"),
        (["certify", "v", "--nosuch"], "No such option: --nosuch"),
        ([*TRAIN, "--set", "crops=0.5"], "--set crops=0.5: unknown setting 'crops': did you mean 'crop'?"),
        ([*VOTE, "--draws", "many"], "--draws is 'many'; expected a whole number from 1 to 100,000,000, or adaptive"),
        ([*VOTE, "--sigma", "1e308"], "--sigma is 1e+308; expected a finite number"),
        ([*VOTE, "--size", 0], "--size is 0; expected a whole number from 1 to 8,192"),
        ([*VOTE, "--device", "gpu"], "--device is 'gpu'; expected one of cpu, cuda, cuda:N"),
        ([*VOTE, "--device", "cuda:9000"], "which torch cannot use here"),
        # votes
        (VOTE[:-2], "--out is missing: the votes folder to write; --dry-run writes none"),
        ([*VOTE, "--out", "loop"], "loop: no folder that can be written to"),
        ([*VOTE, "--out", "one"], "one holds certificates (certificates.parquet), where votes would go"),
        ([*VOTE, "--model", ":x"], "unknown model ':x'"),
        ([*VOTE, "--root", "images"], "digits are part of multiguard and take no root"),
        ([*VOTE[:7], *VOTE[9:]], "no noise given"),
        ([*VOTE, "--k", 4], "--k tells adaptive draws when to stop, and --draws is 20"),
        (["vote", *UNNAMED, *VOTE[9:], "--rule", "threshold"], "--output logits or prob"),
        (["vote", *MODEL, "--data", "folder", "--root", "images", "--no-labels", "--out", "new"], "give --labels FILE"),
        ([*ADAPTIVE, *TOP_K], "name one or more"),
        ([*ADAPTIVE, "--radius", 0.5], "--k is missing; the top-k rule needs k and k_prime"),
        ([*BANDS, "band:4", "--draws", 100], "--draws is 100, and band:4/16 votes once for each of 16 bands"),
        ([*BANDS, "band:4", "--sigma", 0.5], "--sigma is 0.5, Gaussian noise, and noise is band:4; give one"),
        # training
        ([*TRAIN, "--noise", "uniform:0.5", "--set", "sigma_max=2"], "sigma_max is 2 and no Gaussian noise"),
        ([*TRAIN, "--data", "digitz"], "unknown dataset 'digitz': did you mean 'digits'?"),
        ([*TRAIN[:-1], "empty"], "empty: no folder that can be written to"),
        # certificates
        (["certify", "gone", *TOP_K], "gone does not exist; name a votes folder"),
        (["certify", "v"], "--k is missing; the top-k rule needs k and k_prime"),
        (["certify", "v", "--threshold", 0.5], "--k-prime is missing; of ranked votes the threshold rule"),
        (["certify", "v", *TOP_K, "--no-labels"], "the draws that certify must not choose them"),
        (
            ["certify", "v", *TOP_K, "--method", "papr"],
            "unknown method of the top-k rule 'papr': did you mean 'paper'?",
        ),
        (["certify", "v", *TOP_K, "--sweep", "kk=1"], "--sweep kk=1: unknown setting 'kk': did you mean 'k'?"),
        (["certify", "v", *TOP_K, "--sweep", "k=one"], "--sweep k is 'one'; expected a whole number of 1 or more"),
        (["certify", "v", *TOP_K, "--out", "v", "--force"], "v holds votes (manifest.json), where certificates would"),
        (["certify", "v", *TOP_K, "--out", "loop"], "loop: no folder"),
        (["certify", "v", *TOP_K, "--set", "radius_step=1e-320"], "more than 100,000 radii; take larger steps"),
        (["certify", "sets", "--threshold", "nan"], "--threshold is nan"),
        (["certify", "adaptive", *TOP_K, "--sweep", "n=50"], "no fixed number holds"),
        (CALIBRATE, "'--radius'"),
        ([*CALIBRATE, "--radius", 0.2, "--wrong", 3], "--confidence is missing; a promise of at most 3 wrong labels"),
        ([*CALIBRATE, "--radius", 0.2], "a calibration needs 5"),
        ([*CALIBRATE, "--radius", 0.2, "--out", "v"], "is not as multiguard wrote it"),
        (["verify", "nowhere"], "nowhere holds no certificates"),
        (["verify", "one", "--votes", "nowhere"], "nowhere holds no votes to certify again; name their folder"),
        (["verify", "one", "--images", 3], "--images is about the votes to draw again; name --model too"),
        (["attack", "v"], "v holds no certificates"),
        (["attack", "one", "--set", "weights=x.pth"], "--model is missing"),
        (["attack", "one", "--out", "v"], "v holds votes"),
        # pages
        (["report", "gone"], "gone holds no certificates; give a run folder or a certificates folder"),
        (["report", "one", "--baseline", "one"], "baseline is about a comparison"),
        (["report", "one", "one"], "two runs are named one"),
        (["report", "=one", "two"], "expected a folder, or NAME=FOLDER"),
        (["report", "one", "two", "--radius", "x"], "--radius is 'x'; expected a number of 0 or more"),
        # predictions
        (["predict", ""], "a name is empty; name an image or a folder"),
        (["predict", "gone.png", *PREDICT[2:]], "gone.png: could not be predicted: no such image"),
        (["predict", "nothing", *PREDICT[2:]], "nothing: no image in it or its subfolders; expected files"),
        (["predict", "digit.png", *MODEL], "--labels FILE, one name per line"),
        ([*PREDICT, "--threshold", 0.5], "threshold belongs"),
        ([*PREDICT, "--set", "mean=1,2"], "mean has 2 numbers; images have 3 channels"),
        # recipes
        (["run", "digitz"], "did you mean 'digits'? (a file is named by its path)"),
        (["run", "gone.yaml"], "gone.yaml: no such recipe file"),
        (["run", "."], "is a folder; a recipe is a file in YAML"),
        (["run", "digits", "--out", "v"], "v holds votes (manifest.json), where a run would go"),
        (["run", "digits", "--out", "loop/x"], "Too many levels of symbolic links"),
        (
            ["run", "digits", "--until", "votes", "--out", "new"],
            "'votes' is none of train, vote, calibrate, certify, report",
        ),
        (["run", "digits", "--set", "vote.draws=0", "--out", "new"], "vote.draws is 0; expected a whole number from 1"),
        (["run", "digits", "--set", "vote.device=gpu", "--out", "new"], "vote.device is 'gpu'"),
    ],
)
def test_mistakes(made, monkeypatch, arguments, message):
    """One line that names what was typed."""
    monkeypatch.chdir(made)
    before = state(made)
    code, out, err = command(*arguments)
    assert (code, err[:12], err.count("\n")) == (2, "multiguard: ", 1), err
    assert message in err
    assert "Traceback" not in out
    assert state(made) == before


def test_names_not_utf8(made, tmp_path, monkeypatch):
    """Names that no file can store are refused before any work, wherever they stand; predict needs none."""
    monkeypatch.chdir(tmp_path)
    bad = os.fsdecode(b"\xfe")
    (tmp_path / bad).mkdir()
    for name in ("a.png", f"{bad}.png"):
        shutil.copy(made / "digit.png", tmp_path / bad / name)
    labels = ["--labels", made / "names.txt", "--draws", 2]
    vote = ["vote", *MODEL, *labels, "--data", "folder", "--no-labels"]
    for folder, out, message in (
        (bad, "v", "--root \\udcfe: the name is not UTF-8"),
        (".", f"v{bad}", "--out v\\udcfe: the name is not UTF-8"),
    ):
        code, _, err = command(*vote, "--root", folder, "--out", out)
        assert (code, message in err) == (2, True), err
    (tmp_path / bad).rename(tmp_path / "p")
    assert "'\\udcfe.png' is not UTF-8" in command(*vote, "--root", "p", "--out", "v")[2]
    assert not (tmp_path / "v").exists()
    code, _, err = command("predict", tmp_path / "p" / f"{bad}.png", *MODEL, *labels, "--set", "pilot_draws=2")
    assert (code, err) == (0, ""), err
