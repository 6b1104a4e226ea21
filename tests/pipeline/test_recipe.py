"""A recipe says what it means: unknown keys, wrong types and contradictions are one line, with the place."""

import re

import pytest
from tests.pipeline.tiny_run import RECIPE, command

from multiguard.errors import InvalidInputError
from multiguard.run import find_recipe, parse_recipe, recipe_names, recipe_text
from multiguard.run.arms import plan_arms
from multiguard.run.steps import sampling

TRAINED = RECIPE[RECIPE.index("train:") : RECIPE.index("vote:")]
DIGITS = "data: {name: digits, images: 6, size: 16}\nsigma: 0.5\nmodel: onnx:t.onnx\n"
SETS = f"""{DIGITS}
vote: {{rule: threshold, score_threshold: 0.4, draws: 60}}
certify: {{threshold: 0.5, alpha: 0.05, methods: [joint, independent]}}
sweep: {{threshold: [0.3, 0.5], n: [30]}}
"""
RANKS = f"""{DIGITS}
vote: {{draws: 60, k_max: 3}}
certify: {{k: 4, k_prime: 2, alpha: 0.05}}
sweep: {{k_prime: [1, 3]}}
"""
ADAPTIVE = f"""{DIGITS}
vote: {{draws: adaptive, radii: [0.1, 0.3], max_draws: 200}}
certify: {{k: 4, k_prime: 2, alpha: 0.05}}
"""


@pytest.mark.parametrize(
    ("text", "was", "becomes", "message"),
    [
        (RECIPE, "sigma: 0.5", "sgma: 0.5", "unknown key 'sgma': did you mean 'sigma'?"),
        (RECIPE, "k_prime: 2", "k_prim: 2", "unknown key 'certify.k_prim': did you mean 'certify.k_prime'?"),
        (RECIPE, "draws: 60", "draws: many", "vote.draws is 'many'; expected a whole number"),
        (RECIPE, "sigma: 0.5", "sigma: 0x" + 6000 * "f", "sigma is a number of too many digits; expected a"),
        (RECIPE, "k: [2, 3]", "k: !!set {2, 3}", "sweep.k is a set; expected a list"),
        (RECIPE, "sigma: 0.5", "sigma: 0", "sigma is 0.0; without noise there is no certificate"),
        (RECIPE, "sigma: 0.5", "noise: none", "noise is none; without noise there is no certificate"),
        (
            RECIPE,
            "sigma: 0.5",
            "sigma: 0.5\nnoise: band:4",
            "sigma is 0.5, Gaussian noise, and noise is band:4; give one",
        ),
        (RECIPE, "sigma: 0.5\n", "", "neither sigma nor noise is given; give one, such as sigma: 0.5 or noise: band:4"),
        (RECIPE, "sigma: 0.5", "sigma: 0.5\nsigma: 1", "the key 'sigma' stands twice"),
        (RECIPE, "sigma: 0.5", "sigma: [", "tiny.yaml, line"),
        (
            RECIPE,
            "[joint, paper]",
            "[joint, papr]",
            "certify: unknown method of the top-k rule 'papr': did you mean 'paper'?",
        ),
        (RECIPE, "certify: {k: 3, ", "certify: {", "certify: k is missing; the top-k rule needs k and k_prime"),
        (RECIPE, "sigma: 0.5", "sigma: 0.5\nmodel: runs/m", "both of train and model given"),
        (RECIPE, TRAINED, "", "neither of train and model given"),
        (RECIPE, "sweep: {", "sweep: {sigma: [0], ", "sweep.sigma is 0.0; without noise there is no certificate"),
        (SETS, "threshold: 0.5, a", "a", "certify: threshold is missing; the threshold rule needs threshold"),
        (SETS, "threshold: 0.5, a", "threshold: 0.5, k: 3, a", "certify: k belongs to the top-k rule"),
        (SETS, "[joint, independent]", "[joint, paper]", "certify: unknown"),
        (SETS, "n: [30]", "k: [3]", "sweep.k: the threshold rule has no k; what varies is threshold, n, alpha"),
        (SETS, "[0.3, 0.5]", "[0.3, 0]", "strictly between 0 and 1, got 0"),
        (SETS, "score_threshold: 0.4", "k_max: 4", "vote.k_max belongs to the top-k rule"),
        (SETS, "n: [30]", "n: [30, 61]", "sweep.n is 61, and the votes hold 60 (vote.draws)"),
        (SETS, "alpha: 0.05", "alpha: 0.05, draws: 61", "certify.draws is 61, and the votes hold 60"),
        (SETS, "{threshold: [", "{training_noise: [0], threshold: [", "sweep.training_noise needs training"),
        (RANKS, "k_max: 3", "k_max: 1", "certify.k_prime is 2, and the votes hold 1 (vote.k_max)"),
        (RANKS, "k_max: 3}\ncertify: {k: 4, k_prime: 2", "}\ncertify: {k: 4, k_prime: 11", "hold 10 (vote.k_max)"),
        (ADAPTIVE, "alpha: 0.05", "alpha: 0.05, draws: 50", "certify.draws is a fixed number of draws"),
        (ADAPTIVE, "alpha: 0.05", "methods: [joint]", "certify.methods: only betting may certify adaptive votes"),
        (ADAPTIVE, "\ncertify", "\nsweep: {n: [50]}\ncertify", "sweep.n is a fixed number of draws"),
        (ADAPTIVE, "\ncertify", "\ncalibrate: {recall: 0.8, radius: 0}\ncertify", "needs the same number of draws"),
    ],
)
def test_recipe_mistakes(text, was, becomes, message):
    """A mistake is one line that names the key, the value and what was expected."""
    parse_recipe(text, "tiny.yaml")
    assert was in text
    with pytest.raises(InvalidInputError) as error:
        parse_recipe(text.replace(was, becomes), "tiny.yaml")
    assert message in str(error.value)
    assert str(error.value).startswith("tiny.yaml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "- a\n- b", "just words", "1"])
def test_not_a_recipe(text):
    """What is no recipe is refused."""
    with pytest.raises(InvalidInputError, match="expected the keys of a recipe"):
        parse_recipe(text, "some.yaml")


def test_number_formats():
    """Numbers as people write them."""
    recipe = parse_recipe(RECIPE, "x", ["train.lr=1e-3", "train.weight_decay=2", "data.root=0123", "train.flip=false"])
    assert (recipe.train.lr, recipe.train.weight_decay, str(recipe.data.root)) == (0.001, 2.0, "0123")
    assert recipe.train.flip is False
    assert parse_recipe(RECIPE.replace("sigma: 0.5", "sigma: 5E-1"), "x").sigma == 0.5


def test_changes():
    """Changes stand over the file."""
    recipe = parse_recipe(RECIPE, "x", ["certify.k=5", "sweep.k=[1, 5]", "data.images=null", "report.title=a = b"])
    assert (recipe.certify.k, recipe.sweep.k, recipe.data.images) == (5, (1, 5), None)
    assert recipe.report.title == "a = b"
    with pytest.raises(InvalidInputError, match=r"unknown key 'certify\.kk'"):
        parse_recipe(RECIPE, "x", ["certify.kk=5"])
    with pytest.raises(InvalidInputError, match="expected KEY=VALUE"):
        parse_recipe(RECIPE, "x", ["certify.k"])


@pytest.mark.parametrize("name", recipe_names())
def test_recipe_round_trip(name):
    """The text of a recipe parses to an equal one."""
    recipe = find_recipe(name)
    assert parse_recipe(recipe_text(recipe), "x") == recipe


@pytest.mark.parametrize(
    ("name", "split", "train", "k_prime", "k"),
    [("voc2007", "test", "trainval", 1, 3), ("coco", "val", "train", 3, 10), ("nuswide", "val", "train", 3, 10)],
)
def test_paper_recipes(name, split, train, k_prime, k):
    """The papers recipes have the papers parameters."""
    recipe = find_recipe(name)
    assert (recipe.data.split, recipe.train.split, recipe.data.images) == (split, train, 500)
    assert (recipe.certify.k_prime, recipe.certify.k, recipe.certify.alpha) == (k_prime, k, 0.001)
    assert (recipe.votes_noise, recipe.vote.most_draws) == ("gaussian:0.5", 1000)
    assert (recipe.train.loss, recipe.train.lr, recipe.train.batch) == ("asl", 0.001, 32)
    assert all((recipe.sweep.k, recipe.sweep.k_prime, recipe.sweep.n, recipe.sweep.alpha, recipe.sweep.sigma))
    assert recipe.sweep.training_noise == (0.0,)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "digits-figures",
            ["sigma=null", "noise=uniform:1"],
            "sweep.sigma varies Gaussian noise, and noise is",
        ),
        ("digits-patch", ["vote.draws=100"], "vote.draws is 100, but every band of band:8 votes once and nothing is"),
        ("digits-patch", ["vote.pilot_draws=100"], "vote.pilot_draws is 100, but every band"),
        ("digits-patch", ["certify.draws=20"], "certify.draws is 20, but every band"),
        ("digits-patch", ["certify.methods=[joint]"], "certify: the method 'joint' needs random draws"),
        ("digits-l1", ["certify.methods=[enumerated]"], "certify: the method 'enumerated' is for band noise"),
        ("digits-patch", ["sweep.alpha=[0.1]"], "sweep.alpha is (0.1,), but every band"),
    ],
)
def test_recipe_of_other_noise(name, changes, message):
    """What the noise leaves no choice about is refused."""
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        find_recipe(name, changes)


def test_unknown_recipe(tmp_path):
    """An unknown recipe names the nearest."""
    with pytest.raises(InvalidInputError, match="did you mean 'digits'"):
        find_recipe("digit")
    with pytest.raises(InvalidInputError, match="no such recipe file"):
        find_recipe(str(tmp_path / "gone.yaml"))


def test_named_model():
    """A model that exists takes the place of training."""
    told = "model: {spec: onnx:t.onnx, output: probabilities, mean: [0.5, 0.5, 1]}\n"
    said = parse_recipe(RECIPE.replace(TRAINED, told), "x")
    assert (said.train, said.model.spec) == (None, "onnx:t.onnx")
    assert (said.model.output, said.model.mean) == ("probabilities", (0.5, 0.5, 1.0))


def test_unlabelled_images():
    """Images without labels need a model and pilot draws."""
    unlabelled = ["data.name=folder", "data.root=x", "data.labelled=false"]
    assert not parse_recipe(ADAPTIVE, "x", unlabelled).data.labelled
    with pytest.raises(InvalidInputError, match="pilot_draws is 0, and without labels"):
        parse_recipe(ADAPTIVE, "x", [*unlabelled, "vote.pilot_draws=0"])
    with pytest.raises(InvalidInputError, match="a folder without labels trains no model"):
        parse_recipe(ADAPTIVE.replace("model: onnx:t.onnx", "train: {epochs: 1}"), "x", unlabelled)


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


def test_arm_draws(tmp_path):
    """Only the main arm takes the draws that n is swept over."""
    recipe = find_recipe("coco-subset", ["data.root=coco"])
    draws = {name: sampling(recipe, arm).draws for name, arm in plan_arms(recipe, tmp_path).items()}
    assert draws == {"": 10_000, "sigma-0.25": 1000, "sigma-1": 1000, "training-noise-0": 1000}
    recipe = find_recipe("digits-figures")
    assert {sampling(recipe, arm).draws for arm in plan_arms(recipe, tmp_path).values()} == {1000}
