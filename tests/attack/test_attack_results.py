"""What attacks reached, counted, written, read again and drawn."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom
from tests.attack.attack_cases import threshold_attacks, top_k_attacks

from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import Setting, ThresholdSetting, attack_curves, judged_size
from multiguard.evaluate.judged import least_at_most
from multiguard.io.records import checksum
from multiguard.report import draw_attack, write_attack_table
from multiguard.report.attack import _draw
from multiguard.report.attack_words import verdict
from multiguard.report.canvas import fixed_style
from multiguard.results import read_attacks, write_attacks

CASES = [top_k_attacks, threshold_attacks]


def test_curves_are_what_counting_gives():
    (curve,) = attack_curves(top_k_attacks())
    assert curve.certified["joint"].tolist() == [1.0, 0.75, 0.5]
    assert curve.certified["paper"].tolist() == [0.75, 0.25, 0.0]
    assert curve.reached["pgd"].tolist() == [1.0, 0.75, 0.75]
    assert curve.reached["random"].tolist() == [1.0, 1.0, 0.5]
    assert curve.reached["best"].tolist() == [1.0, 0.75, 0.5]
    inside, outside = attack_curves(threshold_attacks())
    assert (inside.certified["joint"].tolist(), inside.reached["pgd"].tolist()) == ([1.0, 0.0], [1.0, 0.0])
    assert (outside.certified["joint"].tolist(), outside.reached["pgd"].tolist()) == ([0.0, 1.0], [0.0, 1.0])


def test_a_smaller_change_counts_at_every_larger_radius():
    """Between radii and beyond them the best of what is below holds, never what is above."""
    image = top_k_attacks().images[0]
    assert image.sizes("in", "pgd", [0.0, 0.49, 0.5, 0.9, 7.0]).tolist() == [2, 2, 1, 1, 1]
    assert image.sizes("in", "best", 0.99) == 1


def test_a_certificate_is_broken_only_by_what_is_sure():
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


def test_each_size_of_jia_may_fail_alone():
    """Two labels and k = 2: two proofs, each of which fails with probability alpha."""
    attacks = top_k_attacks()
    assert attacks.chance(1, "jia") == pytest.approx(1 - binom.pmf(0, 2, 2 * 0.001 + 0.001))
    assert attacks.chance(2, "paper") == pytest.approx(0.002**2)


def test_the_verdict_counts_what_was_tested_alone():
    """Of the second image `paper` proves nothing as far as 0.5, where the attacks begin."""
    attacks = top_k_attacks()
    assert attacks.tested("joint") == ("first", "second")
    assert attacks.tested("paper") == ("first",)
    told = "no certificate was broken: 0 of 2 certified images, attacked inside their radius (joint), 0 of 1 (paper)"
    assert verdict(attacks) == told
    nothing = {"in": {"joint": np.array([0.4]), "paper": np.array([-np.inf])}}
    hollow = replace(attacks, images=(replace(attacks.images[1], proved=nothing),))
    assert verdict(hollow) == "no certificate was tested: of 1 images none was attacked inside its radius"


def test_the_verdict_tells_what_seems_broken_and_what_draws_cannot_tell():
    attacks = top_k_attacks()
    claimed = {"in": {"joint": np.array([0.9, 0.5]), "paper": np.array([0.2, 0.1])}}
    seems = replace(attacks, images=(replace(attacks.images[0], proved=claimed),))
    assert "more seem broken, and so few draws cannot tell: 1 (joint)" in verdict(seems)
    assert verdict(replace(seems, draws=5)).endswith("5 draws cannot find these broken, whatever they show: 1 (joint)")


def test_the_verdict_tells_of_failing_gradients():
    told = verdict(replace(top_k_attacks(), flat=2))
    assert told.endswith("; gradients were 0 or not finite at some steps of 2 images")


def test_no_draws_give_less_than_the_least():
    """A label of L that is never hit and ten rivals with an equal share of three hits: the worst that there is."""
    counts = [0, 0, *[30] * 10, *[0] * 68]
    setting, level = Setting(10, 3), 0.001 / 13
    for draws, least in ((100, 2), (500, 0)):
        hits = [count * draws // 100 for count in counts]
        assert judged_size(hits, draws, (0, 1), setting, "in", beta=level)[1] == least
        assert least_at_most(draws, 2, 80, setting, "in", beta=level) <= least
    assert least_at_most(90, 2, 80, setting, "in", beta=level) == 2
    outside, few = ThresholdSetting(0.9), {"beta": level}
    assert least_at_most(20, 2, 80, outside, "in", **few) == 0
    assert least_at_most(20, 2, 80, outside, "out", **few) == 78
    assert least_at_most(900, 2, 80, outside, "out", **few) == 0


def test_a_ceiling_can_be_broken_too():
    attacks = threshold_attacks()
    image = attacks.images[0]
    sure = tuple(replace(found, at_most=found.size) for found in image.reached)
    claimed = {"in": image.proved["in"], "out": {"joint": np.array([0.9, 0.6, 0.5])}}
    assert attacks.broken("joint") == ()
    assert replace(attacks, images=(replace(image, proved=claimed, reached=sure),)).broken("joint") == ("only",)


def described(attacks):
    return [
        (p.id, p.labels, p.reached, {g: {m: r.tolist() for m, r in by.items()} for g, by in p.proved.items()})
        for p in attacks.images
    ]


@pytest.mark.parametrize("case", CASES)
def test_a_folder_reads_as_it_was_written(case, tmp_path):
    attacks = case()
    write_attacks(tmp_path, attacks, certificates_hash="abc", provenance={"seed": 3}, command="multiguard attack x")
    found = read_attacks(tmp_path)
    assert (found.certificates_hash, found.provenance, found.command) == ("abc", {"seed": 3}, "multiguard attack x")
    assert described(found.attacks) == described(attacks)
    for name in (
        "setting",
        "sigma",
        "label_names",
        "labelled",
        "methods",
        "radii",
        "names",
        "beta",
        "draws",
        "failed",
        "flat",
        "plan",
    ):
        assert getattr(found.attacks, name) == getattr(attacks, name), name
    with pytest.raises(InvalidInputError, match="holds an attack already"):
        write_attacks(tmp_path, attacks, certificates_hash="abc", provenance={})
    write_attacks(tmp_path, attacks, certificates_hash="new", provenance={}, force=True)
    assert read_attacks(tmp_path).certificates_hash == "new"


def test_a_damaged_folder_is_refused_by_name(tmp_path):
    with pytest.raises(DataError, match="not an attack folder"):
        read_attacks(tmp_path)
    write_attacks(tmp_path, top_k_attacks(), certificates_hash="abc", provenance={})
    rows, said = (tmp_path / "attack.parquet").read_bytes(), json.loads((tmp_path / "attack.json").read_text())

    def refused(match):
        with pytest.raises(DataError, match=match):
            read_attacks(tmp_path)

    (tmp_path / "attack.parquet").write_bytes(rows[:-9])
    refused("attack.parquet was altered")
    (tmp_path / "attack.parquet").unlink()
    refused("attack.parquet cannot be read")
    (tmp_path / "attack.parquet").write_bytes(rows)
    (tmp_path / "attack.json").write_text(json.dumps({**said, "beta": 0.5}))
    refused("attack.json was altered")
    other = {**said, "version": 99}
    (tmp_path / "attack.json").write_text(json.dumps({**other, "sha256": checksum(other)}))
    refused("version 1")
    (tmp_path / "attack.json").write_text("{")
    refused("attack.json cannot be read")


@pytest.mark.parametrize("case", CASES)
def test_the_figure_comes_in_three_formats_and_the_same_each_time(case, tmp_path):
    first, again = draw_attack(case(), tmp_path / "a"), draw_attack(case(), tmp_path / "b")
    assert [path.name for path in first] == ["attack.png", "attack.svg", "attack.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_the_figure_shows_the_numbers():
    with fixed_style():
        figure = _draw(top_k_attacks())
    curves, falls = figure.axes
    drawn = {line.get_label(): line for line in curves.lines}
    assert set(drawn) == {"certified (joint)", "gradients (PGD)", "random search", "best of all attacks"}
    x, y = drawn["gradients (PGD)"].get_data()
    assert {radius: float(y[np.searchsorted(x, radius)]) for radius in (0.0, 0.49, 0.5, 1.0)} == {
        0.0: 100.0,
        0.49: 100.0,
        0.5: 75.0,
        1.0: 75.0,
    }
    fell, held = falls.collections[1:]
    assert fell.get_offsets().tolist() == [[0.8, 1.0], [0.3, 0.5]], "every point lies above the diagonal"
    assert held.get_offsets().tolist() == []


def test_the_table_rounds_floors_down_and_ceilings_up(tmp_path):
    attacks = top_k_attacks()
    thirds = replace(attacks.images[1], id="third", labels=(2, 1, 3))
    paths = write_attack_table(replace(attacks, images=(thirds,)), tmp_path)
    assert [path.name for path in paths] == ["attack.csv", "attack.md", "attack.tex"]
    text = paths[1].read_text()
    assert "| labels that stay | certified (joint) | 33.3 | 33.3 | 33.3 |" in text
    assert "| labels that stay | gradients (PGD) | 33.4 | 33.4 | 33.4 |" in text
    assert "No certificate was broken: 0 of 1 certified images" in text
    assert "Mean over 1 images (1 without labels left out)" in text
    assert repr(1 / 3) in paths[0].read_text()
