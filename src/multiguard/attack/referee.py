"""Votes on changed images: a few to compare changes while searching, fresh ones to judge what was found."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.aim import Aim
from multiguard.attack.group import Found, Group
from multiguard.certify import Rule
from multiguard.smooth import Smoother
from multiguard.smooth.noise import Stream
from multiguard.smooth.prediction import as_array


class Referee:
    """Counts hits of images, always on the same draws of an image, so that two changes of it compare fairly.

    Args:
        smoother: The smoothed classifier; nothing is asked of it but votes, so that any callable will do.
        rule: Which smoothed classifier is meant.
        seed: The seed of the noise.
    """

    def __init__(self, smoother: Smoother, rule: Rule, seed: int) -> None:
        self._smoother, self._rule, self._seed = smoother, rule, seed

    def counts(self, ids: Sequence[str], images: Iterable[Tensor], draws: int, stream: Stream) -> NDArray[np.int64]:
        """(images, c), in how many draws of each image each label was hit."""
        labels = len(self._smoother.classifier.label_names)
        jobs = (
            self._smoother.job(image, draws, seed=self._seed, image_id=name, stream=stream)
            for name, image in zip(ids, images, strict=True)
        )
        runs = self._smoother.run(jobs, steady=True)
        return np.stack([self._rule.hits(as_array(votes, self._rule), labels) for _, votes in runs])

    def compare(self, group: Group, images: Tensor, aim: Aim, draws: int) -> Found:
        """The images with their values for the attack, from draws of the search."""
        shares = torch.from_numpy(self.counts(group.ids, images, draws, "attack") / draws)
        return Found(images, aim.value(shares.to(group.inside.device), group.inside))
