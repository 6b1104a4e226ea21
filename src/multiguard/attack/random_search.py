"""Random search inside an l2-ball: no gradients, only scores, so that it attacks whatever can be called."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.aim import Aim
from multiguard.attack.ball import scaled, unit, within
from multiguard.attack.eot import SoftVotes
from multiguard.attack.group import Found, Group
from multiguard.attack.plan import AttackPlan
from multiguard.attack.referee import Referee
from multiguard.smooth import Smoother

_IMAGE = 3
_LEAST_STEP = 0.15  # of the radius, at the last try
_COARSE = 4  # pixels that smooth noise holds alike, a side


class RandomSearch:
    """Tries changes one after the other, each a step away from the best so far, and keeps what lowers the value.

    Steps go, in turn, towards another image of the group, along smooth noise, towards a square of another image,
    and towards a square of one colour in place of what is there; they grow shorter from try to try.

    Args:
        smoother: The smoothed classifier, of whatever returns scores.
        referee: Compares what was found with what smaller radii gave.
        aim: What is to be made small.
        plan: How many tries.
    """

    def __init__(self, smoother: Smoother, referee: Referee, aim: Aim, plan: AttackPlan) -> None:
        self._referee, self._aim, self._plan = referee, aim, plan
        self._soft = SoftVotes(smoother, aim, plan.copies)

    def improve(self, group: Group, rank: int, radius: Tensor, found: Found) -> Found:
        """The best of what was found at smaller radii and of new tries at these; arguments as of `GradientSearch`."""
        chances = [group.chance(place, 2, rank) for place in range(len(group))]
        longest = within(group.clean, found.images, radius, box=self._plan.box, onto=True)
        best = self._tried(group, rank, longest)
        for turn in range(self._plan.tries):
            left = 1 - turn / self._plan.tries
            away = self._directions(group, chances, turn, left)
            step = scaled(unit(away), radius * max(_LEAST_STEP, left))
            tried = within(group.clean, best.images + step, radius, box=self._plan.box, onto=True)
            best = best.better(self._tried(group, rank, tried))
        return found.better(self._referee.compare(group, best.images, self._aim, self._plan.pick_draws))

    def _tried(self, group: Group, rank: int, images: Tensor) -> Found:
        """All tries of one radius meet the same draws, so that only the changes differ."""
        first_draw = self._plan.pick_draws + rank * self._plan.copies
        return Found(images, self._soft.values(group, images, first_draw))

    def _directions(self, group: Group, chances: list[np.random.Generator], turn: int, left: float) -> Tensor:
        """For each image where to go next."""
        clean = group.clean.cpu().numpy()
        drawn = [_direction(clean, place, chance, turn, left) for place, chance in enumerate(chances)]
        return torch.from_numpy(np.stack(drawn)).to(group.clean.device)


def _direction(
    clean: NDArray[np.float32], place: int, chance: np.random.Generator, turn: int, left: float
) -> NDArray[np.float32]:
    """Where to go from an image: each kind in turn, as far as its shape and its neighbours allow."""
    own, shape = clean[place], clean.shape[1:]
    other = clean[(place + int(chance.integers(1, len(clean)))) % len(clean)] if len(clean) > 1 else 1 - own
    if len(shape) != _IMAGE:
        return other - own if turn % 2 else chance.standard_normal(shape, dtype=np.float32)
    if turn % 4 == 0:
        return np.asarray(other - own)
    if turn % 4 == 1:
        return _smooth(shape, chance)
    square = _square(shape, chance, left)
    flat = np.broadcast_to(own[square].reshape(shape[0], -1).mean(axis=1)[:, None, None], shape)
    return np.where(square, (other if turn % 4 == 2 else flat) - own, np.float32(0))


def _square(shape: tuple[int, ...], chance: np.random.Generator, left: float) -> NDArray[np.bool_]:
    """A square somewhere in the image, smaller from try to try."""
    _, height, width = shape
    side = max(1, round(min(height, width) * (0.2 + 0.4 * left)))
    top, start = int(chance.integers(0, height - side + 1)), int(chance.integers(0, width - side + 1))
    found = np.zeros(shape, dtype=np.bool_)
    found[:, top : top + side, start : start + side] = True
    return found


def _smooth(shape: tuple[int, ...], chance: np.random.Generator) -> NDArray[np.float32]:
    """Noise in blocks of a few pixels."""
    channels, height, width = shape
    coarse = chance.standard_normal((channels, -(-height // _COARSE), -(-width // _COARSE)), dtype=np.float32)
    return coarse.repeat(_COARSE, axis=1).repeat(_COARSE, axis=2)[:, :height, :width]
