"""Attacking images radius by radius: what a smaller radius found is where a larger one goes on."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.aim import Aim
from multiguard.attack.ball import norms
from multiguard.attack.group import Found, Group
from multiguard.attack.pgd import GradientSearch
from multiguard.attack.plan import AttackName, AttackPlan
from multiguard.attack.random_search import RandomSearch
from multiguard.attack.referee import Referee
from multiguard.certify import Rule, TopK
from multiguard.evaluate.attacked import CLEAN
from multiguard.evaluate.judged import Goal
from multiguard.smooth import Smoother
from multiguard.smooth.images import as_input, placed
from multiguard.smooth.noise import noise_key
from multiguard.smooth.step import to_pixels

Counts = NDArray[np.int64]
# Images attacked at once: they fill batches, and the random search goes from one towards another. All that is found
# of them is held until it is judged, and so there are fewer of large images.
_TOGETHER = 64
_NUMBERS = 1 << 22
# Where the value is below this, nothing is left, and clearly so: larger radii need no new search.
_NOTHING_LEFT = -0.25


@dataclass(frozen=True, eq=False)
class Victim:
    """An image to attack.

    Attributes:
        id: Its id, which keys the noise.
        image: (3, height, width) or any shape: uint8 (a value is x / 255) or floating point.
        labels: The indices of L, at least one.
        radii: The norms allowed, from small to large, all above 0.
    """

    id: str
    image: NDArray[np.generic]
    labels: tuple[int, ...]
    radii: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Change:
    """A changed image and its hits in fresh draws.

    Attributes:
        attack: What found it; "none" for the image as it is.
        goal: What was to be made small.
        radius: The norm allowed.
        norm: The norm of the change, in exact differences of the float32 values, never more.
        image: The changed image, float32.
        counts: (c,), in how many of the judging draws each label was hit.
    """

    attack: str
    goal: Goal
    radius: float
    norm: float
    image: NDArray[np.float32]
    counts: Counts


@dataclass(frozen=True, eq=False)
class Attacked:
    """A victim and every change that was found, the image as it is first.

    Attributes:
        victim: The image.
        changes: What was found.
        flat: Whether some gradient was 0 or not finite, so that a step of pgd led nowhere.
    """

    victim: Victim
    changes: tuple[Change, ...]
    flat: bool = False


class _Search(Protocol):
    def improve(self, group: Group, rank: int, radius: Tensor, found: Found) -> Found: ...


def attack_images(
    smoother: Smoother,
    victims: Iterable[Victim],
    rule: Rule,
    plan: AttackPlan,
    *,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Attacked]:
    """For each image and radius the change of at most that norm after which an attack found the fewest labels left.

    The changes are chosen by draws of the search alone, and judged by draws that had no part in it: what is counted in
    `Change.counts` are independent draws of the smoothed classifier at an image fixed before them. Neither draws are
    those that certify. The search is a function of the seed and the images, the same every time on a CPU.

    Args:
        smoother: The smoothed classifier; `pgd` takes gradients through its network, `random` asks for scores alone.
        victims: The images.
        rule: Which smoothed classifier; the votes of the smoother must be such as it needs.
        plan: Which attacks, and how hard they try.
        progress: Called with the number of images done.
    """
    smoother.settings.check_rule(rule, len(smoother.classifier.label_names))
    done = 0
    for shape, alike in groupby(victims, key=lambda victim: victim.image.shape):
        most = max(1, min(_TOGETHER, _NUMBERS // max(1, math.prod(shape))))
        while together := list(islice(alike, most)):
            yield from _attacked(smoother, together, rule, plan)
            done += len(together)
            if progress is not None:
                progress(done)


def _attacked(smoother: Smoother, victims: Sequence[Victim], rule: Rule, plan: AttackPlan) -> list[Attacked]:
    group = _group(smoother, victims, plan.seed)
    referee = Referee(smoother, rule, plan.seed)
    found = [
        _Pending(CLEAN, goal, 0.0, place, group.clean[place]) for goal in _goals(rule) for place in range(len(group))
    ]
    flat: set[str] = set()
    for goal in _goals(rule):
        aim = Aim(rule, goal)
        for name in plan.attacks:
            search = _search(name, smoother, referee, aim, plan, flat)
            start = referee.compare(group, group.clean, aim, plan.pick_draws)
            found += _by_radius(victims, group, search, start, name, goal)
    judged = _judged(victims, group, referee, found, plan.judge_draws)
    return [replace(each, flat=each.victim.id in flat) for each in judged]


def _goals(rule: Rule) -> tuple[Goal, ...]:
    return ("in",) if isinstance(rule, TopK) else ("in", "out")


def _search(
    name: AttackName, smoother: Smoother, referee: Referee, aim: Aim, plan: AttackPlan, flat: set[str]
) -> _Search:
    if name == "pgd":
        return GradientSearch(smoother, referee, aim, plan, flat)
    return RandomSearch(smoother, referee, aim, plan)


def _group(smoother: Smoother, victims: Sequence[Victim], seed: int) -> Group:
    settings, classifier = smoother.settings, smoother.classifier
    inside = torch.zeros(len(victims), len(classifier.label_names), dtype=torch.bool)
    for row, victim in zip(inside, victims, strict=True):
        row[list(victim.labels)] = True
    clean = [
        to_pixels(placed(as_input(victim.id, victim.image, classifier.image_size), settings.device))
        for victim in victims
    ]
    keys = tuple(noise_key(seed, victim.id, "attack") for victim in victims)
    return Group(tuple(victim.id for victim in victims), keys, torch.stack(clean), inside.to(settings.device))


@dataclass(frozen=True, eq=False)
class _Pending:
    """A change that is not judged yet."""

    attack: str
    goal: Goal
    radius: float
    place: int
    image: Tensor


def _by_radius(
    victims: Sequence[Victim], group: Group, search: _Search, found: Found, name: str, goal: Goal
) -> list[_Pending]:
    """What one attack finds at every radius of every image."""
    pending: list[_Pending] = []
    for rank in range(max(len(victim.radii) for victim in victims)):
        asked = [place for place, victim in enumerate(victims) if rank < len(victim.radii)]
        active = [place for place in asked if found.values[place] > _NOTHING_LEFT]
        if active:
            radius = torch.tensor([victims[place].radii[rank] for place in active], dtype=torch.float64)
            better = search.improve(group.take(active), rank, radius.to(group.clean.device), found.take(active))
            found = found.put(active, better)
        pending += [_Pending(name, goal, victims[place].radii[rank], place, found.images[place]) for place in asked]
    return pending


def _judged(
    victims: Sequence[Victim], group: Group, referee: Referee, pending: Sequence[_Pending], draws: int
) -> list[Attacked]:
    """Every change with its hits in fresh draws; one that comes twice is judged once."""
    different: dict[tuple[int, bytes], _Pending] = {}
    for each in pending:
        different.setdefault(_name(each), each)
    ids = [group.ids[each.place] for each in different.values()]
    counts = referee.counts(ids, [each.image for each in different.values()], draws, "judge")
    by_name = dict(zip(different, counts, strict=True))
    changes: list[list[Change]] = [[] for _ in victims]
    for each in pending:
        changes[each.place].append(_change(group, each, by_name[_name(each)]))
    return [Attacked(victim, tuple(own)) for victim, own in zip(victims, changes, strict=True)]


def _name(each: _Pending) -> tuple[int, bytes]:
    return each.place, hashlib.blake2b(each.image.cpu().numpy().tobytes()).digest()


def _change(group: Group, each: _Pending, counts: Counts) -> Change:
    norm = float(norms(group.clean[each.place][None], each.image[None])[0])
    return Change(each.attack, each.goal, each.radius, norm, each.image.cpu().numpy(), counts)
