"""What a report shows, as a config."""

from typing import Annotated

from multiguard.certify import Method
from multiguard.io.config import Config, Fraction, NotNegative, Whole, described


class ReportConfig(Config, frozen=True):
    """What the page of a run, or of a comparison of several, shows.

    >>> ReportConfig(title="Our classifier", gallery=20).images
    True
    """

    title: Annotated[str | None, described("The page's title [the recipe's, or the model's and dataset's names].")] = (
        None
    )
    gallery: Annotated[Whole | None, described("The most images in the gallery [the recipe's, or up to 1000].")] = None
    images: Annotated[bool, described("Show no images on the page.", "no-images")] = True
    methods: Annotated[
        tuple[Method, ...], described("Methods to compare, or all [of several runs each one's first].", "method")
    ] = ()
    baseline: Annotated[str | None, described("The run that others are compared with [the first].")] = None
    radii: Annotated[
        tuple[NotNegative, ...], described("The radii to compare at [multiples of sigma / 2].", "radius")
    ] = ()
    level: Annotated[Fraction, described("The level of the intervals of a comparison.")] = 0.95
