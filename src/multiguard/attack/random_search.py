"""Random search inside an l2-ball: no gradients, only votes, so that it attacks whatever can be called."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.aim import Aim
from multiguard.attack.ball import scaled, unit, within
from multiguard.attack.group import Found, Group
from multiguard.attack.plan import AttackPlan
from multiguard.attack.referee import Referee

_PICTURE = 3
_LEAST_STEP = 0.15  # of the radius, at the last try
_COARSE = 4  # pixels that smooth noise holds alike, a side


class RandomSearch:
    """Tries changes one after the other, each a step away from the best so far, and keeps what lowers the value.

    Steps go towards other pictures of the group, along squares of one colour, and along smooth noise, in turn; they
    grow shorter from try to try.

    Args:
        referee: Compares changes.
        aim: What is to be made small.
        plan: How many tries.
    """

    def __init__(self, referee: Referee, aim: Aim, plan: AttackPlan) -> None:
        self._referee, self._aim, self._plan = referee, aim, plan

    def improve(self, group: Group, rank: int, radius: Tensor, found: Found) -> Found:
        """The best of what was found at smaller radii and of new tries at these; arguments as of `GradientSearch`."""
        chances = [group.chance(place, 2, rank) for place in range(len(group))]
        longest = within(group.clean, found.pictures, radius, box=self._plan.box, onto=True)
        best = found.better(self._compared(group, longest))
        for turn in range(self._plan.tries):
            left = 1 - turn / self._plan.tries
            away = self._directions(group, chances, turn, left)
            step = scaled(unit(away), radius * max(_LEAST_STEP, left))
            tried = within(group.clean, best.pictures + step, radius, box=self._plan.box, onto=True)
            best = best.better(self._compared(group, tried))
        return best

    def _compared(self, group: Group, pictures: Tensor) -> Found:
        return self._referee.compare(group, pictures, self._aim, self._plan.pick_draws)

    def _directions(self, group: Group, chances: list[np.random.Generator], turn: int, left: float) -> Tensor:
        """For each picture where to go next."""
        clean = group.clean.cpu().numpy()
        drawn = [_direction(clean, place, chance, turn, left) for place, chance in enumerate(chances)]
        return torch.from_numpy(np.stack(drawn)).to(group.clean.device)


def _direction(
    clean: NDArray[np.float32], place: int, chance: np.random.Generator, turn: int, left: float
) -> NDArray[np.float32]:
    """Towards another picture, along a square, or along smooth noise, in turn."""
    shape = clean.shape[1:]
    if turn % 3 == 0 and len(clean) > 1:
        other = (place + int(chance.integers(1, len(clean)))) % len(clean)
        return clean[other] - clean[place]
    if len(shape) != _PICTURE:
        return chance.standard_normal(shape, dtype=np.float32)
    return _square(shape, chance, left) if turn % 3 == 1 else _smooth(shape, chance)


def _square(shape: tuple[int, ...], chance: np.random.Generator, left: float) -> NDArray[np.float32]:
    """A square of one colour somewhere in the picture, smaller and smaller."""
    channels, height, width = shape
    side = max(1, round(min(height, width) * (0.1 + 0.4 * left)))
    top, start = int(chance.integers(0, height - side + 1)), int(chance.integers(0, width - side + 1))
    found = np.zeros(shape, dtype=np.float32)
    found[:, top : top + side, start : start + side] = chance.choice([-1.0, 1.0], size=(channels, 1, 1))
    return found


def _smooth(shape: tuple[int, ...], chance: np.random.Generator) -> NDArray[np.float32]:
    """Noise in blocks of a few pixels."""
    channels, height, width = shape
    coarse = chance.standard_normal((channels, -(-height // _COARSE), -(-width // _COARSE)), dtype=np.float32)
    return coarse.repeat(_COARSE, axis=1).repeat(_COARSE, axis=2)[:, :height, :width]
