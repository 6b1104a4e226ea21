"""How hard an attack searches: all of it is fixed before the search starts."""

from dataclasses import dataclass
from typing import Literal, get_args

from multiguard.errors import InvalidInputError
from multiguard.io.names import unknown_name

AttackName = Literal["pgd", "random"]


@dataclass(frozen=True)
class AttackPlan:
    """What an attack may spend: more of anything finds more, and nothing here can break a sound certificate.

    Attributes:
        attacks: "pgd" follows gradients through the noise; "random" is a search that needs no gradients.
        steps: Gradient steps per start.
        copies: Noisy copies that a gradient, or the score of a random try, is averaged over.
        starts: Starts per radius: one from the result of the smaller radius, the others random on the sphere.
        tries: Perturbations that the random search tries per radius.
        pick_draws: Draws that compare two perturbations during the search.
        evaluation_draws: Fresh draws that evaluate the final perturbation.
        box: Whether the perturbed image must stay in [0, 1]. The certificate covers every perturbation of the norm, so
            by default the attack may leave the box.
        seed: Decides every random choice.

    >>> plan = AttackPlan(attacks=("pgd",), steps=40, evaluation_draws=1000)
    >>> plan.starts * plan.steps * plan.copies  # forward and backward passes per image and radius
    640
    """

    attacks: tuple[AttackName, ...] = ("pgd", "random")
    steps: int = 20
    copies: int = 8
    starts: int = 2
    tries: int = 60
    pick_draws: int = 32
    evaluation_draws: int = 500
    box: bool = False
    seed: int = 0

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
