"""On a CPU a vote does not depend on what shares its batch, so that a run in any parts ends with the same bits."""

import numpy as np
import torch
from torch import Tensor, nn
from toy import Images

from multiguard.models import load_classifier
from multiguard.smooth import Smoother, vote_dataset
from multiguard.votes import read_votes


def test_votes_of_a_real_network_are_the_same_in_any_parts(tmp_path):
    """The scores of this network are all but equal, and their last bits change with the size of a batch."""
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(48, 400), nn.ReLU(), nn.Linear(400, 1, bias=False))

    def scores(images: Tensor) -> Tensor:
        found = wide(images)
        return torch.cat([found, wide(images.flip(0)).flip(0), *[found * 0] * 3], dim=1)

    def voted(folder, shard_images, calls):
        classifier = load_classifier(scores, labels=list("abcde"), output="logits", name="wide")
        one = Smoother(classifier, sigma=0.5, device="cpu", batch_size=64)
        for stop in calls:
            vote_dataset(one, Images(6), folder, draws=11, seed=0, shard_images=shard_images, stop=stop)
        votes = read_votes(folder)
        return np.stack([votes.ranked(position) for position in range(6)])

    def after(shards):
        left = iter(range(shards))
        return lambda: next(left, None) is None

    whole = voted(tmp_path / "whole", 6, [None])
    parts = voted(tmp_path / "parts", 1, [after(1), after(2), after(1), None])
    assert np.array_equal(parts, whole)
