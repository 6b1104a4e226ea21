"""Noise that hides pixels, against an attacker who changes some of them as it likes: anywhere, or in one patch."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.additive import STEP_OF_D, two_digits
from multiguard.certify.arguments import Floats, Ints, is_whole
from multiguard.certify.noise import Noise, SampledNoise, Size, check_radius
from multiguard.errors import InvalidInputError
from multiguard.io.rounding import down_to_digits, plain

# Products of fractions are kept as whole numbers of this part of 1, rounded down.
_BITS = 160
# Images are smaller than this.
_MOST_PIXELS = 10_000_000
_FINE_RADII = 200  # of a default grid
_ROUNDING = 1e-9  # more than a total variation is rounded up by


class _Ablation(Noise):
    """Noises that hide most of an image of one size; the radius counts pixels and is a whole number."""

    whole: ClassVar[bool] = True
    sigma = None
    _measure: ClassVar[str] = (
        "Pixels are counted in the image {where}. All channels of a changed pixel may get any value."
    )
    _total: ClassVar[str]  # the name of what there is in all, of which a part is kept
    _sized: ClassVar[str]  # the images that the noise is for

    def __post_init__(self) -> None:
        total = self._total
        for name in (total, *(each for each in vars(self) if each != total)):
            value, most = getattr(self, name), _MOST_PIXELS if name == total else self.most
            if not is_whole(value) or not 1 <= value <= most:
                upper = f"{_MOST_PIXELS}" if name == total else f"{total} = {most}"
                raise InvalidInputError(
                    f"{name} must be a whole number of at least 1 and at most {upper}, got {value!r}"
                )
            object.__setattr__(self, name, int(value))

    @classmethod
    def parse(cls, value: str, size: Size | None) -> Self:
        """The noise that keeps this part, of a total from the text or from the image size."""
        part, slash, whole = value.partition("/")
        kept, known = int(part), None if size is None else cls._count(*size)
        total = int(whole) if slash else known
        if total is None:
            raise InvalidInputError(
                f"the noise is '{cls.kind}:{kept}', without the number of {cls._total}; expected {cls.kind}:{cls.form}"
            )
        if known not in (None, total):
            raise InvalidInputError(
                f"the noise is '{cls.kind}:{kept}/{total}', but the images have {known} {cls._total}"
            )
        return cls(kept, total)  # type: ignore[call-arg]

    @property
    def most(self) -> int:
        """The largest radius that means anything: all pixels, or the whole width."""
        most: int = getattr(self, self._total)
        return most

    @staticmethod
    @abstractmethod
    def _count(height: int, width: int) -> int:
        """The total of images of this size."""

    def check_shape(self, image: str, shape: Sequence[int]) -> None:
        """Raises `InvalidInputError`, with the name of the image, unless an input of this shape can get the noise."""
        height, width = shape[1:] if len(shape) == 3 else (0, 0)
        if self._count(height, width) != self.most:
            raise InvalidInputError(
                f"{image} has shape {tuple(shape)}, but the noise {self} is for images (channels, height, width) "
                f"of {self.most} {self._sized}; resize it first (--size)"
            )

    def check_float32(self) -> None:
        """Nothing is computed, so every float type will do."""

    @property
    def default_radii(self) -> tuple[float, ...]:
        """The largest at which D is at most 1/8, 1/4, 3/8 and 1/2."""
        reached = self.variation(np.arange(self.most + 1))
        counts = [int(np.searchsorted(reached, each, side="right")) - 1 for each in (1 / 8, 1 / 4, 3 / 8, 1 / 2)]
        return tuple(float(count) for count in sorted({max(count, 1) for count in counts}))

    @property
    def typical_radius(self) -> float:
        """Where D is midway between that of the smallest attack and 1/2."""
        return max(1.0, self._last((float(self.variation(1)) + 0.5) / 2))

    @property
    def default_grid(self) -> tuple[Decimal, Decimal]:
        """Up to where D is 0.6, in at most 200 steps."""
        end = Decimal(max(1, int(self._last(0.6))))
        return Decimal(-(-int(end) // _FINE_RADII)), end

    def _last(self, variation: float) -> float:
        """The largest radius at which D is at most this."""
        return float(np.sum(self.variation(np.arange(1, self.most + 1)) <= variation + _ROUNDING))


@dataclass(frozen=True)
class PixelAblation(_Ablation, SampledNoise):
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
    form: ClassVar[str] = "KEEP/PIXELS"
    _total: ClassVar[str] = "pixels"
    _sized: ClassVar[str] = "pixels (height x width)"
    attacker: ClassVar[str] = "pixels"
    axis_label: ClassVar[str] = "changed pixels"
    dial: ClassVar[str] = "Changed pixels"
    _words: ClassVar[str] = "{0} of {1} pixels kept"
    _copies: ClassVar[str] = "with {0} random pixels of {1}, all others hidden"
    _unit: ClassVar[str] = "R pixels may change, any of {1} and in any way; one is {one} % of the image"
    _allowed: ClassVar[str] = "any {R} pixel{s}"
    _threat: ClassVar[str] = "any change of at most {R} pixel{s}"
    _choice: ClassVar[str] = "with {R} pixels changed"
    _random: ClassVar[str] = "Each image with {R} random pixels of random colours"

    def variation(self, radius: ArrayLike) -> Floats:
        """D, rounded up."""
        table = _ablation_table(self.keep, self.pixels)
        most = np.minimum(check_radius(radius, whole=True), len(table) - 1)
        return table[most.astype(np.int64)]

    def radii(self, r: Floats) -> Floats:
        """The most changed pixels with D at most r; infinite r stay as they are."""
        most = np.searchsorted(_ablation_table(self.keep, self.pixels), r, side="right") - 1.0
        return np.where(np.isfinite(r), most, r)

    @property
    def betting_r(self) -> Floats:
        """The D of 0, 1, 2, ... changed pixels, below 1; where they are close, some of them."""
        table = _ablation_table(self.keep, self.pixels)
        places = np.searchsorted(table, np.arange(0.0, 1.0, STEP_OF_D), side="right") - 1
        return table[np.unique(places)]

    @property
    def _one(self) -> str:  # type: ignore[override]
        return down_to_digits(100 / self.pixels, 2)

    def size_words(self, radius: float, size: Size | None) -> tuple[str, str] | None:
        """Which fraction of the image they are."""
        what = f" of the image: {plain(radius)} of its {self.pixels} pixels, wherever they are, with any colours."
        return f"{two_digits(100 * (radius / self.pixels))} %", what

    @staticmethod
    def _count(height: int, width: int) -> int:
        return height * width


@dataclass(frozen=True)
class BandAblation(_Ablation):
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
    form: ClassVar[str] = "WIDTH/COLUMNS"
    _total: ClassVar[str] = "columns"
    _sized: ClassVar[str] = "columns"
    attacker: ClassVar[str] = "patch"
    axis_label: ClassVar[str] = "patch side (pixels)"
    dial: ClassVar[str] = "Patch side"
    enumerated: ClassVar[bool] = True
    draw_words: ClassVar[str] = "bands"
    _words: ClassVar[str] = "bands of {0} of {1} columns"
    _copies: ClassVar[str] = "with a band of {0} of {1} columns, all others hidden, one copy per band"
    _unit: ClassVar[str] = "R is the side of one patch, anywhere, any content; images are {1} pixels wide"
    _allowed: ClassVar[str] = "any {R} x {R} patch"
    _threat: ClassVar[str] = "any change inside one {R} x {R} patch, wherever it is"
    _choice: ClassVar[str] = "with a {R} x {R} patch"
    _random: ClassVar[str] = "Each image with one {R} x {R} patch of random colours at a random place"

    def met(self, radius: ArrayLike) -> Ints:
        """How many bands a patch of this side meets, wherever it is."""
        side = np.minimum(check_radius(radius, whole=True), self.columns).astype(np.int64)
        return np.where(side > 0, np.minimum(side + self.width - 1, self.columns), 0)

    def variation(self, radius: ArrayLike) -> Floats:
        """D = (m + width - 1) / columns, at most 1, rounded up."""
        met = self.met(radius)
        return np.where((met == 0) | (met == self.columns), met // self.columns, np.nextafter(met / self.columns, 1.0))

    @property
    def positions(self) -> int:
        """One band per column."""
        return self.columns

    def size_words(self, radius: float, size: Size | None) -> tuple[str, str] | None:
        """Which fraction of the image it covers, or of its width where the size is not known."""
        part, whole = radius / self.columns, "width of the image"
        if size is not None:
            part, whole = radius * radius / (size[0] * size[1]), f"area of a {size[1]} x {size[0]} image"
        return f"{two_digits(100 * part)} %", f" of the {whole} is inside such a patch, which may show anything."

    @staticmethod
    def _count(height: int, width: int) -> int:
        return width


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
