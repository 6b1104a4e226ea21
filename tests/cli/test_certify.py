"""Taggers as they are deployed: thresholds, images without labels, adaptive draws, each from vote to report."""

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from tests.pipeline.tiny_run import command

from multiguard.certify import Threshold, TopK, certified_radii
from multiguard.data import DigitsDataset
from multiguard.evaluate import read_certificates
from multiguard.votes import read_votes
from multiguard.votes.types import as_array

MODEL = ["--model", "tests.cli.test_certify:linear_model", "--output", "logits", "--size", 16, "--sigma", 0.5]
DIGITS = ["--data", "digits", "--images", 6, "--set", "shard_images=4"]
TOP_K = ["--k", 4, "--k-prime", 2, "--alpha", 0.05]
THRESHOLD = ["--threshold", 0.4, "--alpha", 0.05]
LABELS = tuple("0123456789")
STOPS = (50, 100, 200, 300)


def linear_model():
    """A linear classifier that is sure of some labels and undecided about others."""
    torch.manual_seed(1)
    layer = torch.nn.Linear(3 * 16 * 16, 10)
    with torch.no_grad():
        layer.weight *= 3
        layer.bias.copy_(torch.linspace(-4, 4, 10)[torch.randperm(10)])
    return torch.nn.Sequential(torch.nn.Flatten(), layer)


def done(*arguments):
    code, out, err = command(*arguments)
    assert (code, err) == (0, ""), err
    return "".join(line for line in out.splitlines(keepends=True) if not line.startswith("warning: "))


def draws_of(votes):
    return [votes.draws_of(position) for position in range(len(votes))]


@pytest.fixture(scope="session")
def deployed(tmp_path_factory):
    """Votes of every kind, each in its folder, and what the commands printed; not to be changed."""
    home = tmp_path_factory.mktemp("deployed")
    (home / "images/sub").mkdir(parents=True)
    digits = DigitsDataset("test", size=40)
    for number in range(5):
        place = home / "images" / ("sub" if number % 2 else "") / f"{number}.png"
        Image.fromarray(digits[number].image[0]).save(place)
    (home / "names.txt").write_text("\n".join(LABELS))
    folder = ["--data", "folder", "--root", home / "images", "--no-labels", "--labels", home / "names.txt"]
    adaptive = ["--draws", "adaptive", "--radius", 0.1, "--radius", 0.3, "--set", "max_draws=300"]
    said = {
        "sets": [*DIGITS, "--draws", 80, "--rule", "threshold", "--set", "score_threshold=0.4"],
        "ranked": [*DIGITS, "--draws", 80],
        "piloted": [*DIGITS, "--draws", 80, "--set", "pilot_draws=20"],
        "unlabelled": [*folder, "--draws", 80, "--set", "pilot_draws=20"],
        "adaptive": [*DIGITS, *adaptive, *TOP_K[:4], "--set", "alpha=0.05"],
        "adaptive-sets": [*folder, *adaptive, "--rule", "threshold", "--set", "threshold=0.4", "--set", "alpha=0.05"],
    }
    return home, {
        name: done("vote", *MODEL, *asked, "--noise-seed", 0, "--out", home / name) for name, asked in said.items()
    }


@pytest.fixture
def votes(deployed):
    return lambda name: read_votes(deployed[0] / name)


def shown(out):
    """The rows of the printed table: by method and name, its numbers."""
    rows, method = {}, ""
    for line in out.splitlines():
        found = re.match(r"(\w*) +(recall|precision|F1|stay|floor|ceiling)((?: +\d[\d.]*%?)+)$", line)
        if found:
            method = found[1] or method
            rows[method, found[2]] = [float(word.rstrip("%")) for word in found[3].split()]
    return rows


def test_floors_and_ceilings(deployed, votes, tmp_path):
    """Votes of sets are certified by floors and ceilings."""
    sets = votes("sets")
    assert (sets.rule, sets.provenance.score_threshold, sets.provenance.draws) == ("threshold", 0.4, 80)
    asked = ["certify", deployed[0] / "sets", *THRESHOLD, "--method", "all", "--sweep", "threshold=0.3,0.4,0.6"]
    out = done(*asked, "--out", tmp_path / "c")
    found = read_certificates(tmp_path / "c")
    assert found.certificates.methods == ("joint", "coupled", "betting", "independent")
    assert {curve.config.rule.t for curve in found.curves} == {0.3, 0.4, 0.6}
    for position, (true, false) in enumerate(
        zip(found.certificates.radii["joint"], found.certificates.false_radii["joint"], strict=True)
    ):
        proved = certified_radii(sets.hits(position), sets.labels[position], Threshold(0.4), sigma=0.5, alpha=0.05)
        assert np.array_equal(true, proved.true)
        assert np.array_equal(false, proved.false)
    assert "t = 0.4, n = 80, alpha = 0.05, sigma = 0.5; means over images" in out
    assert "floor: true labels returned at least" in out
    assert max(map(len, out.splitlines()[:-1])) <= 80


def test_rounded_counts(deployed, tmp_path):
    """No floor is rounded up and no ceiling down."""
    rows = shown(done("certify", deployed[0] / "sets", *THRESHOLD, "--set", "radius_to=0.6", "--out", tmp_path / "c"))
    found = read_certificates(tmp_path / "c")
    scores = next(curve.scores for curve in found.curves if curve.averaging == "mean")
    places = np.linspace(0, len(scores.radius) - 1, 7).round().astype(int)
    for name, field, unit in (
        ("recall", "recall", 0.1),
        ("precision", "precision", 0.1),
        ("floor", "true_floor", 0.01),
    ):
        exact = getattr(scores, field)[places] * (100 if unit == 0.1 else 1)
        assert np.all((rows["joint", name] <= exact + 1e-9) & (exact < np.array(rows["joint", name]) + unit))
    exact = scores.false_ceiling[places]
    assert np.all((rows["joint", "ceiling"] >= exact - 1e-9) & (exact > np.array(rows["joint", "ceiling"]) - 0.01))
    assert len(set(rows["joint", "ceiling"])) > 2


@pytest.mark.parametrize(("name", "asked"), [("unlabelled", TOP_K), ("piloted", TOP_K), ("adaptive-sets", THRESHOLD)])
def test_pilot_labels(deployed, votes, name, asked, tmp_path):
    """What pilot draws chose is certified by others."""
    out = done("certify", deployed[0] / name, *asked, "--no-labels", "--out", tmp_path / "c")
    given, found = votes(name), read_certificates(tmp_path / "c").certificates
    assert not found.labelled
    for position, labels in enumerate(found.labels):
        rule = TopK(4, 2) if asked is TOP_K else Threshold(0.4)
        assert labels == rule.returned(as_array(given.row(position, adaptive=True).pilot, rule), 10)
    assert "fraction of the predicted labels that provably stay" in out
    names = {name for _, name in shown(out)}
    assert names == ({"stay"} if asked is TOP_K else {"stay", "floor", "ceiling"})


def test_adaptive_votes(deployed, votes, tmp_path):
    """Adaptive votes are recognised and their mean number of draws is printed."""
    adaptive = votes("adaptive")
    draws = draws_of(adaptive)
    assert adaptive.provenance.stops == STOPS
    assert set(draws) <= set(STOPS)
    assert len(set(draws)) > 1
    assert adaptive.provenance.stopping["radii"] == (0.1, 0.3)
    told = f"an average of {np.mean(draws):.1f} votes on each of 6 images, gaussian:0.5, by torch float32 on cpu: "
    assert deployed[1]["adaptive"].splitlines()[1] == f"{told}{deployed[0] / 'adaptive'}"
    out = done("certify", deployed[0] / "adaptive", *TOP_K, "--out", tmp_path / "c")
    assert f"adaptive draws: {np.mean(draws):.1f} per image on average, 300 at most" in out
    assert list(read_certificates(tmp_path / "c").certificates.draws) == draws
    assert "n = " not in out


@pytest.mark.parametrize("name", ["adaptive-sets", "unlabelled"])
def test_report_without_labels(deployed, name, tmp_path):
    """A report shows images that have no labels."""
    asked = THRESHOLD if name == "adaptive-sets" else TOP_K
    done("certify", deployed[0] / name, *asked, "--no-labels", "--out", tmp_path / "certificates")
    out = done("report", tmp_path / "certificates")
    assert "no images" not in out
    assert "data:image" in (tmp_path / "report.html").read_text()


def predicting(deployed, *more):
    image, names = deployed[0] / "images/0.png", deployed[0] / "names.txt"
    how = ["--labels", names, "--rule", "threshold", "--draws", 200, "--noise-seed", 0]
    return ["predict", image, *MODEL, *how, *more]


def test_threshold_prediction(deployed):
    """A threshold prediction tells what stays and what may come in."""
    found = json.loads(done(*predicting(deployed, "--threshold", 0.4, "--set", "score_threshold=0.6", "--json")))
    assert (found["rule"], found["threshold"], found["score_threshold"]) == ("threshold", 0.4, 0.6)
    assert "k" not in found
    image = found["images"][0]
    assert len(image["labels"]) + len(image["other_radii"]) == 10
    assert len(image["set_radii"]) == len(image["labels"]) > 0
    text = done(*predicting(deployed, "--threshold", 0.4, "--set", "score_threshold=0.6"))
    assert "t = 0.4, sigma = 0.5. 30 draws chose the labels, others certify them" in " ".join(text.split())
    lines = text.splitlines()
    others = lines[next(n for n, line in enumerate(lines) if "other labels that may come in" in line) + 1 :]
    radii = [-np.inf if radius is None else radius for radius in image["other_radii"]]
    for line in others[: others.index("")]:
        words, radius = line.rsplit(None, 1)
        if radius == "unconfirmed":
            continue
        most = 0 if words.strip() == "none" else int(words.split()[-1])
        assert 0 <= radii[most] - float(radius) < 0.001


def test_unconfirmed_labels(deployed):
    """Labels that the draws do not confirm are marked."""
    text = done(*predicting(deployed, "--threshold", 0.5, "--draws", 5))
    assert "unconfirmed" in text
    assert re.search(r"(none|fewer than \d+) +unconfirmed", text)
    nothing = done(*predicting(deployed, "--threshold", 0.99, "--set", "score_threshold=0.99"))
    assert "no label is predicted" in nothing
