"""Attacks radius by radius: a larger radius starts from what a smaller one found, and fresh draws evaluate it."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.candidates import ImageGroup, SearchDraws
from multiguard.attack.config import AttackConfig, AttackName
from multiguard.attack.goals import Objective
from multiguard.attack.search import make_search
from multiguard.attack.target import SmoothedTarget
from multiguard.attack.threats import THREATS
from multiguard.certify import Rule
from multiguard.evaluate.attacks import CLEAN, Goal, goals
from multiguard.io.short_repr import short_repr
from multiguard.smooth import Smoother
from multiguard.smooth.engine import copy_to_device, image_tensor, to_pixels
from multiguard.smooth.noise_source import noise_key

Progress = Callable[[int], None]
Counts = NDArray[np.int64]
Pixels = NDArray[np.float32]
# Images attacked at once: they fill batches, and the random search steps from one towards another. Everything found
# is held in memory until it is evaluated, so large images come in smaller groups.
_GROUP_IMAGES = 64
_GROUP_NUMBERS = 1 << 22
# Below this value no label is left by a clear margin: larger radii need no new search.
_NOTHING_LEFT = -0.25


@dataclass(frozen=True, eq=False)
class Victim:
    """An image to attack.

    >>> Victim("000042", np.zeros((3, 8, 8), np.uint8), labels=(3, 7), radii=(0.5, 1.0)).radii
    (0.5, 1.0)
    """

    id: str  # its id, which keys the noise
    image: NDArray[np.generic]  # (3, height, width), uint8 (x / 255 is meant) or floating point; or any other shape
    labels: tuple[int, ...]  # the indices of L, at least one
    radii: tuple[float, ...]  # the radii allowed, in the unit of the noise's attacker, from small to large, all above 0

    __repr__ = short_repr


@dataclass(frozen=True, eq=False)
class Perturbation:
    """A perturbed image and its hits in fresh draws; see `attack_images`."""

    attack: str  # what found it; "none" for the clean image
    goal: Goal  # what was minimized
    radius: float  # the radius allowed: a norm, a number of pixels, or the side of a patch
    norm: float  # that of the perturbation, in exact differences of the float32 values, never more than `radius`
    image: Pixels  # the perturbed image, float32
    counts: Counts  # (c,), how many of the evaluation draws hit each label

    __repr__ = short_repr


@dataclass(frozen=True, eq=False)
class AttackResult:
    """A victim and every perturbation that was found, the clean image first; see `attack_images`."""

    victim: Victim  # the image
    perturbations: tuple[Perturbation, ...]  # what was found
    flat: bool = False  # whether some gradient was 0 or not finite, so that a step of pgd led nowhere

    __repr__ = short_repr


def attack_images(
    smoother: Smoother, victims: Iterable[Victim], rule: Rule, config: AttackConfig, *, progress: Progress | None = None
) -> Iterator[AttackResult]:
    """Per image and radius, the perturbation within that radius that leaves the fewest labels an attack could find.

    The noise decides what the attacker may do: a perturbation of that l2-norm or l1-norm, or any content in [0, 1] in
    so many pixels, or in one square patch of that side.
    Draws of the search choose the perturbations, and draws that had no part in it evaluate them: `Perturbation.counts`
    are independent draws of the smoothed classifier at an image that was fixed before. Neither are the draws that
    certify. The search is a function of the seed and the images; on a CPU it is reproducible.

    Args:
        smoother: The smoothed classifier; `pgd` needs gradients of its network, `random` needs only scores.
        victims: The images.
        rule: A `TopK` for a smoother of ranked votes, a `Threshold` for one with a score threshold.
        config: Which attacks, and how hard they search.
        progress: Called with the number of images done.

    >>> from multiguard import Smoother, TopK, load
    >>> classifier = load(lambda x: x.flatten(1)[:, :2], labels=["cat", "dog"], output="logits")
    >>> image = np.zeros((3, 2, 2), np.float32)
    >>> image[0, 0, 0] = 0.4  # "cat" wins by 0.4, so the robust radius is 0.4 / sqrt(2) = 0.28
    >>> config = AttackConfig(attacks=("pgd",), steps=5, draws=400)
    >>> smoother = Smoother(classifier, sigma=0.5, k_max=1, device="cpu")
    >>> (result,) = attack_images(smoother, [Victim("x", image, (0,), (0.1, 0.6))], TopK(1, 1), config)
    >>> [(found.attack, found.radius, found.counts.argmax().item()) for found in result.perturbations]
    [('none', 0.0, 0), ('pgd', 0.1, 0), ('pgd', 0.6, 1)]
    """
    smoother.settings.check_rule(rule, len(smoother.classifier.label_names))
    done = 0
    for shape, alike in groupby(victims, key=lambda victim: victim.image.shape):
        size = max(1, min(_GROUP_IMAGES, _GROUP_NUMBERS // max(1, math.prod(shape))))
        while batch := list(islice(alike, size)):
            yield from _GroupAttack(smoother, batch, rule, config).results()
            done += len(batch)
            if progress is not None:
                progress(done)


class _GroupAttack:
    """All attacks on images of one shape."""

    def __init__(self, smoother: Smoother, victims: Sequence[Victim], rule: Rule, config: AttackConfig) -> None:
        self._victims, self._rule, self._config = victims, rule, config
        self._target = SmoothedTarget(smoother, rule, config.seed)
        self._threat = THREATS[smoother.settings.noise.attacker]
        self._group = _make_group(smoother, victims, config.seed)
        self._flat: set[str] = set()
        self._found: list[tuple[int, Perturbation]] = []

    def results(self) -> list[AttackResult]:
        """Every perturbation, evaluated."""
        for goal in goals(self._rule):
            for index in range(len(self._victims)):
                self._add(index, CLEAN, goal, 0.0, self._group.clean[index])
        for goal in goals(self._rule):
            for name in self._config.attacks:
                self._attack(name, goal)
        return self._evaluate()

    def _attack(self, name: AttackName, goal: Goal) -> None:
        """What one attack finds at every radius of every image: labels of L leave, or others come in."""
        victims, objective = self._victims, Objective(self._rule, "hide" if goal == "in" else "add")
        group = self._group if goal == "in" else replace(self._group, aim=~self._group.aim)
        draws = SearchDraws(self._target, objective, self._config, self._flat)
        search, best = make_search(name, self._threat, draws), draws.compare(group, group.clean)
        for turn in range(max(len(victim.radii) for victim in victims)):
            allowed = [index for index, victim in enumerate(victims) if turn < len(victim.radii)]
            active = [index for index in allowed if best.values[index] > _NOTHING_LEFT]
            if active:
                radii = [victims[index].radii[turn] for index in active]
                radius = torch.tensor(radii, dtype=torch.float64, device=group.clean.device)
                best = best.put(active, search.improve(group.take(active), turn, radius, best.take(active)))
            for index in allowed:
                self._add(index, name, goal, victims[index].radii[turn], best.images[index])

    def _add(self, index: int, attack: str, goal: Goal, radius: float, image: Tensor) -> None:
        norm = float(self._threat.distances(self._group.clean[index][None], image[None])[0])
        no_counts = np.zeros(0, np.int64)
        self._found.append((index, Perturbation(attack, goal, radius, norm, image.cpu().numpy(), no_counts)))

    def _evaluate(self) -> list[AttackResult]:
        """Every perturbation with its hits in fresh draws; equal images are evaluated once."""
        keys = [(index, hashlib.blake2b(each.image.tobytes()).digest()) for index, each in self._found]
        images = {key: each.image for key, (_, each) in zip(keys, self._found, strict=True)}
        ids = [self._group.ids[index] for index, _ in images]
        # "judge" names the noise stream of the evaluation draws; another name would draw other noise.
        counted = self._target.counts(ids, images.values(), self._config.draws, "judge")
        counts = dict(zip(images, counted, strict=True))
        evaluated: list[list[Perturbation]] = [[] for _ in self._victims]
        for key, (index, each) in zip(keys, self._found, strict=True):
            evaluated[index].append(replace(each, counts=counts[key]))
        pairs = zip(self._victims, evaluated, strict=True)
        return [AttackResult(victim, tuple(found), victim.id in self._flat) for victim, found in pairs]


def _make_group(smoother: Smoother, victims: Sequence[Victim], seed: int) -> ImageGroup:
    settings, classifier = smoother.settings, smoother.classifier
    aim = torch.zeros(len(victims), len(classifier.label_names), dtype=torch.bool)
    for row, victim in zip(aim, victims, strict=True):
        row[list(victim.labels)] = True
    inputs = [image_tensor(victim.id, victim.image, classifier.image_size) for victim in victims]
    clean = torch.stack([to_pixels(copy_to_device(each, settings.device)) for each in inputs])
    keys = tuple(noise_key(seed, victim.id, "attack") for victim in victims)
    return ImageGroup(tuple(victim.id for victim in victims), keys, clean, aim.to(settings.device))
