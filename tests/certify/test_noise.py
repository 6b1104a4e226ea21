"""The noises: `down` and `up` against exact arithmetic and sampling, their text form, and what they refuse."""

from fractions import Fraction
from math import comb, ldexp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from multiguard.certify import BandAblation, Gaussian, PixelAblation, Uniform, parse_noise, resolve_noise
from multiguard.certify.noise import Noise
from multiguard.errors import InvalidInputError

NOISES: list[Noise] = [Gaussian(0.5), Uniform(0.3), PixelAblation(3, 20), BandAblation(2, 12)]
Q = np.linspace(0, 1, 101)


@given(keep=st.integers(1, 30), hidden=st.integers(0, 30), changed=st.integers(0, 70))
def test_pixel_variation(keep: int, hidden: int, changed: int) -> None:
    """D of m pixels is 1 - C(N-m, h)/C(N, h), never below it, and the next double at most."""
    pixels = keep + hidden
    exact = 1 - Fraction(comb(max(0, pixels - changed), keep), comb(pixels, keep))
    found = float(PixelAblation(keep, pixels).variation(changed))
    assert exact <= Fraction(found) <= exact * (1 + Fraction(ldexp(1, -51)))


@given(radius=st.floats(0, 10), half_width=st.floats(1e-3, 10))
def test_uniform_variation(radius: float, half_width: float) -> None:
    """D of an l1-norm R is R / (2b), never below it and hardly above it."""
    exact = min(Fraction(1), Fraction(radius) / (2 * Fraction(half_width)))
    found = Fraction(float(Uniform(half_width).variation(radius)))
    assert exact <= found <= exact * (1 + Fraction(ldexp(1, -51))) + Fraction(ldexp(1, -1073))


@given(width=st.integers(1, 6), more=st.integers(0, 6), side=st.integers(0, 15))
def test_bands_met(width: int, more: int, side: int) -> None:
    """A patch meets as many bands as there are start columns whose band shares a column with it."""
    columns = width + more
    noise, patch = BandAblation(width, columns), set(range(min(side, columns)))
    bands = [{(start + i) % columns for i in range(width)} for start in range(columns)]
    met = sum(bool(band & patch) for band in bands)
    assert noise.met(side) == met
    assert Fraction(float(noise.variation(side))) >= Fraction(met, columns)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_shape(noise: Noise) -> None:
    """`down` is convex and `up` concave in q; both rise in q, and a larger radius moves them apart."""
    previous = Q, Q
    for radius in (0, 1, 2):
        down, up = noise.down(Q, radius), noise.up(Q, radius)
        assert np.all(np.diff(down) >= 0)
        assert np.all(np.diff(up) >= 0)
        assert np.all(np.diff(down, 2) >= -1e-12)
        assert np.all(np.diff(up, 2) <= 1e-12)
        assert np.all((down >= 0) & (down <= previous[0] + 1e-12))
        assert np.all((up <= 1) & (up >= previous[1] - 1e-12))
        previous = down, up
    np.testing.assert_allclose(noise.down(Q, 0), Q, atol=1e-10)
    np.testing.assert_allclose(noise.up(Q, 0), Q, atol=1e-10)


def test_gaussian_value() -> None:
    """The Neyman-Pearson bound of Gaussian noise."""
    np.testing.assert_allclose(Gaussian(0.5).down(Q, 0.3), norm.cdf(norm.ppf(Q) - 0.6), rtol=1e-9)
    np.testing.assert_allclose(Gaussian(0.5).up(Q, 0.3), norm.cdf(norm.ppf(Q) + 0.6), rtol=1e-9)


@pytest.mark.parametrize("q", [0.0, 0.1, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("noise", [Uniform(0.3), PixelAblation(3, 20), BandAblation(3, 7)], ids=str)
def test_safe_side(noise: Uniform | PixelAblation | BandAblation, q: float) -> None:
    """As exact fractions, down(q) <= q - D and up(q) >= q + D, within [0, 1]."""
    for radius in (0, 1, 2, 5):
        far = Fraction(float(noise.variation(radius)))
        assert Fraction(float(noise.down(q, radius))) <= max(0, Fraction(q) - far)
        assert Fraction(float(noise.up(q, radius))) >= min(1, Fraction(q) + far)


@pytest.mark.parametrize("noise", [*NOISES, Gaussian(1), Uniform(1e-5), Gaussian(0.1 + 0.2)], ids=str)
def test_text(noise: Noise) -> None:
    """The text form reads back as the same noise."""
    assert parse_noise(str(noise)) == noise
    assert len({noise, parse_noise(str(noise))}) == 1


def test_known_text() -> None:
    """The text forms, with and without what the image size tells."""
    texts = ["gaussian:0.5", "uniform:0.5", "pixels:45/1024", "band:4/32"]
    assert [str(parse_noise(text)) for text in texts] == texts
    assert parse_noise("pixels:45", (16, 64)) == PixelAblation(45, 1024)
    assert parse_noise("band:4", (16, 64)) == BandAblation(4, 64)
    assert parse_noise(" gaussian:1 ", (16, 64)) == Gaussian(1.0)


def test_descriptions() -> None:
    """What an attacker may do, in words; a radius is never shortened to a larger one."""
    assert Gaussian(0.5).describe(0.5) == "l2-norm 0.5"
    assert Uniform(0.5).describe(1.0) == "l1-norm 1"
    assert Uniform(0.5).describe(np.float64(0.1234567891)) == "l1-norm 0.1234567891"
    assert [PixelAblation(45, 1024).describe(m) for m in (1, 20.0)] == ["any 1 pixel", "any 20 pixels"]
    assert BandAblation(4, 32).describe(3) == "any 3 x 3 patch"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gauss:0.5", "did you mean 'gaussian'"),
        ("gaussian", "expected gaussian:SIGMA"),
        ("gaussian:-1", "sigma is the standard deviation"),
        ("uniform:0", "half_width is half the width"),
        ("uniform:wide", "expected gaussian:SIGMA"),
        ("pixels:45", "without the number of pixels"),
        ("band:4.5/32", "expected gaussian:SIGMA"),
        ("band:33/32", "width must be a whole number of at least 1 and at most columns = 32"),
        ("pixels:1/99999999999", "pixels must be a whole number of at least 1 and at most 10000000"),
    ],
)
def test_refused_text(text: str, message: str) -> None:
    """A text that is no noise is refused with the form it should have."""
    with pytest.raises(InvalidInputError, match=message):
        parse_noise(text)


def test_other_size() -> None:
    """A number of pixels or columns that the images do not have is refused."""
    with pytest.raises(InvalidInputError, match="but the images have 64 columns"):
        parse_noise("band:4/32", (32, 64))


@pytest.mark.parametrize("radius", [-1, float("nan"), float("inf"), 0.5])
def test_refused_radius(radius: float) -> None:
    """A radius is finite and not negative, and whole where it counts pixels."""
    with pytest.raises(InvalidInputError, match="radius"):
        PixelAblation(3, 20).down(0.5, radius)


def test_resolve() -> None:
    """Exactly one of sigma and noise."""
    assert resolve_noise(0.5, None) == Gaussian(0.5)
    assert resolve_noise(None, Uniform(1)) == Uniform(1.0)
    for sigma, noise in ((None, None), (0.5, Gaussian(0.5)), (None, "uniform:1")):
        with pytest.raises(InvalidInputError, match=r"exactly one of sigma and noise|parse_noise reads"):
            resolve_noise(sigma, noise)  # type: ignore[arg-type]


def test_shapes() -> None:
    """An ablation is for images of one size, other noises for every input."""
    for noise in NOISES:
        noise.check_shape("this image", (3, 5, 4) if noise.whole and not noise.enumerated else (3, 7, 12))
    for noise, expected in ((NOISES[2], r"20 pixels \(height x width\)"), (NOISES[3], "12 columns")):
        for shape in ((3, 7, 11), (84,)):
            with pytest.raises(InvalidInputError, match=f"this image has shape .* of {expected}"):
                noise.check_shape("this image", shape)


def test_positions() -> None:
    """Only bands have an end."""
    assert [noise.positions for noise in NOISES] == [None, None, None, 12]
    assert [noise.enumerated for noise in NOISES] == [False, False, False, True]
    for noise in NOISES:
        noise.check_draws(4, 8)
    with pytest.raises(InvalidInputError, match="draws up to 13 of the noise band:2/12, which has 12"):
        NOISES[3].check_draws(5, 8)


@pytest.mark.parametrize("noise", [Gaussian(1e-39), Uniform(1e39)], ids=str)
def test_float32(noise: Gaussian | Uniform) -> None:
    """A width that float32 does not hold is refused."""
    with pytest.raises(InvalidInputError, match="must be within float32"):
        noise.check_float32()


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_first_radii(noise: Noise) -> None:
    """The default radii lie on the default grid, and rise."""
    step, end = noise.default_grid
    radii = noise.default_radii
    assert list(radii) == sorted(set(radii))
    assert 0 < step <= noise.typical_radius <= end
    assert 0 < radii[0] <= radii[-1] <= end
    assert not noise.whole or all(radius == int(radius) for radius in (*radii, noise.typical_radius))
