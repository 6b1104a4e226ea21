"""How certificates are verified, as a config, and what a check found."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

from multiguard.io.config import Config, Count, Draws, Whole, described
from multiguard.smooth.config import Device

Progress = Callable[[str, int, int], None]


class VerifyConfig(Config, frozen=True):
    """The images that the auditor has, and which votes are drawn again.

    >>> VerifyConfig(images=3).draws
    100
    """

    data: Annotated[str | None, described("The dataset that they should be about: compare its images and labels.")] = (
        None
    )
    root: Annotated[Path | None, described("Where the images are [where they were voted on].")] = None
    split: Annotated[str | None, described("Their split [the one in the certificates].")] = None
    table: Annotated[Path | None, described("The CSV of labels [the one in the certificates].")] = None
    images: Annotated[Count, described("Draw votes of a random sample of this many images again.")] = 10
    draws: Annotated[Draws, described("Draws of each of them, from a random one on.")] = 100
    seed: Annotated[Whole | None, described("Seed of that sample [random].")] = None
    device: Device = None

    @property
    def opens_data(self) -> bool:
        """Whether the auditor names the images."""
        return any(each is not None for each in (self.data, self.root, self.split, self.table))


class Check(NamedTuple):
    """One thing that was compared; with None for `passed` one that was not."""

    passed: bool | None
    text: str
