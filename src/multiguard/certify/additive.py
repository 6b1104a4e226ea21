"""Noise added to each value, against an attacker whose perturbation has a bounded norm: Gaussian (l2), uniform (l1)."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike

from multiguard.certify.arguments import Floats, check_width
from multiguard.certify.layers import GAUSSIAN_SHIFT, Shift, scale_radii
from multiguard.certify.noise import SampledNoise, Size, check_radius
from multiguard.errors import InvalidInputError
from multiguard.io.rounding import down_to_digits

# Far more than the largest relative error of Phi(Phi^-1(q) + r) that was found.
_MARGIN = 1e-11
# The D at which bets make their claims are about so far apart, or further.
STEP_OF_D = 0.001
_LEVELS = 255  # steps of a colour value from 0 to 1


class _Additive(SampledNoise):
    """Noises of one width against perturbations of bounded norm; _one is that of a pixel from black to white."""

    _typical: ClassVar[float]  # the typical radius for a width of 1
    _farthest: ClassVar[Decimal]  # the end of the default grid for a width of 1
    _meaning: ClassVar[str]  # what the width is

    def __post_init__(self) -> None:
        ((name, width),) = vars(self).items()
        object.__setattr__(self, name, check_width(name, width, self._meaning))

    @classmethod
    def parse(cls, value: str, size: Size | None) -> Self:
        """The noise of this width."""
        return cls(float(value))  # type: ignore[call-arg]

    @property
    def _width(self) -> float:
        """What the noise is multiplied by."""
        return float(*vars(self).values())

    @abstractmethod
    def _each(self, radius: float, values: int) -> float:
        """How far this number of values can move at once."""

    def check_shape(self, image: str, shape: Sequence[int]) -> None:
        """Inputs of every shape can get the noise."""

    def check_float32(self) -> None:
        """Raises `InvalidInputError` unless the noise can be made in float32."""
        least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
        if not least <= self._width <= most:
            name = next(iter(vars(self)))
            raise InvalidInputError(f"{name} must be within float32, {least:.1e} to {most:.1e}, got {self._width!r}")

    @property
    def default_radii(self) -> tuple[float, ...]:
        """Half the typical radius, once, one and a half times and twice."""
        return tuple(self.typical_radius * each for each in (0.5, 1.0, 1.5, 2.0))

    @property
    def typical_radius(self) -> float:
        """Sigma, or where D is 1/4."""
        return self._typical * self._width

    @property
    def default_grid(self) -> tuple[Decimal, Decimal]:
        """Steps of a twentieth of the width up to 3 sigma, or to where D is 0.6."""
        width = Decimal(repr(self._width))
        return width / 20, self._farthest * width

    def size_words(self, radius: float, size: Size | None) -> tuple[str, str] | None:
        """How far all values can move at once, or one black pixel alone; None without an image size."""
        if size is None:
            return None
        height, width = size
        step, share = (
            two_digits(each)
            for each in (_LEVELS * self._each(radius, 3 * height * width), 100 * min(1.0, self._each(radius, 3)))
        )
        one = f"one pixel alone can go {share} % of the way to white"
        what = f" is how far all colour values of a {width} x {height} image can move at once within this R; {one}."
        return f"{step} of {_LEVELS}", what


def two_digits(value: float) -> str:
    """The value with two digits, rounded down."""
    return down_to_digits(value, 2) if value > 0 else "0"


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
    form: ClassVar[str] = "SIGMA"
    attacker: ClassVar[str] = "l2-norm"
    axis_label: ClassVar[str] = "R (l2-norm)"
    shift: ClassVar[Shift] = GAUSSIAN_SHIFT
    betting_r = np.arange(251) / 50
    _typical: ClassVar[float] = 1.0
    _farthest: ClassVar[Decimal] = Decimal(3)
    _meaning: ClassVar[str] = "the standard deviation of the noise"
    _words: ClassVar[str] = "σ = {0}"
    _copies: ClassVar[str] = "with Gaussian noise of σ = {0}"
    _one: ClassVar[str] = "1.73"
    _unit: ClassVar[str] = "R is the l2-norm of the perturbation; a pixel from black to white has {one}"
    _measure: ClassVar[str] = "The ℓ₂-norm is taken over all pixel values on the scale from 0 to 1, {where}."
    _allowed: ClassVar[str] = "l2-norm {R}"
    _threat: ClassVar[str] = "any perturbation of ℓ₂-norm up to {bound}"
    _choice: ClassVar[str] = "with a perturbation of norm {R}"
    _random: ClassVar[str] = (
        "Each image plus one random perturbation of ℓ₂-norm {R}, added to all its pixels at full size"
    )
    _noisy: ClassVar[str] = "with noise, σ = {0}"

    def down(self, q: ArrayLike, radius: ArrayLike) -> Floats:
        """The least probability that an event of probability q keeps: Phi(Phi^-1(q) - radius / sigma)."""
        kept: Floats = scipy.special.ndtr(scipy.special.ndtri(np.asarray(q, dtype=np.float64)) - self._scaled(radius))
        return kept * (1 - _MARGIN)

    def up(self, q: ArrayLike, radius: ArrayLike) -> Floats:
        """The most probability that an event of probability q gets: Phi(Phi^-1(q) + radius / sigma)."""
        reached = scipy.special.ndtr(scipy.special.ndtri(np.asarray(q, dtype=np.float64)) + self._scaled(radius))
        return np.minimum(reached * (1 + _MARGIN), 1.0)

    def radii(self, r: Floats) -> Floats:
        """Sigma r, rounded down."""
        return scale_radii(r, self.sigma)

    def _scaled(self, radius: ArrayLike) -> Floats:
        return np.nextafter(check_radius(radius, whole=False) / self.sigma, np.inf)

    def _each(self, radius: float, values: int) -> float:
        return float(radius / values**0.5)


@dataclass(frozen=True)
class Uniform(_Additive):
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
    form: ClassVar[str] = "HALF_WIDTH"
    attacker: ClassVar[str] = "l1-norm"
    axis_label: ClassVar[str] = "R (l1-norm)"
    sigma = None
    betting_r = np.arange(0.0, 1.0, STEP_OF_D)
    _typical: ClassVar[float] = 0.5
    _farthest: ClassVar[Decimal] = Decimal("1.2")
    _meaning: ClassVar[str] = "half the width of the uniform noise"
    _words: ClassVar[str] = "uniform noise ± {0}"
    _copies: ClassVar[str] = "with uniform noise between −{0} and {0}"
    _one: ClassVar[str] = "3"
    _unit: ClassVar[str] = "R is the l1-norm of the perturbation; a pixel from black to white has {one}"
    _measure: ClassVar[str] = "The ℓ₁-norm is taken over all pixel values on the scale from 0 to 1, {where}."
    _allowed: ClassVar[str] = "l1-norm {R}"
    _threat: ClassVar[str] = "any perturbation of ℓ₁-norm up to {bound}"
    _choice: ClassVar[str] = "with a perturbation of norm {R}"
    _random: ClassVar[str] = (
        "Each image plus one random perturbation of ℓ₁-norm {R}, spent on as few pixels as possible at full size"
    )

    def variation(self, radius: ArrayLike) -> Floats:
        """D = R / (2 b), at most 1, rounded up."""
        given = check_radius(radius, whole=False)
        return np.minimum(np.where(given > 0, np.nextafter(given / (2 * self.half_width), np.inf), 0.0), 1.0)

    def radii(self, r: Floats) -> Floats:
        """2 b r for r = D, rounded down."""
        return scale_radii(r, 2 * self.half_width)

    def _each(self, radius: float, values: int) -> float:
        return radius / values
