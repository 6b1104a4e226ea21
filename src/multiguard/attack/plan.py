"""How hard an attack tries: all of it fixed beforehand."""

from dataclasses import dataclass
from typing import Literal, get_args

from multiguard.errors import InvalidInputError
from multiguard.io.names import unknown_name

AttackName = Literal["pgd", "random"]


@dataclass(frozen=True)
class AttackPlan:
    """What an attack may spend; more of anything finds more, and nothing here can make a sound certificate break.

    Attributes:
        attacks: "pgd", gradients through the noise, and "random", a search that needs none.
        steps: Gradient steps of each start.
        copies: Noisy copies that a gradient, or a try, is averaged over.
        starts: Starts at each radius: one from where the smaller radius ended, the others random on the sphere.
        tries: Changes that the random search tries at each radius.
        pick_draws: Draws that compare two changes while searching.
        judge_draws: Fresh draws that judge the change in the end.
        box: Whether the changed image must stay in [0, 1]. The certificate covers every change of the norm, and so
            without it the attack may use all of them.
        seed: Decides every random choice.
    """

    attacks: tuple[AttackName, ...] = ("pgd", "random")
    steps: int = 20
    copies: int = 8
    starts: int = 2
    tries: int = 60
    pick_draws: int = 32
    judge_draws: int = 500
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
        if self.judge_draws < 1:
            raise InvalidInputError(f"--draws (judge_draws) must be at least 1, not {self.judge_draws}")
        if self.seed < 0:
            raise InvalidInputError(f"seed must be 0 or more, not {self.seed}")
