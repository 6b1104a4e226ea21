"""How hard an attack searches: all of it is fixed before the search starts."""

from dataclasses import dataclass
from typing import Literal, get_args

from multiguard.errors import InvalidInputError
from multiguard.io.names import unknown_name

AttackName = Literal["pgd", "random"]


@dataclass(frozen=True)
class AttackPlan:
    """What an attack may spend: more of anything finds more, and nothing here can break a sound certificate.

    >>> plan = AttackPlan(attacks=("pgd",), steps=40, evaluation_draws=1000)
    >>> plan.starts * plan.steps * plan.copies  # forward and backward passes per image and radius
    640
    """

    # "pgd" follows gradients through the noise; "random" is a search that needs no gradients.
    attacks: tuple[AttackName, ...] = ("pgd", "random")
    steps: int = 20  # gradient steps per start
    copies: int = 8  # noisy copies that a gradient, or the score of a random try, is averaged over
    starts: int = 2  # starts per radius: one from the result of the smaller radius, the others random on the sphere
    tries: int = 60  # perturbations that the random search tries per radius
    pick_draws: int = 32  # draws that compare two perturbations during the search
    evaluation_draws: int = 500  # fresh draws that evaluate the final perturbation
    box: bool = False  # whether perturbed images must stay in [0, 1]; the certificate covers those outside, too
    seed: int = 0  # decides every random choice

    def __post_init__(self) -> None:
        for attack in self.attacks:
            if attack not in get_args(AttackName):
                raise InvalidInputError(unknown_name("attack", attack, get_args(AttackName)))
        if not self.attacks or len(set(self.attacks)) < len(self.attacks):
            raise InvalidInputError(
                f"--attack (attacks) must be pgd, random or pgd,random, each once, not {','.join(self.attacks)!r}"
            )
        for name in ("steps", "copies", "starts", "tries", "pick_draws"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.evaluation_draws < 1:
            raise InvalidInputError(f"--draws (evaluation_draws) must be at least 1, not {self.evaluation_draws}")
        if self.seed < 0:
            raise InvalidInputError(f"seed must be 0 or more, not {self.seed}")
