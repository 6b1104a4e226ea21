"""Recipes for deployed classifiers: which parts fit together, which votes can be reused, and a complete run."""

import re

import numpy as np
import pytest
from PIL import Image
from tests.pipeline.tiny_run import command, state

from multiguard.data import DigitsDataset
from multiguard.errors import InvalidInputError
from multiguard.evaluate import read_certificates
from multiguard.run import find_recipe, parse_recipe, recipe_names
from multiguard.run.arms import plan_arms
from multiguard.run.steps import sampling
from multiguard.votes import read_votes

MODEL = "model: {spec: tests.cli.test_certify:linear_model, output: logits}"
SETS = f"""
data: {{name: digits, images: 6, size: 16}}
sigma: 0.5
{MODEL}
vote: {{rule: threshold, score_threshold: 0.4, draws: 60}}
certify: {{threshold: 0.5, alpha: 0.05, methods: [joint, independent]}}
sweep: {{threshold: [0.3, 0.5], n: [30]}}
"""
RANKS = f"""
data: {{name: digits, images: 6, size: 16}}
sigma: 0.5
{MODEL}
vote: {{draws: 60, k_max: 3}}
certify: {{k: 4, k_prime: 2, alpha: 0.05}}
sweep: {{k_prime: [1, 3]}}
"""
ADAPTIVE = f"""
data: {{name: digits, images: 6, size: 16}}
sigma: 0.5
{MODEL}
vote: {{draws: adaptive, radii: [0.1, 0.3], max_draws: 200}}
certify: {{k: 4, k_prime: 2, alpha: 0.05}}
"""


def run(home, text, *more):
    (home / "recipe.yaml").write_text(text)
    return command("run", home / "recipe.yaml", "--out", home / "run", *more)


@pytest.mark.parametrize(
    ("text", "was", "becomes", "message"),
    [
        (SETS, "threshold: 0.5, a", "threshold: 1, a", "certify: threshold must lie strictly between 0 and 1"),
        (SETS, "threshold: 0.5, a", "a", "certify: threshold is missing; the threshold rule needs threshold"),
        (SETS, "threshold: 0.5, a", "threshold: 0.5, k: 3, a", "certify: k belongs to the top-k rule"),
        (SETS, "[joint, independent]", "[joint, paper]", "certify: unknown"),
        (SETS, "n: [30]", "k: [3]", "sweep.k: the threshold rule has no k; what varies is threshold, n, alpha"),
        (SETS, "[0.3, 0.5]", "[0.3, 0]", "strictly between 0 and 1, got 0"),
        (SETS, "rule: threshold", "rule: treshold", "vote.rule: unknown value 'treshold': did you mean 'threshold'?"),
        (SETS, "score_threshold: 0.4", "k_max: 4", "vote.k_max belongs to the top-k rule"),
        (SETS, "score_threshold: 0.4", "score_threshold: 1.5", "vote.score_threshold is 1.5"),
        (SETS, "rule: threshold, ", "", "vote.score_threshold belongs to the threshold rule"),
        (SETS, "draws: 60", "draws: 60, radii: [0.5]", "vote.radii and max_draws belong to adaptive draws"),
        (
            SETS,
            "draws: 60",
            "draws: adaptiv",
            "vote.draws is 'adaptiv'; expected a whole number from 1 to 100,000,000, or adaptive",
        ),
        (SETS, "n: [30]", "n: [30, 61]", "sweep.n is 61, and the votes hold 60 (vote.draws)"),
        (SETS, "alpha: 0.05", "alpha: 0.05, draws: 61", "certify.draws is 61, and the votes hold 60"),
        (RANKS, "k_max: 3", "k_max: 1", "certify.k_prime is 2, and the votes hold 1 (vote.k_max)"),
        (
            RANKS.replace("[1, 3]", "[1, 11]").replace("k_max: 3", "k_max: 11"),
            ", k_max: 11",
            "",
            "hold 10 (vote.k_max)",
        ),
        (RANKS, "k_prime: [1, 3]", "k_prime: [1, 4]", "sweep.k_prime is 4, and the votes hold 3"),
        (ADAPTIVE, "radii: [0.1, 0.3], ", "", "vote.adaptive draws stop once nothing more"),
        (ADAPTIVE, "[0.1, 0.3]", "[-0.1]", "vote.radii must be one or more finite numbers"),
        (ADAPTIVE, "max_draws: 200", "max_draws: 0", "vote.max_draws"),
        (ADAPTIVE, "alpha: 0.05", "alpha: 0.05, draws: 50", "certify.draws takes the first so many draws"),
        (ADAPTIVE, "\ncertify", "\nsweep: {n: [50]}\ncertify", "sweep.n takes the first so many draws"),
        (ADAPTIVE, "\ncertify", "\nsweep: {threshold: [0.5]}\ncertify", "sweep.threshold: the top-k rule has no"),
        (ADAPTIVE, "size: 16", "labelled: maybe", "data.labelled is 'maybe'; expected true or false"),
    ],
)
def test_contradictory_parts(text, was, becomes, message):
    """Parts that contradict each other are refused in one line when the recipe is read."""
    parse_recipe(text, "tiny.yaml")
    assert was in text
    with pytest.raises(InvalidInputError) as error:
        parse_recipe(text.replace(was, becomes), "tiny.yaml")
    assert message in str(error.value)
    assert str(error.value).startswith("tiny.yaml: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("made_by", [MODEL, "train: {model: 'cnn:4', images: 20, val_images: 10, epochs: 1}"])
def test_too_few_labels(tmp_path, made_by):
    """A recipe that needs more labels than there are is refused before anything is made."""
    recipe = RANKS.replace(MODEL, made_by)
    for was, becomes, name in (("k: 4", "k: 11", "certify.k"), ("sweep: {", "sweep: {k: [4, 11], ", "sweep.k")):
        code, _, err = run(tmp_path, recipe.replace(was, becomes))
        assert (code, err.count("\n")) == (2, 1)
        assert f"{name} is 11, and there are 10 labels; take 10 at most" in err
        assert not any((tmp_path / "run").rglob("*.*"))


def test_unlabelled_images():
    """Images without labels need a model and pilot draws."""
    unlabelled = ["data.name=folder", "data.root=x", "data.labelled=false"]
    assert not parse_recipe(ADAPTIVE, "x", unlabelled).data.labelled
    with pytest.raises(InvalidInputError, match="pilot_draws is 0, and without labels"):
        parse_recipe(ADAPTIVE, "x", [*unlabelled, "vote.pilot_draws=0"])
    with pytest.raises(InvalidInputError, match="a folder without labels trains no model"):
        parse_recipe(ADAPTIVE.replace(MODEL, "train: {epochs: 1}"), "x", unlabelled)


def test_embedded_rules():
    """The recipes that come with it ask for what they say."""
    sets, adaptive = find_recipe("digits-threshold"), find_recipe("digits-adaptive")
    assert (sets.vote.rule, sets.rule.t, sets.vote.draws) == ("threshold", 0.5, 1000)
    assert len(sets.sweep.threshold) > 2
    assert (adaptive.vote.adaptive, adaptive.vote.radii, adaptive.vote.most_draws) == (True, (0.5,), 10_000)
    assert sets.train == adaptive.train == find_recipe("digits").train


def test_recipe_names_in_help():
    """The help names every recipe that comes with it."""
    words = re.split(r"[\s,.]+", re.sub(r"-\n\s+", "-", command("run", "--help")[1]))
    assert set(recipe_names()) <= set(words)


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    home = tmp_path_factory.mktemp("sets")
    code, out, err = run(home, SETS)
    assert code == 0, err
    return home, out


def test_threshold_run(sets):
    """A run of the threshold rule goes to the page."""
    home, out = sets
    assert read_votes(home / "run/votes").rule == "threshold"
    assert {curve.config.rule.t for curve in read_certificates(home / "run/certificates").curves} == {0.3, 0.5}
    assert "t = 0.5, n = 60" in out
    assert "plotly" in (home / "run/report.html").read_text(encoding="utf-8")


def test_other_threshold_same_votes(sets):
    """Another threshold takes the votes that are there."""
    home, _ = sets
    before = state(home / "run/votes")
    code, out, err = run(home, SETS, "--set", "certify.threshold=0.7", "--until", "certify")
    assert code == 0, err
    assert "vote: skipped" in out
    assert "certify: running" in out
    assert state(home / "run/votes") == before
    assert read_certificates(home / "run/certificates").certificates.config.rule.t == 0.7


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (["vote.rule=top-k", "vote.score_threshold=null"], "rule, k_max and score_threshold differ"),
        (["vote.score_threshold=0.6"], "score_threshold differs"),
        (["vote.pilot_draws=10"], "pilot_draws differs"),
        (["data.labelled=false"], "labelled, truth_hash and pilot_draws differ"),
    ],
)
def test_other_votes_refused(sets, change, told):
    """Votes with other inputs are not replaced without --force."""
    home, _ = sets
    text = SETS
    if change[0] == "vote.rule=top-k":
        text = SETS.replace("threshold: 0.5, ", "k: 3, k_prime: 1, ").replace("threshold: [0.3, 0.5], ", "")
    before = state(home / "run/votes")
    changes = [word for one in change for word in ("--set", one)]
    code, _, err = run(home, text, *changes, "--until", "certify")
    assert (code, err.count("\n")) == (2, 1)
    assert told in err
    assert "--force" in err
    assert state(home / "run/votes") == before


def test_adaptive_run(tmp_path):
    """A run of adaptive draws is made for what it certifies."""
    code, out, err = run(tmp_path, ADAPTIVE, "--until", "certify")
    assert code == 0, err
    found = read_certificates(tmp_path / "run/certificates").certificates
    assert f"vote: {np.mean(found.draws):.1f} draws per image on average" in out
    assert f"adaptive draws: {np.mean(found.draws):.1f} per image on average, 200 at most" in out
    run_of = read_votes(tmp_path / "run/votes").provenance
    assert (run_of.stopping["k"], run_of.stopping["radii"], run_of.draws) == (4, (0.1, 0.3), 200)
    code, out, _ = run(tmp_path, ADAPTIVE, "--until", "certify")
    assert (code, out.count("skipped (unchanged)")) == (0, 2)
    code, _, err = run(tmp_path, ADAPTIVE, "--set", "certify.k=3", "--until", "certify")
    assert (code, err.count("\n")) == (2, 1)
    assert "holds the votes of another run: stopping differs" in err


def test_unlabelled_folder_run(tmp_path):
    """A run on a folder without labels."""
    (tmp_path / "images").mkdir()
    digits = DigitsDataset("test", size=20)
    for number in range(3):
        Image.fromarray(digits[number].image[0]).save(tmp_path / "images" / f"{number}.png")
    (tmp_path / "names.txt").write_text("\n".join("0123456789"))
    text = ADAPTIVE.replace("name: digits, images: 6", f"name: folder, root: {tmp_path / 'images'}, labelled: false")
    text = text.replace("output: logits", f"output: logits, labels: {tmp_path / 'names.txt'}")
    code, out, err = run(tmp_path, text)
    assert code == 0, err
    assert "100 pilot draws chose the labels" in out
    assert "no images" not in out
    assert not read_certificates(tmp_path / "run/certificates").certificates.labelled
    code, again, _ = command("run", tmp_path / "run/recipe.yaml", "--out", tmp_path / "run")
    assert (code, again.count("skipped (unchanged)")) == (0, 3)


def test_arm_draws(tmp_path):
    """Only the main arm takes the draws that n is swept over."""
    recipe = find_recipe("coco-subset", ["data.root=coco"])
    draws = {name: sampling(recipe, arm).draws for name, arm in plan_arms(recipe, tmp_path).items()}
    assert draws == {"": 10_000, "sigma-0.25": 1000, "sigma-1": 1000, "training-noise-0": 1000}
    recipe = find_recipe("digits-figures")
    assert {sampling(recipe, arm).draws for arm in plan_arms(recipe, tmp_path).values()} == {1000}
