"""Votes on changed images: a few to compare changes while searching, fresh ones to judge what was found."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multiguard.attack.aim import Aim
from multiguard.attack.group import Found, Group
from multiguard.smooth import Smoother
from multiguard.smooth.asked import Asked, TopK
from multiguard.smooth.noise import Stream
from multiguard.votes import DrawVotes
from multiguard.votes.row import as_hits, as_ranked


class Referee:
    """Counts hits of images, always on the same draws of an image, so that two changes of it compare fairly.

    Args:
        smoother: The smoothed classifier; nothing is asked of it but votes, so that any callable will do.
        asked: Which smoothed classifier is meant.
        seed: The seed of the noise.
    """

    def __init__(self, smoother: Smoother, asked: Asked, seed: int) -> None:
        self._smoother, self._asked, self._seed = smoother, asked, seed

    def counts(self, ids: Sequence[str], images: Iterable[Tensor], draws: int, stream: Stream) -> NDArray[np.int64]:
        """(images, c), in how many draws of each image each label was hit."""
        labels = len(self._smoother.classifier.label_names)
        jobs = (
            self._smoother.job(image, draws, seed=self._seed, image_id=name, stream=stream)
            for name, image in zip(ids, images, strict=True)
        )
        found = [hit_counts(votes, self._asked, labels) for _, votes in self._smoother.run(jobs, steady=True)]
        return np.stack(found)

    def compare(self, group: Group, images: Tensor, aim: Aim, draws: int) -> Found:
        """The images with their values for the attack, from draws of the search."""
        shares = torch.from_numpy(self.counts(group.ids, images, draws, "attack") / draws)
        return Found(images, aim.value(shares.to(group.inside.device), group.inside))


def hit_counts(votes: DrawVotes, asked: Asked, num_labels: int) -> NDArray[np.int64]:
    """(c,), in how many of the draws each label was hit."""
    if isinstance(asked, TopK):
        return np.bincount(as_ranked(votes)[:, : asked.k_prime].ravel(), minlength=num_labels)
    return np.asarray(as_hits(votes).sum(axis=0), dtype=np.int64)
