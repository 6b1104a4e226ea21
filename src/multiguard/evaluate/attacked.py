"""What attacks reached beside what was proved: the true worst case of a picture lies between the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import binom

from multiguard.certify import Method, certified_size
from multiguard.evaluate.certificates import Certificates
from multiguard.evaluate.judged import Goal, goals
from multiguard.evaluate.scores import Floats
from multiguard.evaluate.setting import AnySetting

CLEAN, BEST = "none", "best"


@dataclass(frozen=True)
class Reached:
    """A change of l2-norm `norm` after which about `size` labels stay; with probability 1 - beta at most `at_most` do.

    Attributes:
        attack: What found it; "none" for the picture as it is.
        goal: What is counted: labels of L that stay "in", or others that stay "out".
        radius: What the norm was allowed to be.
        norm: What it is, never more.
        size: The estimate, from draws that had no part in the search.
        at_most: What is sure; beta is for all changes of the picture together.
    """

    attack: str
    goal: Goal
    radius: float
    norm: float
    size: int
    at_most: int


@dataclass(frozen=True, eq=False)
class AttackedPicture:
    """One picture: what was proved of it, and what attacks reached.

    Attributes:
        id: The id of the picture.
        labels: The indices of L, at least one.
        proved: For each goal and method up to which radius at least 1, 2, ... labels stay.
        reached: What was found, the picture as it is among it.
    """

    id: str
    labels: tuple[int, ...]
    proved: Mapping[Goal, Mapping[Method, Floats]]
    reached: tuple[Reached, ...]

    def certified(self, goal: Goal, method: Method, radius: float) -> int:
        """How many labels are proved to stay at this radius."""
        return int(certified_size(self.proved[goal][method], radius))

    def size(self, goal: Goal, attack: str, radius: float) -> int:
        """The fewest labels that an attack, or the "best" of all, left at this radius or below, by the estimates.

        The picture as it is counts for every attack: no change is a change of norm 0.
        """
        return min(
            found.size
            for found in self.reached
            if found.goal == goal and found.radius <= radius and (attack == BEST or found.attack in (attack, CLEAN))
        )

    def breaks(self, method: Method, *, surely: bool) -> bool:
        """Whether a change was found after which fewer labels stay than the method proved."""
        return any(
            (found.at_most if surely else found.size) < self.certified(found.goal, method, found.radius)
            for found in self.reached
        )


@dataclass(frozen=True, eq=False)
class Attacks:
    """Attacks on a set of pictures and the certificates that they could not, or could, break.

    Attributes:
        setting: Which smoothed classifier, and the alpha of the certificates.
        sigma: The noise.
        label_names: The c label names.
        labelled: Whether L is the ground truth; if not, pilot draws chose it.
        methods: What the certificates were proved with.
        radii: The radii at which every picture was attacked, from small to large, 0 first.
        names: The attacks.
        beta: The probability, a picture, that anything called sure is not.
        draws: How many fresh draws judge each change.
        pictures: The pictures that have labels.
        without_labels: How many were left out because they have none.
        plan: How the attacks searched, for the record.
    """

    setting: AnySetting
    sigma: float
    label_names: tuple[str, ...]
    labelled: bool
    methods: tuple[Method, ...]
    radii: tuple[float, ...]
    names: tuple[str, ...]
    beta: float
    draws: int
    pictures: tuple[AttackedPicture, ...]
    without_labels: int
    plan: Mapping[str, Any] = field(default_factory=dict)

    def broken(self, method: Method, *, surely: bool = True) -> tuple[str, ...]:
        """The ids of the pictures whose certificate an attack broke; not `surely`, as far as the estimates tell."""
        return tuple(picture.id for picture in self.pictures if picture.breaks(method, surely=surely))

    def chance(self, broken: int) -> float:
        """The most that the probability of so many broken certificates, or more, can be if all is right."""
        wrong = min(1.0, self.setting.alpha + self.beta)
        return float(binom.sf(broken - 1, len(self.pictures), wrong))


@dataclass(frozen=True, eq=False)
class AttackCurve:
    """Averages over pictures at each radius: for the goal "in" shares of L, for "out" how many others come in.

    Attributes:
        goal: What is averaged.
        radius: (radii,).
        certified: For each method what is proved: of "in" a floor, of "out" a ceiling.
        reached: For each attack, and for the "best" of them on each picture, what it brought about, by estimates.
    """

    goal: Goal
    radius: Floats
    certified: Mapping[Method, Floats]
    reached: Mapping[str, Floats]


def attack_curves(attacks: Attacks) -> list[AttackCurve]:
    """Certified and reached averages of each goal; at each radius the best of that radius and of all below it."""
    return [_curve(attacks, goal) for goal in goals(attacks.setting)]


def _curve(attacks: Attacks, goal: Goal) -> AttackCurve:
    names, pictures = len(attacks.label_names), attacks.pictures

    def averaged(size: Any) -> Floats:
        return np.array(
            [np.mean([_shown(goal, size(each, R), each, names) for each in pictures]) for R in attacks.radii]
        )

    lines = (*attacks.names, BEST) if len(attacks.names) > 1 else attacks.names
    return AttackCurve(
        goal,
        np.array(attacks.radii),
        {m: averaged(lambda each, R, m=m: each.certified(goal, m, R)) for m in attacks.methods},
        {a: averaged(lambda each, R, a=a: each.size(goal, a, R)) for a in lines},
    )


def _shown(goal: Goal, size: int, picture: AttackedPicture, names: int) -> float:
    """A share of L, or how many of the others are let in."""
    return size / len(picture.labels) if goal == "in" else names - len(picture.labels) - size


def proved_sizes(certificates: Certificates, index: int) -> dict[Goal, dict[Method, Floats]]:
    """For each goal and method the radii up to which at least 1, 2, ... labels of this picture stay."""
    found: dict[Goal, dict[Method, Floats]] = {"in": {m: radii[index] for m, radii in certificates.radii.items()}}
    if certificates.false_radii is not None:
        # At most m of them in is at least c - d - m of them out.
        found["out"] = {m: radii[index][::-1] for m, radii in certificates.false_radii.items()}
    return found


def all_radii(proved: Mapping[Goal, Mapping[Method, Floats]], methods: Sequence[Method]) -> set[float]:
    """Every finite radius above 0 at which one of these methods stops to prove something."""
    found = {float(radius) for each in proved.values() for method in methods for radius in each[method]}
    return {radius for radius in found if 0 < radius < np.inf}
