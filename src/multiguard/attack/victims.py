"""Attacks radius by radius: a larger radius starts from what a smaller one found, and fresh draws evaluate it."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.config import AttackConfig
from multiguard.attack.goals import Objective
from multiguard.attack.search import ImageGroup, Search
from multiguard.attack.target import SmoothedTarget
from multiguard.attack.threats import THREATS
from multiguard.certify import Rule
from multiguard.evaluate.attacks import CLEAN, Goal, goals
from multiguard.io.names import short_repr
from multiguard.smooth import Smoother
from multiguard.smooth.torch_engine import image_tensor, to_pixels

Progress = Callable[[int], None]
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
    image: NDArray[np.float32]  # the perturbed image
    counts: NDArray[np.int64]  # (c,), how many of the evaluation draws hit each label

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
    that number of pixels, or in one square patch of that side.
    Draws of the search choose the perturbations, and draws that had no part in it evaluate them: `Perturbation.counts`
    are independent draws of the smoothed classifier at an image that was fixed before. Neither are the draws that
    certify. On a CPU the search is a function of the seed and the images. `progress` is called with the images done.

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
    victims = iter(victims)
    for first in islice(victims, 1):
        smoother.find_labels(first.image)
        victims = chain([first], victims)
    target, done = SmoothedTarget(smoother, rule, config.seed), 0
    for shape, alike in groupby(victims, key=lambda victim: victim.image.shape):
        size = max(1, min(_GROUP_IMAGES, _GROUP_NUMBERS // max(1, math.prod(shape))))
        while batch := list(islice(alike, size)):
            yield from _attack_group(target, batch, config)
            done += len(batch)
            if progress is not None:
                progress(done)


def _attack_group(target: SmoothedTarget, victims: Sequence[Victim], config: AttackConfig) -> list[AttackResult]:
    """All attacks on images of one shape, and every perturbation evaluated by fresh draws."""
    rule, ids = target.rule, tuple(victim.id for victim in victims)
    inputs = [image_tensor(victim.id, victim.image, target.classifier.image_size) for victim in victims]
    clean = torch.stack([to_pixels(each.to(target.device)) for each in inputs])
    inside = torch.zeros(len(victims), len(target.classifier.label_names), dtype=torch.bool)
    for row, victim in zip(inside, victims, strict=True):
        row[list(victim.labels)] = True
    inside, flat = inside.to(target.device), set[str]()
    found: list[_Found] = [
        (index, CLEAN, goal, 0.0, image) for goal in goals(rule) for index, image in enumerate(clean)
    ]
    for goal in goals(rule):
        group = ImageGroup(ids, config.seed, clean, inside if goal == "in" else ~inside)
        objective = Objective(rule, "hide" if goal == "in" else "add")
        for name in config.attacks:
            search = Search(name, target, THREATS[target.attacker], objective, config)
            reached = _search_radii(search, group, [victim.radii for victim in victims])
            found += [(index, name, goal, radius, image) for index, radius, image in reached]
            flat |= search.flat
    perturbations: list[list[Perturbation]] = [[] for _ in victims]
    for index, found_at in _evaluated(target, ids, clean, found, config.draws):
        perturbations[index].append(found_at)
    pairs = zip(victims, perturbations, strict=True)
    return [AttackResult(victim, tuple(each), victim.id in flat) for victim, each in pairs]


_Found = tuple[int, str, Goal, float, Tensor]  # the index of the image, the attack, its goal, the radius, the image


def _search_radii(
    search: Search, group: ImageGroup, radii: Sequence[tuple[float, ...]]
) -> Iterator[tuple[int, float, Tensor]]:
    """What an attack finds at every radius of every image, each from what it found at the one before."""
    best = search.compare(group, group.clean)
    for turn in range(max(map(len, radii))):
        allowed = [index for index, own in enumerate(radii) if turn < len(own)]
        active = [index for index in allowed if best.values[index] > _NOTHING_LEFT]
        if active:
            radius = torch.tensor([radii[index][turn] for index in active], dtype=torch.float64)
            radius = radius.to(group.clean.device)
            best = best.put(active, search.improve(group.take(active), turn, radius, best.take(active)))
        yield from ((index, radii[index][turn], best.images[index]) for index in allowed)


def _evaluated(
    target: SmoothedTarget, ids: Sequence[str], clean: Tensor, found: Sequence[_Found], draws: int
) -> Iterator[tuple[int, Perturbation]]:
    """Every perturbation with its hits in fresh draws; equal images are evaluated once."""
    pixels = [image.cpu().numpy() for *_, image in found]
    keys = [(each[0], hashlib.blake2b(image.tobytes()).digest()) for each, image in zip(found, pixels, strict=True)]
    images = dict(zip(keys, pixels, strict=True))
    counted = target.counts([ids[index] for index, _ in images], images.values(), draws, "judge")
    counts = dict(zip(images, counted, strict=True))
    for key, (index, attack, goal, radius, image) in zip(keys, found, strict=True):
        norm = float(THREATS[target.attacker].distances(clean[index][None], image[None])[0])
        yield index, Perturbation(attack, goal, radius, norm, images[key], counts[key])
