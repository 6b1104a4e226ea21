"""What attacks reached beside what was proved: the true worst case of an image lies between the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

from multiguard.certify import Method, TopK, certified_size
from multiguard.certify.arrays import Floats, Ints
from multiguard.evaluate.certificates import Certificates
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.judged import Goal, goals, least_at_most

CLEAN, BEST = "none", "best"


@dataclass(frozen=True)
class Reached:
    """A change of l2-norm `norm` after which about `size` labels stay; with probability 1 - beta at most `at_most` do.

    Attributes:
        attack: What found it; "none" for the image as it is.
        goal: What is counted: labels of L that stay "in", or others that stay "out".
        radius: What the norm was allowed to be.
        norm: What it is, never more.
        size: The estimate, from draws that had no part in the search.
        at_most: What is sure; beta is for all changes of the image together.
    """

    attack: str
    goal: Goal
    radius: float
    norm: float
    size: int
    at_most: int


@dataclass(frozen=True, eq=False)
class AttackedImage:
    """One image: what was proved of it, and what attacks reached.

    Attributes:
        id: The id of the image.
        labels: The indices of L, at least one.
        proved: For each goal and method up to which radius at least 1, 2, ... labels stay.
        reached: What was found, the image as it is among it.
    """

    id: str
    labels: tuple[int, ...]
    proved: Mapping[Goal, Mapping[Method, Floats]]
    reached: tuple[Reached, ...]

    def certified(self, goal: Goal, method: Method, radius: ArrayLike) -> Ints:
        """How many labels are proved to stay, in the shape of `radius`."""
        return certified_size(self.proved[goal][method], radius)

    def sizes(self, goal: Goal, attack: str, radius: ArrayLike) -> Ints:
        """The fewest labels that an attack, or the "best" of all, left at each radius or below, by the estimates.

        The image as it is counts for every attack: no change is a change of norm 0.
        """
        counted = (attack, CLEAN)
        own = [each for each in self.reached if each.goal == goal and (attack == BEST or each.attack in counted)]
        within = np.array([each.radius for each in own]) <= np.asarray(radius)[..., None]
        left = np.array([each.size for each in own])
        fewest: Ints = np.where(within, left, left.max()).min(axis=-1)
        return fewest

    def breaks(self, method: Method, *, surely: bool) -> bool:
        """Whether a change was found after which fewer labels stay than the method proved."""
        return any(
            (found.at_most if surely else found.size) < int(self.certified(found.goal, method, found.radius))
            for found in self.reached
        )

    def tests(self, method: Method, least: Mapping[Goal, int]) -> bool:
        """Whether an attack was made within a radius up to which more than the `least` labels are proved to stay."""
        return any(
            found.attack != CLEAN and int(self.certified(found.goal, method, found.radius)) > least[found.goal]
            for found in self.reached
        )


@dataclass(frozen=True, eq=False)
class Attacks:
    """Attacks on a set of images and the certificates that they could not, or could, break.

    Attributes:
        config: Which smoothed classifier, and the alpha of the certificates.
        sigma: The noise.
        label_names: The c label names.
        labelled: Whether L is the ground truth; if not, pilot draws chose it.
        methods: What the certificates were proved with.
        radii: The radii at which every image was attacked, from small to large, 0 first.
        names: The attacks.
        beta: The probability, an image, that anything called sure is not.
        draws: How many fresh draws judge each change.
        images: The images that have labels.
        without_labels: How many were left out because they have none.
        failed: How many could not be voted on, so that nothing was proved of them that could be attacked.
        adaptive: Whether the draws that certify were as many as each image needed.
        flat: At how many images some gradient was 0 or not finite, so that a step of pgd led nowhere.
        plan: How the attacks searched, for the record.
    """

    config: CertifyConfig
    sigma: float
    label_names: tuple[str, ...]
    labelled: bool
    methods: tuple[Method, ...]
    radii: tuple[float, ...]
    names: tuple[str, ...]
    beta: float
    draws: int
    images: tuple[AttackedImage, ...]
    without_labels: int
    failed: int = 0
    adaptive: bool = False
    flat: int = 0
    plan: Mapping[str, Any] = field(default_factory=dict)

    def broken(self, method: Method, *, surely: bool = True) -> tuple[str, ...]:
        """The ids of the images whose certificate an attack broke; not `surely`, as far as the estimates tell."""
        return tuple(image.id for image in self.images if image.breaks(method, surely=surely))

    def tested(self, method: Method) -> tuple[str, ...]:
        """The ids of the images that were attacked within a certified radius, and of those found broken as they are.

        Of the others the method proves nothing that an attack was near enough to break.
        """
        none: Mapping[Goal, int] = {"in": 0, "out": 0}
        return tuple(p.id for p in self.images if p.tests(method, none) or p.breaks(method, surely=True))

    def untold(self, method: Method) -> tuple[str, ...]:
        """The ids of those among them that so few draws cannot find broken, whatever they hit."""
        tested = set(self.tested(method))
        return tuple(p.id for p in self.images if p.id in tested and not p.tests(method, self._least(p)))

    def _least(self, image: AttackedImage) -> dict[Goal, int]:
        level, names = self.beta / len(image.reached), len(self.label_names)
        own, rule = len(image.labels), self.config.rule
        return {g: least_at_most(self.draws, own, names, rule, g, beta=level) for g in goals(rule)}

    def chance(self, broken: int, method: Method) -> float:
        """The most that the probability of so many broken certificates, or more, can be if all is right.

        With `jia` each number of labels is proved alone: any of an image's min(d, k) proofs may fail, each with
        probability alpha.
        """
        wrong = min(1.0, self._proofs(method) * self.config.alpha + self.beta)
        # So many or more of a binomial number: the distribution function of a beta at the chance of one.
        return float(betainc(broken, len(self.images) - broken + 1, wrong)) if broken else 1.0

    def _proofs(self, method: Method) -> int:
        """How many claims of an image may fail with probability alpha each, at most."""
        if method != "jia" or not isinstance(self.config.rule, TopK):
            return 1
        return max(min(len(image.labels), self.config.rule.k) for image in self.images)


@dataclass(frozen=True, eq=False)
class AttackCurve:
    """Averages over images at each radius: for the goal "in" shares of L, for "out" how many others come in.

    Attributes:
        goal: What is averaged.
        radius: (radii,).
        certified: For each method what is proved: of "in" a floor, of "out" a ceiling.
        reached: For each attack, and for the "best" of them on each image, what it brought about, by estimates.
    """

    goal: Goal
    radius: Floats
    certified: Mapping[Method, Floats]
    reached: Mapping[str, Floats]


def attack_curves(attacks: Attacks, radius: ArrayLike | None = None) -> list[AttackCurve]:
    """Certified and reached averages of each goal; at each radius the best of what was reached there and below.

    Args:
        attacks: What attacks reached.
        radius: (radii,), the l2-norms to ask about; None for those that every image was attacked at.
    """
    asked = np.asarray(attacks.radii if radius is None else radius, dtype=np.float64)
    return [_curve(attacks, goal, asked) for goal in goals(attacks.config.rule)]


def _curve(attacks: Attacks, goal: Goal, radius: Floats) -> AttackCurve:
    lines = (*attacks.names, BEST) if len(attacks.names) > 1 else attacks.names
    images, names = attacks.images, len(attacks.label_names)

    def averaged(sizes: Sequence[Ints]) -> Floats:
        shown = [_shown(goal, each, image, names) for each, image in zip(sizes, images, strict=True)]
        return np.asarray(np.mean(shown, axis=0))

    certified = {m: averaged([image.certified(goal, m, radius) for image in images]) for m in attacks.methods}
    reached = {name: averaged([image.sizes(goal, name, radius) for image in images]) for name in lines}
    return AttackCurve(goal, radius, certified, reached)


def _shown(goal: Goal, sizes: Ints, image: AttackedImage, names: int) -> Floats:
    """Shares of L, or how many of the others are let in."""
    own = len(image.labels)
    return np.asarray(sizes / own if goal == "in" else names - own - sizes, dtype=np.float64)


def proved_sizes(certificates: Certificates, index: int) -> dict[Goal, dict[Method, Floats]]:
    """For each goal and method the radii up to which at least 1, 2, ... labels of this image stay."""
    found: dict[Goal, dict[Method, Floats]] = {"in": {m: radii[index] for m, radii in certificates.radii.items()}}
    if certificates.false_radii is not None:
        # At most m of them in is at least c - d - m of them out.
        found["out"] = {m: radii[index][::-1] for m, radii in certificates.false_radii.items()}
    return found


def all_radii(proved: Mapping[Goal, Mapping[Method, Floats]], methods: Sequence[Method]) -> set[float]:
    """Every finite radius above 0 at which one of these methods stops to prove something."""
    found = {float(radius) for each in proved.values() for method in methods for radius in each[method]}
    return {radius for radius in found if 0 < radius < np.inf}
