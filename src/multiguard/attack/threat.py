"""What an attacker may do to an image, and the searches among the perturbations that this allows."""

from typing import Literal, Protocol

from torch import Tensor

from multiguard.attack.ball import Ball
from multiguard.attack.gradient_search import Compare, GradientSearch, Progress
from multiguard.attack.mask_search import SaliencySearch, SparseSearch
from multiguard.attack.masks import Patch, Pixels
from multiguard.attack.objective import Objective
from multiguard.attack.perturbation import Candidates, ImageGroup
from multiguard.attack.plan import AttackName, AttackPlan
from multiguard.attack.score_search import RandomSearch
from multiguard.attack.target import Target

Attacker = Literal["l2-norm", "l1-norm", "pixels", "patch"]
Threat = Ball | Pixels | Patch
THREATS: dict[str, Threat] = {"l2-norm": Ball(2), "l1-norm": Ball(1), "pixels": Pixels(), "patch": Patch()}


class Search(Protocol):
    """A search for perturbations of one threat."""

    def improve(self, group: ImageGroup, turn: int, radius: Tensor, previous: Candidates) -> Candidates:
        """The best of the candidates from smaller radii and of what is found at these radii, (P,) float64."""


def make_compare(target: Target, objective: Objective, plan: AttackPlan) -> Compare:
    """Values perturbed images by the first draws of the search."""

    def compare(group: ImageGroup, images: Tensor) -> Candidates:
        fractions = target.fractions(group, images, plan.pick_draws, "attack")
        return Candidates(images, objective.value(fractions, group.aim))

    return compare


def make_search(
    name: AttackName,
    threat: Threat,
    target: Target,
    objective: Objective,
    plan: AttackPlan,
    flat: set[str],
    *,
    keep_best: bool = False,
    progress: Progress | None = None,
) -> Search:
    """The search of this name against this threat; `flat`, `keep_best` and `progress` are those of `GradientSearch`."""
    compare = make_compare(target, objective, plan)
    common = (target, objective, plan, compare)
    if not isinstance(threat, Ball):
        if name == "pgd":
            return SaliencySearch(threat, *common, flat, progress)
        return SparseSearch(threat, *common, progress)
    if name == "pgd":
        return GradientSearch(threat, *common, flat, keep_best=keep_best, progress=progress)
    return RandomSearch(threat, *common, progress)
