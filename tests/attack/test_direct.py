"""Attacks on any classifier: linear ones, whose exact radius is known, are broken just outside it and never inside."""

from itertools import product

import numpy as np
import pytest
import torch

from multiguard.attack import Add, AttackConfig, Change, Hide, perturb, pgd, random_search
from multiguard.attack.search import Objective
from multiguard.certify import Threshold, TopK
from multiguard.errors import InvalidInputError, ModelError
from multiguard.smooth import Smoother

LABELS = ["cat", "dog", "emu"]
OPTIONS = {"labels": LABELS, "output": "logits", "device": "cpu"}


def scores(rows):
    """The first label leads the second by x_0 - x_1, so the exact radius is |x_0 - x_1| / sqrt(2)."""
    return rows @ torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


LEADS = np.array([[2.0, 1.0], [3.0, 1.5]], dtype=np.float32)
MANY = AttackConfig(draws=2000)
RADII = (LEADS[:, 0] - LEADS[:, 1]) / np.sqrt(2)


@pytest.mark.parametrize("goal", [Hide("cat"), Hide([0]), Add("dog"), Change()], ids=repr)
@pytest.mark.parametrize("sigma", [None, 0.25])
def test_top_label(goal, sigma):
    """pgd hides the top label, or lifts the second one, just outside the exact radius and never inside."""
    for row, radius in zip(LEADS, RADII, strict=True):
        for factor, broken in ((0.9, False), (1.1, True)):
            found = pgd(
                scores, row[None], goal, TopK(1, 1), radius=factor * radius, sigma=sigma, config=MANY, **OPTIONS
            )
            assert found.success.tolist() == [broken]
            assert found.norms[0] <= factor * radius
            np.testing.assert_array_equal(found.inputs, row[None] + found.delta)
            assert found.labels_before.tolist() == [[True, False, False]]
            assert found.labels_after[0, 0] == (not broken)


@pytest.mark.parametrize("attack", [pgd, random_search])
def test_labels_without_a_hit(attack):
    """A smoothed classifier returns no label that no draw hit; a plain one returns its k best."""
    row, options = LEADS[:1], {"radius": 1.0, "config": AttackConfig(draws=50), **OPTIONS}
    smoothed = attack(scores, row, Hide("cat"), TopK(2, 1), sigma=0.01, **options)
    assert smoothed.labels_before.tolist() == [[True, False, False]]
    assert smoothed.labels_after.tolist() == [[False, True, False]]
    assert smoothed.success.tolist() == [True]
    plain = attack(scores, row, Hide("cat"), TopK(2, 1), **options)
    assert plain.labels_before.tolist() == [[True, True, False]]


def test_bytes():
    """uint8 images are attacked as pixels in [0, 1], uint8 rows in their own unit."""
    options = {"radius": 0.1, "config": AttackConfig(steps=2, starts=1), **OPTIONS}
    row = pgd(scores, np.array([[200, 100]], np.uint8), Hide("cat"), TopK(1, 1), **options)
    assert np.abs(row.inputs - [[200, 100]]).max() <= 0.1
    image = np.array([200, 100], np.uint8).reshape(1, 1, 1, 2)
    pixels = pgd(lambda x: scores(x.flatten(1)), image, Hide("cat"), TopK(1, 1), **options)
    assert np.abs(pixels.inputs - image / 255).max() <= 0.1


@pytest.mark.parametrize(("goal", "radius"), [(Hide("cat"), 2.0), (Add("dog"), 0.5), (Change(), 0.5)], ids=repr)
def test_threshold(goal, radius):
    """Under the threshold rule a label leaves, or comes in, at the distance of its own logit from 0."""
    row = np.array([[2.0, -0.5]], dtype=np.float32)
    for factor, broken in ((0.9, False), (1.1, True)):
        found = pgd(
            lambda x: scores(x) - torch.tensor([0, 0, 9.0]),
            row,
            goal,
            Threshold(0.5),
            radius=factor * radius,
            config=AttackConfig(starts=1),
            **OPTIONS,
        )
        assert found.success.tolist() == [broken]


def test_threshold_on_ranked_votes():
    """A smoothed classifier returns each label that a fraction t of the draws have, not the k' most frequent."""
    rows = np.array([[0.4, 0.0, -9.0]], np.float32)
    smoother = Smoother(lambda x: x.clone(), sigma=0.5, labels=["cat", "dog", "emu"], device="cpu")
    for t, returned in ((0.1, [True, True, False]), (0.5, [True, False, False]), (0.9, [False] * 3)):
        rule, config = Threshold(t, k_prime=1), AttackConfig(draws=200, tries=2)
        found = random_search(smoother, rows, Change(), rule, radius=0.01, config=config)
        assert found.labels_before.tolist() == found.labels_after.tolist() == [returned]


def test_change_counts():
    """Change makes as many labels leave and come in as it can, not only one."""
    network = torch.nn.Linear(4, 4)
    torch.nn.init.eye_(network.weight)
    torch.nn.init.zeros_(network.bias)
    row = np.array([[0.1, 0.1, -0.1, 3.0]], dtype=np.float32)
    options = {"labels": list("abcd"), "output": "logits", "device": "cpu"}
    found = pgd(network, row, Change(), Threshold(0.5), radius=0.3, **options)
    assert (found.labels_before != found.labels_after).tolist() == [[True, True, True, False]]


def test_module():
    """A module without label names or a rule: a label leaves where its probability falls below 1/2."""
    network = torch.nn.Linear(2, 3)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]))
        network.bias.copy_(torch.tensor([0.0, 5.0, -5.0]))
    row = np.array([[0.3, 0.2]], dtype=np.float32)  # the first logit is 0.5, and moves by 2 R in the ball of linf
    for radius, hidden in ((0.24, False), (0.26, True)):
        found = pgd(network, row, Hide(0), radius=radius, attacker="linf-norm", output="logits", device="cpu")
        assert found.labels_before.tolist() == [[True, True, False]]
        assert found.labels_after.tolist() == [[not hidden, True, False]]


@pytest.mark.parametrize(("norm", "eps"), [("l2", 2.0), ("linf", 0.3), ("l1", 8.0), ("pixels", 9), ("patch", 4)])
@pytest.mark.parametrize("goal", ["hide", "add"])
def test_perturb(norm, eps, goal):
    """Images in, images out: the labels of each image are hidden, or added, and the images stay in [0, 1]."""
    network = torch.nn.Sequential(torch.nn.AvgPool2d(4), torch.nn.Flatten(1))  # a label per quarter of an 8 x 8 image
    network.append(torch.nn.BatchNorm1d(4, affine=False))
    network[-1].running_mean.fill_(0.5)
    images = torch.full((2, 1, 8, 8), 0.5) + (0.1 if goal == "hide" else -0.1)
    labels = torch.eye(4)[:2]
    found = perturb(network, images, labels, eps, norm=norm, goal=goal, config=AttackConfig(box=True, steps=30))
    assert network.training, "as it was"
    returned = network.eval()(found) >= 0
    assert torch.equal(returned, (labels == 0) if goal == "hide" else (labels == 1))
    assert 0 <= found.min() <= found.max() <= 1
    delta = (found - images).flatten(1)
    sizes = {"l2": delta.norm(dim=1), "linf": delta.abs().amax(1), "l1": delta.abs().sum(1)}
    assert (sizes.get(norm, (delta != 0).sum(1) / (4 if norm == "patch" else 1)) <= eps).all()
    same = perturb(network, images.numpy(), labels, eps, norm=norm, goal=goal, config=AttackConfig(box=True, steps=30))
    np.testing.assert_array_equal(same, found)


def test_per_input_goals():
    """A multi-hot array gives each input its own labels."""
    rows = np.array([[1.0, 0.9], [0.9, 1.0]], dtype=np.float32)
    found = pgd(scores, rows, Hide(np.array([[1, 0, 0], [0, 1, 0]])), TopK(1, 1), radius=0.2, **OPTIONS)
    assert found.success.all()
    assert found.labels_after.argmax(axis=1).tolist() == [1, 0]


def test_no_gradients():
    """pgd refuses a model without gradients and names the search that needs none, which succeeds."""

    def rounded(rows):
        return scores(rows).detach()

    with pytest.raises(ModelError, match=r"no gradients \(its scores carry no gradient\); use random_search"):
        pgd(rounded, LEADS, Hide("cat"), TopK(1, 1), radius=1.0, **OPTIONS)
    found = random_search(rounded, LEADS, Hide("cat"), TopK(1, 1), radius=1.5, **OPTIONS)
    assert found.success.all()
    assert not random_search(rounded, LEADS, Hide("cat"), TopK(1, 1), radius=0.6, **OPTIONS).success.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"goal": Hide("bat")}, "'bat' is none of"),
        ({"goal": Hide([])}, "names no label"),
        ({"radius": 0.0}, "radius must be positive"),
        ({"inputs": np.zeros(2)}, r"use inputs\[None\]"),
        ({"rule": TopK(4, 1)}, "k "),
        ({"goal": Hide(np.zeros((1, 3)))}, r"expected \(2, 3\)"),
    ],
)
def test_refusals(change, message):
    """What cannot be attacked is refused by name."""
    given = {"inputs": LEADS, "goal": Hide("cat"), "rule": TopK(1, 1), "radius": 1.0, **change}
    with pytest.raises(InvalidInputError, match=message):
        pgd(scores, given["inputs"], given["goal"], given["rule"], radius=given["radius"], **OPTIONS)


def returned(fractions, rule):
    """The labels returned, by the plain definition."""
    if isinstance(rule, Threshold):
        return {int(i) for i in np.flatnonzero(fractions >= rule.t)}
    return set(np.argsort(-fractions, kind="stable")[: rule.k].tolist())


def test_objective_counts():
    """The margins that are not negative count the labels that stay as they are, for each goal and both rules."""
    rng = np.random.default_rng(0)
    for rule, kind, size in product([TopK(1, 1), TopK(3, 1), Threshold(0.5)], ["hide", "add", "change"], range(1, 6)):
        fractions = rng.permutation(np.linspace(0.03, 0.97, 6))
        inside = returned(fractions, rule)
        aim = (
            returned(rng.permutation(fractions), rule) if kind == "change" else set(rng.permutation(6)[:size].tolist())
        )
        mask = torch.zeros(1, 6, dtype=torch.bool)
        mask[0, list(aim)] = True
        stay = {"hide": aim & inside, "add": aim - inside, "change": aim & inside}[kind]
        if kind == "change" and isinstance(rule, Threshold):
            stay = stay | (set(range(6)) - aim - inside)
        margins = Objective(rule, kind).margins(torch.from_numpy(fractions)[None], mask)
        assert int((margins >= 0).sum()) == len(stay), (rule, kind, size)
        assert bool((margins[:, 1:] <= margins[:, :-1]).all())


@pytest.mark.parametrize(("attack", "budget"), [(pgd, {"steps": 3, "starts": 2}), (random_search, {"tries": 6})])
def test_progress(attack, budget):
    """The fraction of the search that is done rises to 1; an exception from the callback ends the attack."""
    seen = []
    options = {"radius": 0.1, "labels": ["cat", "dog"], "device": "cpu", "config": AttackConfig(**budget)}
    attack(lambda x: 2 * x, np.array([[0.4, 0.0]]), Hide("cat"), TopK(1, 1), progress=seen.append, **options)
    assert seen == [pytest.approx(part / 6) for part in range(1, 7)]

    def stop(done):
        raise TimeoutError(done)

    with pytest.raises(TimeoutError):
        attack(lambda x: 2 * x, np.array([[0.4, 0.0]]), Hide("cat"), TopK(1, 1), progress=stop, **options)


def test_attacks_once():
    """An unknown attack, none, and one twice are refused."""
    for attacks, message in ((("pgdd",), "pgd"), ((), "each once"), (("pgd", "pgd"), "each once, not 'pgd,pgd'")):
        with pytest.raises(InvalidInputError, match=message):
            AttackConfig(attacks=attacks)
