"""What every noise says of itself: what its attacker may do, how draws are made, its text form, and words for people.

An event that has probability q on noisy copies of the image has at least `down(q, radius)` and at most
`up(q, radius)` on copies of every perturbed image that the attacker can make. `down` is convex in q, `up` is concave,
and both are rounded to the safe side. `docs/theory.md` has the proofs. A new noise is a file like `additive.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from multiguard.certify.arguments import Floats, Ints
from multiguard.certify.layers import PROBABILITY_SHIFT, Shift
from multiguard.errors import InvalidInputError
from multiguard.io.names import unknown_name
from multiguard.io.rounding import plain

Made_co = TypeVar("Made_co", covariant=True)
Made = TypeVar("Made")
Size = tuple[int, int]  # height and width
NOISES: "dict[str, type[Noise]]" = {}  # by kind; a noise is entered where its class is made
HIDDEN = -1.0  # the value of a hidden pixel in every channel: none that an image has
NO_NOISE = "none"  # what records say of training without noise
_ANY_SIZE = (1 << 11, 1 << 11)  # stands for that of the images until it is known
_WORST = "A certificate covers every perturbation up to its radius, also the worst one; a random one is far from it."


class Sampler(Protocol[Made_co]):
    """Something that makes noise, with NumPy or with torch: the method of a kind takes the numbers of the noise."""

    def gaussian(self, sigma: float) -> Made_co:
        """N(0, sigma^2), added to each value."""

    def uniform(self, half_width: float) -> Made_co:
        """U(-half_width, half_width), added to each value."""

    def pixels(self, keep: int, pixels: int) -> Made_co:
        """This many of the pixels at random, all others hidden."""

    def band(self, width: int, columns: int) -> Made_co:
        """The band of this number of columns that the draw names, all others hidden."""


class Noise(ABC):
    """A noise and the attacker that it proves something about."""

    kind: ClassVar[str]  # its text form is "kind:form"
    form: ClassVar[str]  # the names of its numbers
    attacker: ClassVar[str]  # what a radius measures: "l2-norm", "l1-norm", "pixels" or "patch"
    axis_label: ClassVar[str]  # the radius on the axis of a figure
    dial: ClassVar[str] = "Radius"  # the radius on a slider
    whole: ClassVar[bool] = False  # whether the radius is a whole number, and pixels are hidden, not added to
    enumerated: ClassVar[bool] = False  # whether every draw there is takes part, so that nothing is random
    draw_words: ClassVar[str] = "draws"  # what the noisy copies are called
    shift: ClassVar[Shift] = PROBABILITY_SHIFT  # how a perturbation moves probabilities
    sigma: float | None  # the standard deviation of Gaussian noise, None for others
    # Templates of the words below; {0} and {1} are the numbers of the noise, {R} is the radius.
    _words: ClassVar[str]
    _copies: ClassVar[str]
    _unit: ClassVar[str]
    _measure: ClassVar[str]
    _allowed: ClassVar[str]
    _threat: ClassVar[str]
    _choice: ClassVar[str]
    _random: ClassVar[str]
    _noisy: ClassVar[str] = "as the classifier sees them"
    _one: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            NOISES[cls.kind] = cls

    @classmethod
    @abstractmethod
    def parse(cls, value: str, size: Size | None) -> Self:
        """The noise of what comes after the colon, for images of this size if it is known."""

    @property
    def positions(self) -> int | None:
        """How many draws there are if all are enumerated; None where there is no end of them."""
        return None

    def sample(self, sampler: Sampler[Made]) -> Made:
        """What the sampler makes of this noise."""
        return getattr(sampler, self.kind)(*vars(self).values())  # type: ignore[no-any-return]

    def variation(self, radius: ArrayLike) -> Floats:
        """D, the total variation that the attacker can cause, rounded up."""
        raise NotImplementedError

    def met(self, radius: ArrayLike) -> Ints:
        """How many of the enumerated draws the attacker can reach."""
        raise NotImplementedError

    def down(self, q: ArrayLike, radius: ArrayLike) -> Floats:
        """The least probability that an event of probability q keeps: q - D, at least 0."""
        given, far = np.asarray(q, dtype=np.float64), self.variation(radius)
        return np.clip(np.where(far > 0, np.nextafter(given - far, -np.inf), given), 0.0, 1.0)

    def up(self, q: ArrayLike, radius: ArrayLike) -> Floats:
        """The most probability that an event of probability q gets: q + D, at most 1."""
        given, far = np.asarray(q, dtype=np.float64), self.variation(radius)
        return np.clip(np.where(far > 0, np.nextafter(given + far, np.inf), given), 0.0, 1.0)

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
        """Four radii, or fewer, that draws should be able to prove; the default."""

    @property
    @abstractmethod
    def typical_radius(self) -> float:
        """A radius to speak of first: sigma, or one in the middle of what can be certified."""

    @property
    @abstractmethod
    def default_grid(self) -> tuple[Decimal, Decimal]:
        """The step and the end of the default grid of radii."""

    def _filled(self, template: str, radius: float | None = None) -> str:
        """The template with the numbers, and the radius in place of {R}, or of {bound} with its letter."""
        numbers, size = (plain(number) for number in vars(self).values()), "R" if radius is None else plain(radius)
        bound, s = size if radius is None else f"R = {size}", "" if radius == 1 else "s"
        return template.format(*numbers, one=self._one, R=size, bound=bound, s=s)

    def __str__(self) -> str:
        return f"{self.kind}:{'/'.join(plain(number) for number in vars(self).values())}"

    @property
    def words(self) -> str:
        """The noise as one parameter among others."""
        return self._filled(self._words)

    @property
    def copy_words(self) -> str:
        """What the base classifier sees, after "copies of the image"."""
        return self._filled(self._copies)

    @property
    def unit_words(self) -> str:
        """What R measures and how large that is, in one line."""
        return self._filled(self._unit)

    @property
    def measure_words(self) -> str:
        """Which pixels R is about, as a sentence."""
        return self._measure.format(where="at the resolution of the model, before any normalisation")

    def describe(self, radius: float) -> str:
        """What the attacker may do, in a few letters."""
        return self._filled(self._allowed, radius)

    def threat_words(self, radius: float | None = None) -> str:
        """What the attacker may do with this radius, or with any R, after "under"."""
        return self._filled(self._threat, radius)

    def radius_words(self, radius: float) -> str:
        """The radius with its unit."""
        return f"R = {plain(radius)} ({self.describe(radius) if self.whole else self.attacker})"

    @abstractmethod
    def size_words(self, radius: float, size: Size | None) -> tuple[str, str] | None:
        """How large that is: a number, and what it is of; None where that depends on an image size not known."""

    def look_words(self, radius: float) -> dict[str, tuple[str, str]]:
        """What the illustrations of a page show, of a perturbation and of the noise: a choice, and a sentence."""
        cut = "Hidden pixels are grey here." if self.whole else "Values outside the range of pixels are cut off here."
        seen = f"One of the copies {self.copy_words}, as the classifier saw them. {cut}"
        perturbed = self._filled(self._choice, radius), f"{self._filled(self._random, radius)}. {_WORST}"
        return {"perturbed": perturbed, "noisy": (self._filled(self._noisy), seen)}


class SampledNoise(Noise):
    """Noises whose draws are a random sample."""

    @property
    @abstractmethod
    def betting_r(self) -> Floats:
        """The r, rising, at which bets make their claims."""

    @abstractmethod
    def radii(self, r: Floats) -> Floats:
        """The radii of these r, rounded down."""


def check_radius(radius: ArrayLike, whole: bool) -> Floats:
    """The radius or radii, if none is negative, and for discrete attackers all are whole."""
    given = np.asarray(radius, dtype=np.float64)
    if not np.all((given >= 0) & np.isfinite(given)):
        raise InvalidInputError(f"radius must be finite and not negative, got {radius!r}")
    if whole and not np.all(given == np.floor(given)):
        raise InvalidInputError(f"radius counts pixels and must be a whole number, got {radius!r}")
    return given


def check_sampled(noise: Noise) -> SampledNoise:
    """The noise, if its draws are a random sample."""
    if not isinstance(noise, SampledNoise):
        raise InvalidInputError(
            f"the noise {noise} has all {noise.positions} positions of the band and no random draws; only the method "
            "'enumerated' certifies it, from the votes of every position"
        )
    return noise


def parse_noise(text: str, size: Size | None = None) -> Noise:
    """The noise of its text form; raises `InvalidInputError` for any other text.

    Args:
        text: "gaussian:SIGMA", "uniform:HALF_WIDTH", "pixels:KEEP/PIXELS" or "band:WIDTH/COLUMNS".
        size: The height and width of the images, if they are known: then "/PIXELS" and "/COLUMNS" may be left out,
            and must fit if they are not.

    >>> parse_noise("uniform:0.5")
    Uniform(half_width=0.5)
    >>> parse_noise("pixels:45", size=(32, 32))
    PixelAblation(keep=45, pixels=1024)
    """
    kind, _, value = text.strip().partition(":")
    *most, last = (f"{name}:{noise.form}" for name, noise in NOISES.items())
    forms = f"expected {', '.join(most)} or {last}"
    if kind not in NOISES:
        raise InvalidInputError(f"{unknown_name('noise', kind, NOISES)}; {forms}")
    try:
        return NOISES[kind].parse(value, size)
    except InvalidInputError:
        raise
    except ValueError:
        raise InvalidInputError(f"the noise is {text!r}; {forms}") from None


def resolve_noise(sigma: float | None, noise: Noise | None) -> Noise:
    """The noise that is meant by exactly one of the two arguments; sigma means `Gaussian(sigma)`.

    >>> resolve_noise(0.5, None)
    Gaussian(sigma=0.5)
    """
    if (sigma is None) == (noise is None):
        raise InvalidInputError(f"give exactly one of sigma and noise, got sigma = {sigma!r} and noise = {noise!r}")
    if sigma is not None:
        noise = NOISES["gaussian"](sigma)  # type: ignore[call-arg]
    if not isinstance(noise, Noise):
        names = ", ".join(each.__name__ for each in NOISES.values())
        raise InvalidInputError(f"noise must be one of {names}, got {noise!r}; parse_noise reads a text")
    return noise


def as_noise(noise: Noise | str) -> Noise:
    """The noise itself, or that of the text that a record holds."""
    return parse_noise(noise) if isinstance(noise, str) else resolve_noise(None, noise)


def given_noise(sigma: float | None, noise: str | None) -> str | None:
    """The text of the noise that at most one of the two names, "none" for sigma 0; None where neither does.

    >>> given_noise(0.5, None), given_noise(0, None), given_noise(None, "band:4"), given_noise(None, "gaussian:0.50")
    ('gaussian:0.5', 'none', 'band:4', 'gaussian:0.5')
    """
    if sigma is not None and noise is not None:
        raise InvalidInputError(f"sigma is {sigma}, Gaussian noise, and noise is {noise}; give one of the two")
    if sigma is not None:
        return NO_NOISE if sigma == 0 else str(resolve_noise(sigma, None))
    if noise is None or noise == NO_NOISE:
        return noise
    is_open = "/" not in noise and getattr(NOISES.get(noise.strip().partition(":")[0]), "whole", False)
    parsed = parse_noise(noise, _ANY_SIZE if is_open else None)
    return noise.strip() if is_open else str(parsed)


# The type of a record's field: a file holds the text of the noise, which `as_noise` turns into the noise.
if TYPE_CHECKING:
    NoiseField = Noise
else:
    NoiseField = Any
