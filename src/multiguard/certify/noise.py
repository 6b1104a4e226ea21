"""The noises, one for each attacker: l2-norm, l1-norm, changed pixels, one square patch; and their text forms."""

from typing import TYPE_CHECKING, Any

from multiguard.certify.ablation import HIDDEN, BandAblation, PixelAblation
from multiguard.certify.additive import Gaussian, Uniform
from multiguard.certify.noise_model import Sampler
from multiguard.errors import InvalidInputError
from multiguard.io.names import unknown_name

__all__ = ["HIDDEN", "BandAblation", "Gaussian", "Noise", "PixelAblation", "SampledNoise", "Sampler", "Uniform"]

SampledNoise = Gaussian | Uniform | PixelAblation
Noise = SampledNoise | BandAblation
NOISES: dict[str, type[Noise]] = {noise.kind: noise for noise in (Gaussian, Uniform, PixelAblation, BandAblation)}
NO_NOISE = "none"  # what records say of training without noise
_ABLATIONS = (PixelAblation.kind, BandAblation.kind)
_ANY_SIZE = (1 << 11, 1 << 11)  # stands for that of the images until it is known
_FORMS = "gaussian:SIGMA, uniform:HALF_WIDTH, pixels:KEEP/PIXELS or band:WIDTH/COLUMNS"
# The type of a record's field: a file holds the text of the noise, which `as_noise` turns into the noise.
if TYPE_CHECKING:
    NoiseField = Noise
else:
    NoiseField = Any


def check_sampled(noise: Noise) -> SampledNoise:
    """The noise, if its draws are a random sample."""
    if isinstance(noise, BandAblation):
        raise InvalidInputError(
            f"the noise {noise} has all {noise.columns} positions of the band and no random draws; only the method "
            "'enumerated' certifies it, from the votes of every position"
        )
    return noise


def parse_noise(text: str, size: tuple[int, int] | None = None) -> Noise:
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
    if kind not in NOISES:
        raise InvalidInputError(f"{unknown_name('noise', kind, NOISES)}; expected {_FORMS}")
    try:
        if not NOISES[kind].whole:
            return Gaussian(float(value)) if kind == Gaussian.kind else Uniform(float(value))
        part, slash, whole = value.partition("/")
        counted = int(whole) if slash else None
        return _ablation(kind, int(part), counted, size)
    except ValueError as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"the noise is {text!r}; expected {_FORMS}") from None


def resolve_noise(sigma: float | None, noise: Noise | None) -> Noise:
    """The noise that is meant by exactly one of the two arguments; sigma means `Gaussian(sigma)`.

    >>> resolve_noise(0.5, None)
    Gaussian(sigma=0.5)
    >>> resolve_noise(None, Uniform(0.5))
    Uniform(half_width=0.5)
    """
    if (sigma is None) == (noise is None):
        raise InvalidInputError(f"give exactly one of sigma and noise, got sigma = {sigma!r} and noise = {noise!r}")
    if sigma is not None:
        return Gaussian(sigma)
    if not isinstance(noise, Noise):
        names = ", ".join(each.__name__ for each in NOISES.values())
        raise InvalidInputError(f"noise must be one of {names}, got {noise!r}; parse_noise reads a text")
    return noise


def as_noise(noise: Noise | str) -> Noise:
    """The noise itself, or that of the text that a record holds.

    >>> as_noise("uniform:0.5") == as_noise(Uniform(0.5))
    True
    """
    return parse_noise(noise) if isinstance(noise, str) else resolve_noise(None, noise)


def given_noise(sigma: float | None, noise: str | None) -> str | None:
    """Return the text of the noise that at most one of the two names, "none" for sigma 0; None where neither does.

    >>> given_noise(0.5, None), given_noise(0, None), given_noise(None, "band:4")
    ('gaussian:0.5', 'none', 'band:4')
    """
    if sigma is not None and noise is not None:
        raise InvalidInputError(f"sigma is {sigma}, Gaussian noise, and noise is {noise}; give one of the two")
    if sigma is None:
        return None if noise is None else checked_noise(noise)
    return NO_NOISE if sigma == 0 else str(Gaussian(sigma))


def checked_noise(text: str) -> str:
    """Return the text of a noise as it is written, or "none"; the size of the images may still be open.

    >>> checked_noise("gaussian:0.50"), checked_noise("band:4")
    ('gaussian:0.5', 'band:4')
    """
    if text == NO_NOISE:
        return text
    is_open = text.strip().startswith(_ABLATIONS) and "/" not in text
    noise = parse_noise(text, _ANY_SIZE if is_open else None)
    return text.strip() if is_open else str(noise)


def _ablation(kind: str, part: int, counted: int | None, size: tuple[int, int] | None) -> Noise:
    """The ablation of this kind, with its total from the text or from the image size."""
    known = None if size is None else size[1] if kind == "band" else size[0] * size[1]
    total = known if counted is None else counted
    named = "columns" if kind == "band" else "pixels"
    if total is None:
        raise InvalidInputError(f"the noise is '{kind}:{part}', without the number of {named}; expected {_FORMS}")
    if known not in (None, total):
        raise InvalidInputError(f"the noise is '{kind}:{part}/{total}', but the images have {known} {named}")
    return PixelAblation(part, total) if kind == "pixels" else BandAblation(part, total)
