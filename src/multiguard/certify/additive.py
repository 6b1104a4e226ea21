"""Noise added to each value, against an attacker whose perturbation has a bounded norm: Gaussian (l2), uniform (l1)."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from multiguard.certify.arguments import check_sigma, is_real
from multiguard.certify.arrays import Floats
from multiguard.certify.layers import scale_radii
from multiguard.certify.noise_model import (
    FARTHEST,
    HALF,
    VARIATIONS,
    Made,
    NoiseModel,
    Sampler,
    Size,
    TotalVariation,
    check_radius,
)
from multiguard.certify.shifts import GAUSSIAN_SHIFT, Shift
from multiguard.errors import InvalidInputError
from multiguard.io.rounding import down_to_digits, plain

# Far more than the largest relative error of Phi(Phi^-1(q) + r) that was found.
_MARGIN = 1e-11
# The D at which bets make their claims are about so far apart, or further.
STEP_OF_D = 0.001
_LEVELS = 255  # steps of a colour value from 0 to 1


class _Additive(NoiseModel):
    """Noises whose attacker adds a perturbation of bounded norm.

    Attributes:
        symbol: The norm in running text.
        pixel_norm: The norm of one pixel of three channels turned from black to white.
    """

    symbol: ClassVar[str]
    pixel_norm: ClassVar[str]
    _spent: ClassVar[str]

    @property
    @abstractmethod
    def _width(self) -> tuple[str, float]:
        """The name and the value of what the noise is multiplied by."""

    @abstractmethod
    def _each(self, radius: float, values: int) -> float:
        """How far so many values can move at once."""

    def check_shape(self, image: str, shape: Sequence[int]) -> None:
        """Inputs of every shape can get the noise."""

    def check_float32(self) -> None:
        """Raises `InvalidInputError` unless the noise can be made in float32."""
        least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
        name, given = self._width
        if not least <= given <= most:
            raise InvalidInputError(f"{name} must be within float32, {least:.1e} to {most:.1e}, got {given!r}")

    def describe(self, radius: float) -> str:
        """What the attacker may do."""
        return f"{self.attacker} {plain(radius)}"

    def threat_words(self, radius: float | None = None) -> str:
        """What the attacker may do with this radius, or with any R, after "under"."""
        return f"any perturbation of {self.symbol} up to {'R' if radius is None else f'R = {plain(radius)}'}"

    @property
    def unit_words(self) -> str:
        """What R measures and how large that is, in one line."""
        return f"R is the {self.attacker} of the perturbation; a pixel from black to white has {self.pixel_norm}"

    @property
    def measure_words(self) -> str:
        """Which pixels R is about, as a sentence."""
        where = "at the resolution of the model, before any normalisation"
        return f"The {self.symbol} is taken over all pixel values on the scale from 0 to 1, {where}."

    def size_words(self, radius: float, size: Size | None) -> tuple[str, str] | None:
        """How far all values can move at once, and what one pixel alone takes; None without an image size."""
        if size is None:
            return None
        height, width = size
        step = _LEVELS * self._each(radius, 3 * height * width)
        one = f"one pixel from black to white alone takes {self.pixel_norm}"
        what = f" is how far all colour values of a {width} x {height} image can move at once within this R; {one}."
        return f"{down_to_digits(step, 2) if step > 0 else '0'} of {_LEVELS}", what

    def _random_words(self, radius: float) -> tuple[str, str]:
        size = plain(radius)
        what = f"Each image plus one random perturbation of {self.symbol} {size}, {self._spent} at full size"
        return f"with a perturbation of norm {size}", what


@dataclass(frozen=True)
class Gaussian(_Additive):
    """N(0, sigma^2) added to each coordinate; the attacker adds any perturbation of l2-norm at most the radius.

    Attributes:
        sigma: The standard deviation, in the unit of the input (pixels in [0, 1]) and of the radius.

    >>> Gaussian(0.5).down(0.9, 0.5).round(4)
    np.float64(0.6109)
    >>> str(Gaussian(0.5)), Gaussian(0.5).describe(0.25)
    ('gaussian:0.5', 'l2-norm 0.25')
    """

    sigma: float
    kind: ClassVar[str] = "gaussian"
    attacker: ClassVar[str] = "l2-norm"
    axis_label: ClassVar[str] = "R (l2-norm)"
    symbol: ClassVar[str] = "ℓ₂-norm"
    pixel_norm: ClassVar[str] = "1.73"
    _spent: ClassVar[str] = "added to all its pixels"
    shift: ClassVar[Shift] = GAUSSIAN_SHIFT
    betting_r: ClassVar[Floats] = np.arange(251) / 50

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", check_sigma(self.sigma))

    def __str__(self) -> str:
        return f"{self.kind}:{plain(self.sigma)}"

    def down(self, q: ArrayLike, radius: ArrayLike) -> Floats:
        """The least probability that an event of probability q keeps: Phi(Phi^-1(q) - radius / sigma)."""
        kept: Floats = ndtr(ndtri(np.asarray(q, dtype=np.float64)) - self._scaled(radius))
        return kept * (1 - _MARGIN)

    def up(self, q: ArrayLike, radius: ArrayLike) -> Floats:
        """The most probability that an event of probability q gets: Phi(Phi^-1(q) + radius / sigma)."""
        reached = ndtr(ndtri(np.asarray(q, dtype=np.float64)) + self._scaled(radius))
        return np.minimum(reached * (1 + _MARGIN), 1.0)

    def radii(self, r: Floats) -> Floats:
        """Sigma r, rounded down."""
        return scale_radii(r, self.sigma)

    def _scaled(self, radius: ArrayLike) -> Floats:
        return np.nextafter(check_radius(radius, whole=False) / self.sigma, np.inf)

    def sample(self, sampler: Sampler[Made]) -> Made:
        """What the sampler makes of this noise."""
        return sampler.gaussian(self.sigma)

    def scaled(self, part: float) -> "Gaussian":
        """The noise of this fraction of sigma."""
        return Gaussian(self.sigma * part)

    @property
    def default_radii(self) -> tuple[float, ...]:
        """Half of sigma, sigma, one and a half and two."""
        return tuple(self.sigma * each for each in (0.5, 1.0, 1.5, 2.0))

    @property
    def typical_radius(self) -> float:
        """Sigma."""
        return self.sigma

    @property
    def default_grid(self) -> tuple[Decimal, Decimal]:
        """Steps of sigma / 20 up to 3 sigma."""
        sigma = Decimal(repr(self.sigma))
        return sigma / 20, 3 * sigma

    @property
    def words(self) -> str:
        """The noise as one parameter among others."""
        return f"σ = {plain(self.sigma)}"

    @property
    def copy_words(self) -> str:
        """What the base classifier sees, after "copies of the image"."""
        return f"with Gaussian noise of σ = {plain(self.sigma)}"

    @property
    def _width(self) -> tuple[str, float]:
        return "sigma", self.sigma

    @property
    def _noisy_words(self) -> str:
        return f"with noise, {self.words}"

    def _each(self, radius: float, values: int) -> float:
        return float(radius / values**0.5)


@dataclass(frozen=True)
class Uniform(_Additive, TotalVariation):
    """U(-half_width, half_width) added to each coordinate; the attacker has any perturbation of l1-norm at most R.

    Attributes:
        half_width: b, in the unit of the input (pixels in [0, 1]) and of the radius. D = R / (2 b).

    >>> Uniform(0.5).down(0.9, 0.25).round(4)
    np.float64(0.65)
    >>> str(Uniform(0.5)), Uniform(0.5).describe(1.5)
    ('uniform:0.5', 'l1-norm 1.5')
    """

    half_width: float
    kind: ClassVar[str] = "uniform"
    attacker: ClassVar[str] = "l1-norm"
    axis_label: ClassVar[str] = "R (l1-norm)"
    symbol: ClassVar[str] = "ℓ₁-norm"
    pixel_norm: ClassVar[str] = "3"
    sigma: ClassVar[None] = None
    _spent: ClassVar[str] = "spent on as few pixels as possible"
    betting_r: ClassVar[Floats] = np.arange(0.0, 1.0, STEP_OF_D)

    def __post_init__(self) -> None:
        if not (is_real(self.half_width) and math.isfinite(2 * self.half_width) and self.half_width > 0):
            raise InvalidInputError(
                f"half_width is half the width of the uniform noise, positive and finite, got {self.half_width!r}"
            )
        object.__setattr__(self, "half_width", float(self.half_width))

    def __str__(self) -> str:
        return f"{self.kind}:{plain(self.half_width)}"

    def variation(self, radius: ArrayLike) -> Floats:
        """D = R / (2 b), at most 1, rounded up."""
        given = check_radius(radius, whole=False)
        return np.minimum(np.where(given > 0, np.nextafter(given / (2 * self.half_width), np.inf), 0.0), 1.0)

    def radii(self, r: Floats) -> Floats:
        """2 b r for r = D, rounded down."""
        return scale_radii(r, 2 * self.half_width)

    def sample(self, sampler: Sampler[Made]) -> Made:
        """What the sampler makes of this noise."""
        return sampler.uniform(self.half_width)

    def scaled(self, part: float) -> "Uniform":
        """The noise of this fraction of the half width."""
        return Uniform(self.half_width * part)

    @property
    def default_radii(self) -> tuple[float, ...]:
        """Those at which D is 1/8, 1/4, 3/8 and 1/2."""
        return tuple(2 * self.half_width * each for each in VARIATIONS)

    @property
    def typical_radius(self) -> float:
        """Half of the half width."""
        return float(HALF) * self.half_width

    @property
    def default_grid(self) -> tuple[Decimal, Decimal]:
        """Steps of half_width / 20 up to where D is 0.6."""
        width = Decimal(repr(self.half_width))
        return width / 20, 2 * FARTHEST * width

    @property
    def words(self) -> str:
        """The noise as one parameter among others."""
        return f"uniform noise ± {plain(self.half_width)}"

    @property
    def copy_words(self) -> str:
        """What the base classifier sees, after "copies of the image"."""
        return f"with uniform noise between −{plain(self.half_width)} and {plain(self.half_width)}"

    @property
    def _width(self) -> tuple[str, float]:
        return "half_width", self.half_width

    def _each(self, radius: float, values: int) -> float:
        return radius / values
