"""Noise, and the attacker that it proves something about: what a perturbation can do to a probability.

An event that has probability q on noisy copies of the image has at least `down(q, radius)` and at most
`up(q, radius)` on those of every perturbed image that the attacker can make. `down` is convex in q, `up` is concave,
and both are rounded to the safe side. `docs/theory.md` has the proofs.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from multiguard.certify.arguments import check_sigma, is_real, is_whole
from multiguard.certify.arrays import Floats, Ints
from multiguard.certify.layers import scale_radii
from multiguard.certify.shifts import GAUSSIAN_SHIFT, PROBABILITY_SHIFT, Shift
from multiguard.errors import InvalidInputError
from multiguard.io.rounding import plain

# Far more than the largest relative error of Phi(Phi^-1(q) + r) that was found.
_MARGIN = 1e-11
# Products of fractions are kept as whole numbers of this part of 1, rounded down.
_BITS = 160
# Images are smaller than this.
_MOST_PIXELS = 10_000_000
# The D at which bets make their claims are about so far apart, or further.
_STEP_OF_D = 0.001


class _Norm:
    """Noises whose attacker adds a perturbation of bounded norm."""

    attacker: ClassVar[str]
    whole: ClassVar[bool] = False

    def describe(self, radius: float) -> str:
        """What the attacker may do."""
        return f"{self.attacker} {plain(radius)}"


@dataclass(frozen=True)
class Gaussian(_Norm):
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
        return np.nextafter(_check_radius(radius, whole=False) / self.sigma, np.inf)


class _TotalVariation:
    """Noises whose `down` and `up` move a probability by D, the total variation that the attacker can cause."""

    shift: ClassVar[Shift] = PROBABILITY_SHIFT

    def variation(self, radius: ArrayLike) -> Floats:
        """D, rounded up."""
        raise NotImplementedError

    def down(self, q: ArrayLike, radius: ArrayLike) -> Floats:
        """The least probability that an event of probability q keeps: q - D, at least 0."""
        given, far = np.asarray(q, dtype=np.float64), self.variation(radius)
        return np.clip(np.where(far > 0, np.nextafter(given - far, -np.inf), given), 0.0, 1.0)

    def up(self, q: ArrayLike, radius: ArrayLike) -> Floats:
        """The most probability that an event of probability q gets: q + D, at most 1."""
        given, far = np.asarray(q, dtype=np.float64), self.variation(radius)
        return np.clip(np.where(far > 0, np.nextafter(given + far, np.inf), given), 0.0, 1.0)


@dataclass(frozen=True)
class Uniform(_Norm, _TotalVariation):
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
    betting_r: ClassVar[Floats] = np.arange(0.0, 1.0, _STEP_OF_D)

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
        given = _check_radius(radius, whole=False)
        return np.minimum(np.where(given > 0, np.nextafter(given / (2 * self.half_width), np.inf), 0.0), 1.0)

    def radii(self, r: Floats) -> Floats:
        """2 b r for r = D, rounded down."""
        return scale_radii(r, 2 * self.half_width)


@dataclass(frozen=True)
class PixelAblation(_TotalVariation):
    """Keeps this many pixels at random and hides all others; the attacker changes at most m pixels as it likes.

    Attributes:
        keep: h, how many pixel positions stay; all channels of one position stay or go together.
        pixels: N = height x width, the positions. D = 1 - C(N-m, h) / C(N, h), the probability that h positions
            hold one of the m.

    >>> PixelAblation(keep=45, pixels=1024).variation(5).round(4)
    np.float64(0.2016)
    >>> str(PixelAblation(45, 1024)), PixelAblation(45, 1024).describe(20)
    ('pixels:45/1024', 'any 20 pixels')
    """

    keep: int
    pixels: int
    kind: ClassVar[str] = "pixels"
    whole: ClassVar[bool] = True
    attacker: ClassVar[str] = "pixels"
    axis_label: ClassVar[str] = "changed pixels"

    def __post_init__(self) -> None:
        _check_part(self, "keep", "pixels")

    def __str__(self) -> str:
        return f"{self.kind}:{self.keep}/{self.pixels}"

    def describe(self, radius: float) -> str:
        """What the attacker may do."""
        return f"any {plain(radius)} pixel{'' if radius == 1 else 's'}"

    def variation(self, radius: ArrayLike) -> Floats:
        """D, rounded up."""
        table = _ablation_table(self.keep, self.pixels)
        most = np.minimum(_check_radius(radius, whole=True), len(table) - 1)
        return table[most.astype(np.int64)]

    def radii(self, r: Floats) -> Floats:
        """The most changed pixels with D at most r; infinite r stay as they are."""
        most = np.searchsorted(_ablation_table(self.keep, self.pixels), r, side="right") - 1.0
        return np.where(np.isfinite(r), most, r)

    @property
    def betting_r(self) -> Floats:
        """The D of 0, 1, 2, ... changed pixels, below 1; where they are close, some of them."""
        table = _ablation_table(self.keep, self.pixels)
        places = np.searchsorted(table, Uniform.betting_r, side="right") - 1
        return table[np.unique(places)]


@dataclass(frozen=True)
class BandAblation(_TotalVariation):
    """Keeps one band of columns and hides the rest, each position once; the attacker has one square patch of side m.

    Attributes:
        width: How many columns a band has; it is cyclic, so the last columns are next to the first.
        columns: How many columns the image has, and so how many bands there are. A patch meets m + width - 1 of them.

    >>> BandAblation(width=4, columns=32).met(5)
    array(8)
    >>> str(BandAblation(4, 32)), BandAblation(4, 32).describe(5)
    ('band:4/32', 'any 5 x 5 patch')
    """

    width: int
    columns: int
    kind: ClassVar[str] = "band"
    whole: ClassVar[bool] = True
    attacker: ClassVar[str] = "patch"
    axis_label: ClassVar[str] = "patch side (pixels)"

    def __post_init__(self) -> None:
        _check_part(self, "width", "columns")

    def __str__(self) -> str:
        return f"{self.kind}:{self.width}/{self.columns}"

    def describe(self, radius: float) -> str:
        """What the attacker may do."""
        return f"any {plain(radius)} x {plain(radius)} patch"

    def met(self, radius: ArrayLike) -> Ints:
        """How many bands a patch of this side meets, wherever it is."""
        side = np.minimum(_check_radius(radius, whole=True), self.columns).astype(np.int64)
        return np.where(side > 0, np.minimum(side + self.width - 1, self.columns), 0)

    def variation(self, radius: ArrayLike) -> Floats:
        """D = (m + width - 1) / columns, at most 1, rounded up."""
        met = self.met(radius)
        return np.where((met == 0) | (met == self.columns), met // self.columns, np.nextafter(met / self.columns, 1.0))


SampledNoise = Gaussian | Uniform | PixelAblation
Noise = SampledNoise | BandAblation
HIDDEN = -1.0  # the value of a hidden pixel in every channel: none that an image has
NOISES: dict[str, type[Noise]] = {noise.kind: noise for noise in (Gaussian, Uniform, PixelAblation, BandAblation)}


def check_sampled(noise: Noise) -> SampledNoise:
    """The noise, if its draws are a random sample."""
    if isinstance(noise, BandAblation):
        raise InvalidInputError(
            f"the noise {noise} has all {noise.columns} positions of the band and no random draws; only the method "
            "'enumerated' certifies it, from the votes of every position"
        )
    return noise


@cache
def _ablation_table(keep: int, pixels: int) -> Floats:
    """(changed pixels,) D for 0, 1, 2, ... of them, rounded up; the last is 1, as all further ones are."""
    one = 1 << _BITS
    untouched, table = one, [0.0]
    for changed in range(pixels - keep + 1):
        # All changed pixels are hidden: (N-h)/N, times (N-h-1)/(N-1), and so on; each product is rounded down.
        untouched = untouched * (pixels - keep - changed) // (pixels - changed)
        table.append(_up_to_double(one - untouched))
    return np.array(table)


def _up_to_double(numerator: int) -> float:
    """The least double that is at least numerator / 2^_BITS."""
    nearest = math.ldexp(float(numerator), -_BITS)
    exact = int(math.ldexp(nearest, _BITS))
    return nearest if exact >= numerator else math.nextafter(nearest, math.inf)


def _check_part(noise: PixelAblation | BandAblation, part: str, total: str) -> None:
    """Both numbers as plain integers, if 1 <= part <= total."""
    for name in (total, part):
        value, most = getattr(noise, name), getattr(noise, total)
        if not is_whole(value) or not 1 <= value <= (_MOST_PIXELS if name == total else most):
            upper = f" and at most {_MOST_PIXELS}" if name == total else f" and at most {total} = {most}"
            raise InvalidInputError(f"{name} must be a whole number of at least 1{upper}, got {value!r}")
        object.__setattr__(noise, name, int(value))


def _check_radius(radius: ArrayLike, whole: bool) -> Floats:
    """The radius or radii, if none is negative, and for discrete attackers all are whole."""
    given = np.asarray(radius, dtype=np.float64)
    if not np.all((given >= 0) & np.isfinite(given)):
        raise InvalidInputError(f"radius must be finite and not negative, got {radius!r}")
    if whole and not np.all(given == np.floor(given)):
        raise InvalidInputError(f"radius counts pixels and must be a whole number, got {radius!r}")
    return given
