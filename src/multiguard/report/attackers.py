"""What an attacker may do, in words: the noise, the unit of its radius, and how large a radius is."""

from multiguard.certify.noise import BandAblation, Gaussian, Noise, PixelAblation, Uniform
from multiguard.io.rounding import down_to_digits, plain

Size = tuple[int, int]  # height and width
# The name of R on the page's slider.
DIAL_WORDS = {"l2-norm": "Radius", "l1-norm": "Radius", "pixels": "Changed pixels", "patch": "Patch side"}
_LEVELS = 255  # steps of a colour value from 0 to 1


def noise_words(noise: Noise) -> str:
    """The noise as one parameter among others.

    >>> noise_words(Gaussian(0.5)), noise_words(PixelAblation(45, 1024))
    ('σ = 0.5', '45 of 1024 pixels kept')
    """
    match noise:
        case Gaussian():
            return f"σ = {plain(noise.sigma)}"
        case Uniform():
            return f"uniform noise ± {plain(noise.half_width)}"
        case PixelAblation():
            return f"{noise.keep} of {noise.pixels} pixels kept"
        case BandAblation():
            return f"bands of {noise.width} of {noise.columns} columns"


def copies_words(noise: Noise) -> str:
    """What the base classifier sees, after "copies of the image"."""
    match noise:
        case Gaussian():
            return f"with Gaussian noise of σ = {plain(noise.sigma)}"
        case Uniform():
            return f"with uniform noise between −{plain(noise.half_width)} and {plain(noise.half_width)}"
        case PixelAblation():
            return f"with {noise.keep} random pixels of {noise.pixels}, all others hidden"
        case BandAblation():
            return f"with a band of {noise.width} of {noise.columns} columns, all others hidden, one copy per band"


def threat_words(noise: Noise, radius: float | None = None) -> str:
    """What the attacker may do with this radius, or with any R, after "under".

    >>> threat_words(BandAblation(4, 32), 3)
    'any change inside one 3 x 3 patch, wherever it is'
    """
    size = "R" if radius is None else plain(radius)
    match noise:
        case PixelAblation():
            return f"any change of at most {size} pixel{'' if radius == 1 else 's'}"
        case BandAblation():
            return f"any change inside one {size} x {size} patch, wherever it is"
        case _:
            return f"any perturbation of {_norm(noise)} up to {size if radius is None else f'R = {size}'}"


def radius_words(noise: Noise, radius: float) -> str:
    """The radius with its unit.

    >>> radius_words(Gaussian(0.5), 0.5), radius_words(BandAblation(4, 32), 3)
    ('R = 0.5 (l2-norm)', 'R = 3 (any 3 x 3 patch)')
    """
    return f"R = {plain(radius)} ({noise.describe(radius) if noise.whole else noise.attacker})"


def unit_words(noise: Noise) -> str:
    """What R measures and how large that is, in one line.

    >>> unit_words(Uniform(0.5))
    'R is the l1-norm of the perturbation; a pixel from black to white has 3'
    """
    match noise:
        case PixelAblation():
            one = _digits(100 / noise.pixels)
            return f"R pixels may change, any of {noise.pixels} and in any way; one is {one} % of the image"
        case BandAblation():
            return f"R is the side of one patch, anywhere, any content; images are {noise.columns} pixels wide"
        case _:
            return (
                f"R is the {noise.attacker} of the perturbation; a pixel from black to white has {_pixel_norm(noise)}"
            )


def measure_words(noise: Noise) -> str:
    """Which pixels R is about, as a sentence."""
    where = "at the resolution of the model, before any normalisation"
    if noise.whole:
        return f"Pixels are those of the image {where}. All channels of a changed pixel may get any value."
    return f"The {_norm(noise)} is taken over all pixel values on the scale from 0 to 1, {where}."


def size_words(noise: Noise, radius: float, size: Size | None) -> tuple[str, str] | None:
    """How large that is: a number, and what it is of; None where that depends on an image size that is not known.

    >>> size_words(PixelAblation(45, 1024), 20, None)
    ('1.9 %', ' of the image: 20 of its 1024 pixels, wherever they are, with any colours.')
    """
    match noise:
        case PixelAblation():
            what = f" of the image: {plain(radius)} of its {noise.pixels} pixels, wherever they are, with any colours."
            return f"{_digits(100 * radius / noise.pixels)} %", what
        case BandAblation():
            part, whole = radius / noise.columns, "width of the image"
            if size is not None:
                part, whole = radius * radius / (size[0] * size[1]), f"area of a {size[1]} x {size[0]} image"
            return f"{_digits(100 * part)} %", f" of the {whole} is inside such a patch, which may show anything."
        case _:
            return None if size is None else _ball_words(noise, radius, size)


def _ball_words(noise: Gaussian | Uniform, radius: float, size: Size) -> tuple[str, str]:
    """How far all values can move at once, and what one pixel alone takes."""
    height, width = size
    values = 3 * height * width
    step = radius / values**0.5 if isinstance(noise, Gaussian) else radius / values
    one = f"one pixel from black to white alone takes {_pixel_norm(noise)}"
    what = f" is how far all colour values of a {width} x {height} image can move at once within this R; {one}."
    return f"{_digits(_LEVELS * step)} of {_LEVELS}", what


def look_words(noise: Noise, radius: float) -> dict[str, tuple[str, str]]:
    """What the illustrations of a page show, of a perturbation and of the noise: a choice, and a sentence."""
    size = plain(radius)
    match noise:
        case PixelAblation():
            choice, what = f"with {size} pixels changed", f"Each image with {size} random pixels of random colours"
        case BandAblation():
            choice = f"with a {size} x {size} patch"
            what = f"Each image with one {size} x {size} patch of random colours at a random place"
        case _:
            where = "added to all its pixels" if isinstance(noise, Gaussian) else "spent on as few pixels as possible"
            choice = f"with a perturbation of norm {size}"
            what = f"Each image plus one random perturbation of {_norm(noise)} {size}, {where} at full size"
    worst = "A certificate covers every perturbation up to its radius, also the worst one; a random one is far from it."
    cut = "Hidden pixels are grey here." if noise.whole else "Values outside the range of pixels are cut off here."
    noisy = f"with noise, {noise_words(noise)}" if isinstance(noise, Gaussian) else "as the classifier sees them"
    seen = f"One of the copies {copies_words(noise)}, as the classifier saw them. {cut}"
    return {"perturbed": (choice, f"{what}. {worst}"), "noisy": (noisy, seen)}


def _norm(noise: Noise) -> str:
    return "ℓ₂-norm" if isinstance(noise, Gaussian) else "ℓ₁-norm"


def _pixel_norm(noise: Gaussian | Uniform) -> str:
    """The norm of one pixel of three channels turned from black to white."""
    return "1.73" if isinstance(noise, Gaussian) else "3"


def _digits(value: float) -> str:
    """Two digits, rounded down."""
    return down_to_digits(value, 2) if value > 0 else "0"
