"""What must hold for all votes."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.certify.cases import random_ranked

from multiguard.certify import (
    Gaussian,
    Noise,
    PixelAblation,
    TopK,
    certified_radii_batch,
    certified_size,
)

METHODS = ["joint", "paper", "independent", "jia"]
NOISES = [Gaussian(0.5), PixelAblation(5, 60)]


@st.composite
def votes(draw: st.DrawFn):
    c = draw(st.integers(2, 25))
    k_prime = draw(st.integers(1, min(5, c)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    ranked = random_ranked(
        rng,
        labels=c,
        depth=k_prime,
        draws=draw(st.sampled_from([1, 20, 300])),
        spread=draw(st.sampled_from([0.5, 3.0, 8.0])),
    )
    d = draw(st.integers(1, min(c, 15)))
    popular = np.argsort(-np.bincount(ranked.ravel(), minlength=c))
    labels = popular[:d] if draw(st.booleans()) else rng.choice(c, d, replace=False)
    return {"votes": [ranked], "labels": [labels], "num_labels": c, "rule": TopK(draw(st.integers(1, c)), k_prime)}


def radii_of(case, **options):
    return certified_radii_batch(**{"noise": Gaussian(0.5), "alpha": 0.01, **case, **options})[0].true


@settings(max_examples=30, deadline=None)
@given(votes(), st.sampled_from(METHODS))
def test_shape_and_order(case, method: str) -> None:
    """Radii never rise with the size."""
    radii = radii_of(case, method=method)
    assert radii.shape == (min(len(case["labels"][0]), case["rule"].k),)
    assert np.all(radii[1:] <= radii[:-1])
    assert not np.any(np.isnan(radii))
    assert np.all((radii >= 0) | np.isneginf(radii))
    sizes = certified_size(radii, np.linspace(0, 5, 50))
    assert np.all(np.diff(sizes) <= 0)


@settings(max_examples=30, deadline=None)
@given(votes(), st.sampled_from(METHODS), st.sampled_from(NOISES), st.floats(1e-9, 0.4), st.floats(1.01, 2.4))
def test_larger_alpha(case, method: str, noise: Noise, alpha: float, factor: float) -> None:
    """More alpha never proves less."""
    fewer, more = (radii_of(case, method=method, noise=noise, alpha=each) for each in (alpha, alpha * factor))
    assert np.all(fewer <= more)


@settings(max_examples=20, deadline=None)
@given(votes(), st.sampled_from(METHODS), st.floats(0.01, 50))
def test_sigma(case, method: str, sigma: float) -> None:
    """Radii scale with sigma."""
    np.testing.assert_allclose(
        radii_of(case, method=method, noise=Gaussian(sigma)),
        sigma * radii_of(case, method=method, noise=Gaussian(1.0)),
        rtol=1e-12,
    )


@settings(max_examples=20, deadline=None)
@given(votes(), st.sampled_from(METHODS), st.integers(0, 2**32))
def test_order_invariance(case, method: str, seed: int) -> None:
    """Neither the names of labels nor the order of draws matter."""
    rng = np.random.default_rng(seed)
    new_name = rng.permutation(case["num_labels"])
    renamed = {
        **case,
        "votes": [rng.permutation(new_name[case["votes"][0]], axis=0)],
        "labels": [rng.permutation(new_name[case["labels"][0]])],
    }
    np.testing.assert_array_equal(radii_of(case, method=method), radii_of(renamed, method=method))
