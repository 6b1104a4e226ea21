"""The figure, the table and the verdict of an attack."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.cbook import STEP_LOOKUP_MAP
from tests.evaluate.attack_cases import threshold_attacks, top_k_attacks

from multiguard.evaluate import attack_curves
from multiguard.report import draw_attack, write_attack_table
from multiguard.report.figures import attack_figure, fixed_style
from multiguard.report.words import verdict


def test_verdict():
    """The verdict counts only what was tested."""
    attacks = top_k_attacks()
    text = "no certificate was broken: 0 of 2 certified images, attacked inside their radius (joint), 0 of 1 (paper)"
    assert verdict(attacks) == text
    nothing = {"in": {"joint": np.array([0.4]), "paper": np.array([-np.inf])}}
    hollow = replace(attacks, images=(replace(attacks.images[1], proved=nothing),))
    assert verdict(hollow) == "no certificate was tested: none of 1 images was attacked inside its radius"


def test_verdict_of_few_draws():
    """The verdict says what seems broken, and what too few draws cannot decide."""
    attacks = top_k_attacks()
    claimed = {"in": {"joint": np.array([0.9, 0.5]), "paper": np.array([0.2, 0.1])}}
    seems = replace(attacks, images=(replace(attacks.images[0], proved=claimed),))
    assert "more seem broken, but there are too few draws to confirm it: 1 (joint)" in verdict(seems)
    assert verdict(replace(seems, draws=5)).endswith("5 draws could not confirm these as broken in any case: 1 (joint)")


@pytest.mark.parametrize("case", [top_k_attacks, threshold_attacks])
def test_figure_files(case, tmp_path):
    """The figure comes in three formats, the same bytes each time."""
    first = draw_attack(case(), tmp_path / "a")
    assert [path.name for path in first] == ["attack.png", "attack.svg", "attack.pdf"]
    if case is top_k_attacks:
        again = draw_attack(case(), tmp_path / "b")
        assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def test_figure_numbers():
    """The figure shows the numbers."""
    with fixed_style():
        figure = attack_figure(top_k_attacks())
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


@pytest.mark.parametrize("case", [top_k_attacks, threshold_attacks])
def test_unknown_area(case):
    """The area of the unknown reaches from the certified staircase to the one of the best attack, at any radius."""
    attacks = case()
    with fixed_style():
        panels = attack_figure(attacks).axes[:-1]
    radius = np.random.default_rng(0).uniform(0, attacks.radii[-1], 500)
    for axes, curve in zip(panels, attack_curves(attacks, radius), strict=True):
        scale = 100 if curve.goal == "in" else 1
        drawn = {line.get_label(): STEP_LOOKUP_MAP[line.get_drawstyle()](*line.get_data()) for line in axes.lines}
        certified = np.interp(radius, *drawn["certified (joint)"])
        reached = np.interp(radius, *drawn.get("best of all attacks", drawn["gradients (PGD)"]))
        proved = scale * curve.certified["joint"]
        assert np.all((certified - proved) * (1 if curve.goal == "in" else -1) <= 1e-9)
        outline, sign = axes.collections[0].get_paths()[0], np.sign(reached - certified)
        margin = 1e-6 * scale
        wide = np.flatnonzero(sign)
        assert len(wide)
        for i in wide:
            ends = (certified[i] - sign[i] * margin, certified[i] + sign[i] * margin)
            ends += (reached[i] - sign[i] * margin, reached[i] + sign[i] * margin)
            assert [outline.contains_point((radius[i], y)) for y in ends] == [False, True, True, False]


def test_table_rounding(tmp_path):
    """The table rounds floors down and ceilings up."""
    attacks = top_k_attacks()
    thirds = replace(attacks.images[1], id="third", labels=(2, 1, 3))
    paths = write_attack_table(replace(attacks, images=(thirds,)), tmp_path)
    assert [path.name for path in paths] == ["attack.csv", "attack.tex"]
    text = paths[1].read_text()
    assert "labels that stay & certified (joint) & 33.3 & 33.3 & 33.3" in text
    assert "labels that stay & gradients (PGD) & 33.4 & 33.4 & 33.4" in text
    assert "No certificate was broken: 0 of 1 certified images" in text
    assert "Mean over 1 images (1 without labels left out)" in text
    assert repr(1 / 3) in paths[0].read_text()
