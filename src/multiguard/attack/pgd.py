"""Projected gradient descent on the smoothed classifier, inside an l2-ball."""

import numpy as np
import torch
from torch import Tensor

from multiguard.attack.aim import Aim
from multiguard.attack.ball import scaled, unit, within
from multiguard.attack.eot import SoftVotes
from multiguard.attack.group import Found, Group
from multiguard.attack.plan import AttackPlan
from multiguard.attack.referee import Referee
from multiguard.smooth import Smoother

_REACH = 2.5  # how many radii all steps of a start lead together


class GradientSearch:
    """Steps of one length against the gradient, back into the ball after each; the best end of all starts wins.

    Args:
        smoother: The smoothed classifier, of a network that has gradients.
        referee: Compares what the starts ended with.
        aim: What is to be made small.
        plan: How many starts and steps.
        flat: Takes the ids of images at which some gradient was 0 or not finite, so that a step led nowhere.
    """

    def __init__(self, smoother: Smoother, referee: Referee, aim: Aim, plan: AttackPlan, flat: set[str]) -> None:
        self._referee, self._aim, self._plan, self._flat = referee, aim, plan, flat
        self._soft = SoftVotes(smoother, aim, plan.copies)

    def improve(self, group: Group, rank: int, radius: Tensor, found: Found) -> Found:
        """The best of what was found at smaller radii and of new starts at these radii.

        Args:
            group: The images.
            rank: How many smaller radii were searched before: it decides the draws.
            radius: (P,) float64, the norms allowed.
            found: What smaller radii gave.
        """
        best = found
        for start in range(self._plan.starts):
            image = found.images if start == 0 else self._random(group, rank, start, radius)
            for step in range(self._plan.steps):
                turn = (rank * self._plan.starts + start) * self._plan.steps + step
                image = self._stepped(group, image, radius, turn)
            ended = self._referee.compare(group, image, self._aim, self._plan.pick_draws)
            best = best.better(ended)
        return best

    def _stepped(self, group: Group, image: Tensor, radius: Tensor, turn: int) -> Tensor:
        # The first draws of the stream compare; each step has draws of its own after them.
        slope = self._soft.gradients(group, image, self._plan.pick_draws + turn * self._plan.copies)
        usable = torch.isfinite(slope).flatten(1).all(dim=1) & (slope != 0).flatten(1).any(dim=1)
        self._flat.update(name for name, has in zip(group.ids, usable.tolist(), strict=True) if not has)
        length = _REACH * radius / self._plan.steps
        return within(group.clean, image - scaled(unit(slope), length), radius, box=self._plan.box)

    def _random(self, group: Group, rank: int, start: int, radius: Tensor) -> Tensor:
        """A random place on each image's sphere."""
        shape = tuple(group.clean.shape[1:])
        drawn = [
            group.chance(place, 1, rank, start).standard_normal(shape, dtype=np.float32) for place in range(len(group))
        ]
        away = torch.from_numpy(np.stack(drawn)).to(group.clean.device)
        return within(group.clean, group.clean + away, radius, box=self._plan.box, onto=True)
