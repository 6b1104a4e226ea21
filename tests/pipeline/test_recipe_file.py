"""A recipe says what it means: unknown keys, wrong types and contradictions are one line, with the place."""

import re

import pytest
from tests.pipeline.tiny_run import RECIPE

from multiguard.errors import InvalidInputError
from multiguard.run import find_recipe, parse_recipe, recipe_names, recipe_text


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        ("sigma: 0.5", "sgma: 0.5", "unknown key 'sgma': did you mean 'sigma'?"),
        ("k_prime: 2", "k_prim: 2", "unknown key 'certify.k_prim': did you mean 'certify.k_prime'?"),
        ("draws: 60", "draws: many", "vote.draws is 'many'; expected a whole number"),
        ("draws: 60", "draws: 1.5", "vote.draws is 1.5; expected a whole number"),
        ("draws: 60", "draws: true", "vote.draws is True; expected a whole number"),
        ("sigma: 0.5", "sigma: .nan", "sigma is nan; expected a finite number"),
        ("sigma: 0.5", "sigma: 0x" + 6000 * "f", "sigma is a number of too many digits; expected a"),
        ("k: [2, 3]", "k: !!set {2, 3}", "sweep.k is a set; expected a list"),
        ("k: [2, 3]", "k: [2, 9999999999999999999]", "sweep.k is a number of too many digits"),
        ("sigma: 0.5", "sigma: 0", "sigma is 0.0; without noise there is no certificate"),
        ("k: [2, 3]", "k: 2", "sweep.k is 2; expected a list"),
        ("k: [2, 3]", "k: [2, x]", "sweep.k is 'x'; expected a whole number"),
        ("[joint, paper]", "[joint, papr]", "certify: unknown method of the top-k rule 'papr': did you mean 'paper'?"),
        ("certify: {k: 3, ", "certify: {", "certify: k is missing; the top-k rule needs k and k_prime"),
        ("vote: {draws: 60, shard_images: 4, noise_seed: 0}", "vote: 60", "vote is 60; expected keys such as draws:"),
        ("sigma: 0.5", "sigma: 0.5\nnoise: band:4", "sigma is 0.5, Gaussian noise, and noise is band:4; give one"),
        ("sigma: 0.5\n", "", "neither sigma nor noise is given; give one, such as sigma: 0.5 or noise: band:4"),
        ("sigma: 0.5", "noise: bend:4", "unknown noise 'bend': did you mean 'band'?"),
        ("sigma: 0.5", "noise: none", "noise is none; without noise there is no certificate"),
        ("sigma: 0.5", "noise: uniform:0", "half_width"),
        ("sigma: 0.5", "sigma: 0.5\nsigma: 1", "the key 'sigma' stands twice"),
        ("sigma: 0.5", "sigma: 0.5\nmodel: runs/m", "both of train and model given"),
        ('train: {model: "cnn:4", images: 64, val_images: 40, epochs: 1}', "", "neither of train and model given"),
        ("sigma: 0.5", "sigma: [", "tiny.yaml, line"),
    ],
)
def test_recipe_mistakes(was, becomes, message):
    """A mistake is one line that names the key, the value and what was expected."""
    assert was in RECIPE
    with pytest.raises(InvalidInputError) as error:
        parse_recipe(RECIPE.replace(was, becomes), "tiny.yaml")
    assert message in str(error.value)
    assert str(error.value).startswith("tiny.yaml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "- a\n- b", "just words", "1"])
def test_not_a_recipe(text):
    """What is no recipe is refused."""
    with pytest.raises(InvalidInputError, match="expected the keys of a recipe"):
        parse_recipe(text, "some.yaml")


def test_existing_model():
    """A model that exists takes the place of training."""
    trained = RECIPE[RECIPE.index("train:") : RECIPE.index("vote:")]
    named = parse_recipe(RECIPE.replace(trained, "model: onnx:classifier.onnx\n"), "x")
    assert (named.train, named.model.spec) == (None, "onnx:classifier.onnx")
    told = "model: {spec: onnx:t.onnx, output: probabilities, mean: [0.5, 0.5, 1]}\n"
    said = parse_recipe(RECIPE.replace(trained, told), "x").model
    assert (said.spec, said.output, said.mean) == ("onnx:t.onnx", "probabilities", (0.5, 0.5, 1.0))
    with pytest.raises(InvalidInputError, match=r"sweep\.training_noise needs training"):
        parse_recipe(RECIPE.replace(trained, told).replace("sweep: {", "sweep: {training_noise: [0], "), "x")


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
