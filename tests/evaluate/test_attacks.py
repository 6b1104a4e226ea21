"""What attacks achieved, counted by hand; sizes that are wrong as rarely as promised; and their files."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from scipy.stats import binom, binomtest
from tests.evaluate.attack_cases import threshold_attacks, top_k_attacks, write_attacks
from tests.evaluate.stored_metadata import edit_metadata, forge, load_metadata
from tests.evaluate.votes_cases import as_lists

from multiguard.attack.search import Objective
from multiguard.certify import Threshold, TopK
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import attack_curves, evaluated_size, read_attacks
from multiguard.evaluate.attacks import goals, smallest_bound

KINDS = {"in": "hide", "out": "add"}

# ------------------------------------------------------------------------------------------- curves and verdicts


def test_attack_curves():
    """The averages are those counted by hand."""
    (curve,) = attack_curves(top_k_attacks())
    assert curve.certified["joint"].tolist() == [1.0, 0.75, 0.5]
    assert curve.certified["paper"].tolist() == [0.75, 0.25, 0.0]
    assert curve.reached["pgd"].tolist() == [1.0, 0.75, 0.75]
    assert curve.reached["random"].tolist() == [1.0, 1.0, 0.5]
    assert curve.reached["best"].tolist() == [1.0, 0.75, 0.5]
    inside, outside = attack_curves(threshold_attacks())
    assert (inside.certified["joint"].tolist(), inside.reached["pgd"].tolist()) == ([1.0, 0.0], [1.0, 0.0])
    assert (outside.certified["joint"].tolist(), outside.reached["pgd"].tolist()) == ([0.0, 1.0], [0.0, 1.0])


def test_smaller_perturbations_count():
    """Between radii and beyond them the best of what is below holds, never what is above."""
    image = top_k_attacks().images[0]
    assert image.sizes("in", "pgd", [0.0, 0.49, 0.5, 0.9, 7.0]).tolist() == [2, 2, 1, 1, 1]
    assert image.sizes("in", "best", 0.99) == 1


def test_broken_certificates():
    """A certificate is broken only where the upper bound is below it, not where the estimate is."""
    attacks = top_k_attacks()
    assert attacks.broken("joint") == attacks.broken("paper") == ()
    assert attacks.broken("joint", surely=False) == ()
    first = attacks.images[0]
    claims = {"seems": np.array([0.9, 0.5]), "sure": np.array([1.0, 1.0])}
    seems = replace(first, proved={"in": {"joint": claims["seems"], "paper": claims["seems"]}})
    sure = replace(first, proved={"in": {"joint": claims["sure"], "paper": claims["seems"]}})
    altered = replace(attacks, images=(seems, replace(sure, id="second")))
    assert altered.broken("joint") == ("second",)
    assert altered.broken("joint", surely=False) == ("first", "second")
    assert altered.chance(1, "joint") == pytest.approx(1 - binom.pmf(0, 2, 0.002))
    assert attacks.chance(0, "joint") == 1


def test_broken_ceilings():
    """A ceiling can be broken too."""
    attacks = threshold_attacks()
    image = attacks.images[0]
    sure = tuple(replace(outcome, at_most=outcome.size) for outcome in image.outcomes)
    claimed = {"in": image.proved["in"], "out": {"joint": np.array([0.9, 0.6, 0.5])}}
    assert attacks.broken("joint") == ()
    assert replace(attacks, images=(replace(image, proved=claimed, outcomes=sure),)).broken("joint") == ("only",)


def test_tested_images():
    """Only images attacked inside a certified radius count, and few draws cannot find them broken."""
    attacks = top_k_attacks()
    assert attacks.tested("joint") == ("first", "second")
    assert attacks.tested("paper") == ("first",), "of the second image `paper` proves nothing as far as 0.5"
    assert attacks.undecidable("joint") == ()
    assert replace(attacks, draws=5).undecidable("joint") == ("first", "second")


# ---------------------------------------------------------------------------------------------- evaluated sizes

RULES = [TopK(3, 2), TopK(1, 1), TopK(7, 2), Threshold(0.41)]


def sorted_size(fractions, labels, rule, goal):
    """The size by sorting: the order of labels by fraction, those of L first among equals."""
    if isinstance(rule, TopK):
        order = sorted(range(7), key=lambda label: (-fractions[label], label not in labels))
        return len(set(order[: rule.k]) & set(labels))
    if goal == "in":
        return sum(fractions[label] >= rule.t for label in labels)
    return sum(fractions[label] < rule.t for label in set(range(7)) - set(labels))


@pytest.mark.parametrize("rule", RULES)
def test_sizes_by_sorting(rule):
    """Estimates and the margins of the objective count what sorting counts: ties go to L, a fraction of t is in."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        counts = rng.integers(1, 31, 7)
        labels = tuple(sorted(rng.choice(7, rng.integers(1, 7), replace=False)))
        inside = torch.zeros(1, 7, dtype=torch.bool)
        inside[0, list(labels)] = True
        for goal in goals(rule):
            fractions, objective = torch.from_numpy(counts / 30)[None], Objective(rule, KINDS[goal])
            aim = inside if goal == "in" else ~inside
            margins = objective.margins(fractions, aim)
            size = sorted_size(counts / 30, labels, rule, goal)
            estimate, at_most = evaluated_size(counts, 30, labels, rule, goal, beta=0.01)
            assert estimate == size <= at_most
            assert int((margins >= 0).sum()) == size
            assert bool((margins[:, 1:] <= margins[:, :-1]).all()), "margins never rise"
            value = float(objective.value(fractions, aim))
            assert size - 1 <= value <= size if size else value < 0


@pytest.mark.parametrize("beta", [0.001, None])
def test_labels_without_a_hit(beta):
    """A label of L that no draw hit is not counted as staying, unless too few others are left to take its place."""
    rule = TopK(2, 1)
    estimate, at_most = evaluated_size([20, 0, 0, 0], 20, (1,), rule, "in", beta=beta)
    assert (estimate, at_most) == (0, 0 if beta is None else 1)
    assert evaluated_size([20, 0, 0, 0], 20, (0, 1), rule, "in", beta=beta)[0] == 1
    assert evaluated_size([20, 0, 0, 0], 20, (1, 2, 3), rule, "in", beta=beta) == (1, 1)


def test_upper_bound_coverage():
    """Probabilities at a tie, where every claim that a label left is false: seeded, by the exact binomial test."""
    rng, beta, runs = np.random.default_rng(1), 0.2, 2000
    probabilities = np.array([0.5, 0.5, 0.5, 0.1])
    wrong = 0
    for _ in range(runs):
        counts = rng.binomial(60, probabilities)
        # The first label ties with two others at k = 2, so it may be in: at most 0 is a false claim about L = {0}.
        wrong += evaluated_size(counts, 60, (0,), TopK(2, 2), "in", beta=beta)[1] < 1
    assert binomtest(wrong, runs, beta, alternative="greater").pvalue > 0.01


def test_smallest_bound():
    """A label of L that is never hit, and ten rivals with equal parts of three hits per draw: the worst case."""
    counts = [0, 0, *[30] * 10, *[0] * 68]
    rule, level = TopK(10, 3), 0.001 / 13
    for draws, least in ((100, 2), (500, 0)):
        hits = [count * draws // 100 for count in counts]
        assert evaluated_size(hits, draws, (0, 1), rule, "in", beta=level)[1] == least
        assert smallest_bound(draws, 2, 80, rule, "in", beta=level) <= least
    assert smallest_bound(90, 2, 80, rule, "in", beta=level) == 2
    rule = Threshold(0.9)
    assert smallest_bound(20, 2, 80, rule, "in", beta=level) == 0
    assert smallest_bound(20, 2, 80, rule, "out", beta=level) == 78
    assert smallest_bound(900, 2, 80, rule, "out", beta=level) == 0
    rule, hits = Threshold(0.5, 3), [0, 0, 900, 900, 900, *[0] * 75]  # k' labels that are always hit come in
    assert evaluated_size(hits, 900, (0, 1), rule, "out", beta=level)[1] == 75
    assert smallest_bound(900, 2, 80, rule, "out", beta=level) <= 75


PARQUET = "attack.parquet"


@pytest.mark.parametrize("case", [top_k_attacks, threshold_attacks])
def test_round_trip(case, tmp_path):
    """Everything reads back exactly, and is replaced only with force."""
    attacks = case()
    write_attacks(tmp_path, attacks, certificates_hash="abc", command="multiguard attack x")
    found = read_attacks(tmp_path)
    assert (found.certificates_hash, found.command) == ("abc", "multiguard attack x")
    same = replace(found, certificates_hash="", command=None)
    for field in fields(attacks):
        assert as_lists(getattr(same, field.name)) == as_lists(getattr(attacks, field.name)), field.name
    assert found.config == attacks.config
    assert {path.name for path in tmp_path.iterdir()} == {PARQUET, f".{PARQUET}.json"}
    with pytest.raises(InvalidInputError, match="holds an attack already"):
        write_attacks(tmp_path, attacks, certificates_hash="abc")
    write_attacks(tmp_path, attacks, certificates_hash="new", force=True)
    assert read_attacks(tmp_path).certificates_hash == "new"


@pytest.fixture
def folder(tmp_path):
    write_attacks(tmp_path, top_k_attacks(), certificates_hash="abc")
    return tmp_path


def refused(folder, message):
    with pytest.raises(DataError, match=message) as refusal:
        read_attacks(folder)
    assert PARQUET in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_damaged_file(folder):
    """A file that is cut, edited, swapped or gone is refused with its name."""
    path = folder / PARQUET
    content, metadata = path.read_bytes(), load_metadata(path)
    path.write_bytes(content[:-9])
    refused(folder, "cannot be used.*attack again")
    path.write_bytes(content)
    edit_metadata(path, {**metadata, "beta": 0.5})
    refused(folder, "its checksum does not match")
    path.unlink()
    refused(folder, r"not an attack folder: it has no attack\.parquet")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version 99; .* version 5"),
        ({"beta": "0.5"}, "beta"),
        ({"methods": ["cohen's"]}, "unknown method"),
        ({"config": {"alpha": 0.001, "draws": 100, "k": 9, "k_prime": 1}}, "k must"),
        ({"label_names": ["cat", "dog"]}, "another label"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_forged_metadata(folder, change, message):
    """Metadata that does not fit is refused, even below a checksum that fits."""
    forge(folder / PARQUET, metadata={**load_metadata(folder / PARQUET), **change})
    refused(folder, message)
