"""An attack, as a config."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from multiguard.errors import InvalidInputError
from multiguard.io.config import Config, Count, Draws, Fraction, Whole, described
from multiguard.smooth.config import Device

AttackName = Literal["pgd", "random"]
Effort = Annotated[int, Meta(ge=1, le=1_000_000)]  # steps, starts, copies and tries


class AttackConfig(Config, frozen=True):
    """Which images to attack, how hard, and with which confidence.

    More of anything finds more, and nothing here can break a sound certificate.

    >>> config = AttackConfig(attacks=("pgd",), steps=40)
    >>> config.starts * config.steps * config.copies  # forward and backward passes per image and radius
    640
    """

    attacks: Annotated[
        tuple[AttackName, ...], described("pgd (by gradients), random (needs none) or both.", "attack")
    ] = ("pgd", "random")
    radii: Annotated[
        tuple[float, ...], described("A radius to attack at, in the unit of the noise [six that fit it].", "radius")
    ] = ()
    own_radii: Annotated[bool, described("Also attack each image at its own certified radii.")] = False
    images: Annotated[Count | None, described("Attack a random sample of this many images [all with labels].")] = None
    steps: Annotated[Effort, described("Gradient steps per start.")] = 20
    copies: Annotated[Effort, described("Noisy copies that a gradient, or a try, is averaged over.")] = 8
    starts: Annotated[Effort, described("Starts of pgd per radius; all but the first are random.")] = 2
    tries: Annotated[Effort, described("Perturbations that the random search tries per radius.")] = 60
    pick_draws: Annotated[Effort, described("Draws that compare two perturbations during the search.")] = 32
    draws: Annotated[Draws, described("Fresh draws that evaluate each perturbation.")] = 500
    beta: Annotated[Fraction, Whole, described("The probability of calling a sound certificate broken.")] = 0.001
    box: Annotated[bool, described("Keep perturbed images in [0, 1]; certificates hold without it.")] = False
    seed: Annotated[Whole, described("Seed of every random choice.")] = 0
    root: Annotated[Path | None, described("Where the images are [where they were voted on].")] = None
    device: Device = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.attacks or len(set(self.attacks)) < len(self.attacks):
            raise InvalidInputError(
                f"attacks must be pgd, random or pgd,random, each once, not {','.join(self.attacks)!r}"
            )
