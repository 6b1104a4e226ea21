"""Curves say what the radii prove at exactly the radii asked about."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.evaluate.votes_cases import random_votes, set_radii

from multiguard.certify import BandAblation, Gaussian, PixelAblation, TopK, Uniform
from multiguard.errors import InvalidInputError
from multiguard.evaluate import (
    CertifyConfig,
    curves,
    label_scores,
    make_certificates,
    radius_grid,
    set_scores,
)


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    votes = random_votes(tmp_path_factory.mktemp("votes"))
    return make_certificates(CertifyConfig(3, 2, methods=("joint", "jia")), votes)


def test_averagings(certified) -> None:
    """Curves are of every method in both averagings."""
    grid = radius_grid(Gaussian(0.5))
    found = curves(certified, grid)
    assert [(c.method, c.averaging) for c in found] == [
        ("joint", "mean"), ("joint", "pooled"), ("jia", "mean"), ("jia", "pooled"),
    ]  # fmt: skip
    for curve in found:
        expected = set_scores(
            set_radii(certified, curve.method),
            TopK(3, 2),
            num_true=[len(true) for true in certified.labels],
            radius=grid,
            averaging=curve.averaging,
        )
        for name in ("radius", "precision", "recall", "f1"):
            np.testing.assert_array_equal(getattr(curve.scores, name), getattr(expected, name))
        assert (curve.scores.images, curve.scores.without_labels) == (8, 3)
        assert (curve.config, curve.noise, curve.bands) == (certified.config, Gaussian(0.5), None)


def test_label_scores(certified) -> None:
    """Labels are counted one by one."""
    grid = radius_grid(Gaussian(0.5), step=0.1)
    found = label_scores(certified, grid)
    for one in found:
        label = certified.label_names.index(one.label)
        own = [
            radii[labels.index(label)]
            for labels, radii in zip(certified.labels, certified.label_radii, strict=True)
            if label in labels
        ]
        assert one.images == len(own)
        assert one.certified.tolist() == [sum(r >= R for r in own) / len(own) for R in grid]
    present = {label for labels in certified.labels for label in labels}
    assert [one.label for one in found] == [certified.label_names[label] for label in sorted(present)]
    assert any(0 < one.certified[0] < 1 or one.certified[-1] < one.certified[0] for one in found)


@settings(deadline=None)
@given(
    st.floats(1e-6, 1e6),
    st.one_of(st.none(), st.floats(1e-6, 1e6)),
    st.one_of(st.none(), st.integers(1, 400)),
)
def test_grid_floats(sigma, step, count) -> None:
    """Each radius is the float that its text means."""
    to = None if count is None else float(Decimal(repr(step if step else sigma / 20)) * count)
    try:
        grid = radius_grid(Gaussian(sigma), to=to, step=step)
    except InvalidInputError:
        assert (to or 3 * sigma) / (step or sigma / 20) > 99_999
        return
    stride = Decimal(repr(step)) if step else Decimal(repr(sigma)) / 20
    end = Decimal(repr(to)) if to else 3 * Decimal(repr(sigma))
    for index, radius in enumerate(grid.tolist()):
        assert radius == float(str(stride * index))
    assert stride * (len(grid) - 1) <= end < stride * len(grid)


@pytest.mark.parametrize(
    "arguments",
    [
        {"noise": Gaussian(0.5), "step": -1},
        {"noise": Gaussian(0.5), "to": np.inf},
        {"noise": Gaussian(1), "step": 1e-9},
    ],
)
def test_refused_grids(arguments) -> None:
    """Grids that cannot be are refused."""
    with pytest.raises(InvalidInputError):
        radius_grid(**arguments)


@pytest.mark.parametrize("radius", [[], [-0.1], [np.nan], [np.inf], [[0.1]]])
def test_refused_radii(certified, radius) -> None:
    """Radii out of range are refused."""
    with pytest.raises(InvalidInputError, match="radius"):
        curves(certified, radius)
    with pytest.raises(InvalidInputError, match="radius"):
        label_scores(certified, radius)


def test_whole_grids() -> None:
    """Where pixels are counted, radii are 0, 1, 2, ... up to where most draws are the attacker's."""
    for noise in (PixelAblation(45, 1024), BandAblation(4, 32)):
        grid = radius_grid(noise)
        assert grid.tolist() == list(range(len(grid)))
        assert noise.variation(grid[-1]) <= 0.6 < noise.variation(grid[-1] + 1)
    assert radius_grid(BandAblation(4, 32), to=6, step=2).tolist() == [0, 2, 4, 6]
    assert radius_grid(Uniform(0.5)).tolist()[-1] == 0.6
    assert len(radius_grid(PixelAblation(10, 50_000))) <= 202
    with pytest.raises(InvalidInputError, match="must be a whole number"):
        radius_grid(BandAblation(4, 32), step=0.5)
