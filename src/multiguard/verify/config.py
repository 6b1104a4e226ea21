"""How certificates are verified, as a config."""

from pathlib import Path
from typing import Annotated

from multiguard.io.config import Config, Count, Draws, Whole, described
from multiguard.smooth.config import Device


class VerifyConfig(Config, frozen=True):
    """Which votes are drawn again to verify them.

    >>> VerifyConfig(images=3).draws
    100
    """

    images: Annotated[Count, described("Draw votes of a random sample of this many images again.")] = 10
    draws: Annotated[Draws, described("Draws of each of them, from a random one on.")] = 100
    seed: Annotated[Whole | None, described("Seed of that sample [random].")] = None
    root: Annotated[Path | None, described("Where the images are [where they were voted on].")] = None
    device: Device = None
