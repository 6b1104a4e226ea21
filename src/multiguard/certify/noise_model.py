"""What every noise says of itself: what its attacker may do, how draws are made, and the words for people.

An event that has probability q on noisy copies of the image has at least `down(q, radius)` and at most
`up(q, radius)` on those of every perturbed image that the attacker can make. `down` is convex in q, `up` is concave,
and both are rounded to the safe side. `docs/theory.md` has the proofs.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from typing import ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.arrays import Floats
from multiguard.certify.layers import PROBABILITY_SHIFT, Shift
from multiguard.errors import InvalidInputError
from multiguard.io.rounding import plain

Made_co = TypeVar("Made_co", covariant=True)
Made = TypeVar("Made")
Size = tuple[int, int]  # height and width
# Total variations that few certificates reach: the first bounds a typical radius, the second ends a default grid.
HALF, FARTHEST = Decimal("0.5"), Decimal("0.6")
VARIATIONS = (1 / 8, 1 / 4, 3 / 8, 1 / 2)  # that draws should be able to prove
_WHERE = "at the resolution of the model, before any normalisation"


class Sampler(Protocol[Made_co]):
    """Something that makes noise, with NumPy or with torch; `NoiseModel.sample` calls the one method that fits."""

    def gaussian(self, sigma: float) -> Made_co:
        """N(0, sigma^2), added to each value."""

    def uniform(self, half_width: float) -> Made_co:
        """U(-half_width, half_width), added to each value."""

    def pixels(self, keep: int, pixels: int) -> Made_co:
        """So many of the pixels at random, all others hidden."""

    def band(self, width: int, columns: int) -> Made_co:
        """The band of so many columns that the draw names, all others hidden."""


class NoiseModel(ABC):
    """A noise and the attacker that it proves something about.

    Attributes:
        kind: The word before the colon in its text form.
        attacker: What a radius measures: "l2-norm", "l1-norm", "pixels" or "patch".
        axis_label: The radius on the axis of a figure.
        dial: The radius on a slider.
        whole: Whether the radius is a whole number, and pixels are hidden, not added to (no clamp then).
        enumerated: Whether every draw there is takes part, so that nothing is random and alpha has no meaning.
        draw_words: What the noisy copies are called: "draws" or "bands".
        shift: How a perturbation moves probabilities.
    """

    kind: ClassVar[str]
    attacker: ClassVar[str]
    axis_label: ClassVar[str]
    dial: ClassVar[str] = "Radius"
    whole: ClassVar[bool] = False
    enumerated: ClassVar[bool] = False
    draw_words: ClassVar[str] = "draws"
    shift: ClassVar[Shift]
    # Templates of the words below; {0} and {1} are the numbers of the noise, {R} is the radius.
    _words: ClassVar[str]
    _copies: ClassVar[str]
    _unit: ClassVar[str]
    _measure: ClassVar[tuple[str, str]]
    _allowed: ClassVar[str]
    _threat: ClassVar[str]
    _random: ClassVar[tuple[str, str]]
    _noisy: ClassVar[str] = "as the classifier sees them"
    _one: ClassVar[str] = ""

    @property
    def positions(self) -> int | None:
        """How many draws there are if all are enumerated; None where there is no end of them."""
        return None

    @abstractmethod
    def sample(self, sampler: Sampler[Made]) -> Made:
        """What the sampler makes of this noise."""

    @abstractmethod
    def down(self, q: ArrayLike, radius: ArrayLike) -> Floats:
        """The least probability that an event of probability q keeps."""

    @abstractmethod
    def up(self, q: ArrayLike, radius: ArrayLike) -> Floats:
        """The most probability that an event of probability q gets."""

    @abstractmethod
    def check_shape(self, image: str, shape: Sequence[int]) -> None:
        """Raises `InvalidInputError`, with the name of the image, unless an input of this shape can get the noise."""

    def check_draws(self, first_draw: int, draws: int) -> None:
        """Raises `InvalidInputError` for draws beyond those that are enumerated."""
        if self.positions is not None and first_draw + draws > self.positions:
            raise InvalidInputError(
                f"draws up to {first_draw + draws} of the noise {self}, which has {self.positions}, one per "
                "band; leave out the number of draws"
            )

    @abstractmethod
    def check_float32(self) -> None:
        """Raises `InvalidInputError` unless the noise can be made in float32."""

    @property
    @abstractmethod
    def default_radii(self) -> tuple[float, ...]:
        """Four radii, or fewer, that draws should be able to prove where nobody names others."""

    @property
    @abstractmethod
    def typical_radius(self) -> float:
        """A radius to speak of first: sigma, or one in the middle of what can be certified."""

    @property
    @abstractmethod
    def default_grid(self) -> tuple[Decimal, Decimal]:
        """The step and the end of a grid of radii where nobody names others."""

    def __str__(self) -> str:
        return f"{self.kind}:{'/'.join(self._numbers)}"

    @property
    def words(self) -> str:
        """The noise as one parameter among others."""
        return self._words.format(*self._numbers)

    @property
    def copy_words(self) -> str:
        """What the base classifier sees, after "copies of the image"."""
        return self._copies.format(*self._numbers)

    @property
    def unit_words(self) -> str:
        """What R measures and how large that is, in one line."""
        return self._unit.format(*self._numbers, one=self._one)

    @property
    def measure_words(self) -> str:
        """Which pixels R is about, as a sentence."""
        return f"{self._measure[0]} {_WHERE}{self._measure[1]}"

    def describe(self, radius: float) -> str:
        """What the attacker may do, in a few letters."""
        return _filled(self._allowed, radius)

    def threat_words(self, radius: float | None = None) -> str:
        """What the attacker may do with this radius, or with any R, after "under"."""
        return _filled(self._threat, radius)

    def radius_words(self, radius: float) -> str:
        """The radius with its unit."""
        return f"R = {plain(radius)} ({self.describe(radius) if self.whole else self.attacker})"

    @abstractmethod
    def size_words(self, radius: float, size: Size | None) -> tuple[str, str] | None:
        """How large that is: a number, and what it is of; None where that depends on an image size not known."""

    def look_words(self, radius: float) -> dict[str, tuple[str, str]]:
        """What the illustrations of a page show, of a perturbation and of the noise: a choice, and a sentence."""
        choice, what = (_filled(each, radius) for each in self._random)
        worst = (
            "A certificate covers every perturbation up to its radius, also the worst one; a random one is far from it."
        )
        cut = "Hidden pixels are grey here." if self.whole else "Values outside the range of pixels are cut off here."
        seen = f"One of the copies {self.copy_words}, as the classifier saw them. {cut}"
        noisy = self._noisy.format(*self._numbers)
        return {"perturbed": (choice, f"{what}. {worst}"), "noisy": (noisy, seen)}

    @property
    def _numbers(self) -> tuple[str, ...]:
        """The numbers of the noise as text, for `{0}` and `{1}` of the templates."""
        return tuple(plain(number) for number in vars(self).values())


def _filled(template: str, radius: float | None) -> str:
    """The template with the radius in place of {R}, or of {bound} with its letter, and {s} for a plural."""
    size = "R" if radius is None else plain(radius)
    return template.format(R=size, bound=size if radius is None else f"R = {size}", s="" if radius == 1 else "s")


class TotalVariation(NoiseModel):
    """Noises whose `down` and `up` move a probability by D, the total variation that the attacker can cause."""

    shift: ClassVar[Shift] = PROBABILITY_SHIFT

    @abstractmethod
    def variation(self, radius: ArrayLike) -> Floats:
        """D, rounded up."""

    def down(self, q: ArrayLike, radius: ArrayLike) -> Floats:
        """The least probability that an event of probability q keeps: q - D, at least 0."""
        given, far = np.asarray(q, dtype=np.float64), self.variation(radius)
        return np.clip(np.where(far > 0, np.nextafter(given - far, -np.inf), given), 0.0, 1.0)

    def up(self, q: ArrayLike, radius: ArrayLike) -> Floats:
        """The most probability that an event of probability q gets: q + D, at most 1."""
        given, far = np.asarray(q, dtype=np.float64), self.variation(radius)
        return np.clip(np.where(far > 0, np.nextafter(given + far, np.inf), given), 0.0, 1.0)


def check_radius(radius: ArrayLike, whole: bool) -> Floats:
    """The radius or radii, if none is negative, and for discrete attackers all are whole."""
    given = np.asarray(radius, dtype=np.float64)
    if not np.all((given >= 0) & np.isfinite(given)):
        raise InvalidInputError(f"radius must be finite and not negative, got {radius!r}")
    if whole and not np.all(given == np.floor(given)):
        raise InvalidInputError(f"radius counts pixels and must be a whole number, got {radius!r}")
    return given
