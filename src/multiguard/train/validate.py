"""Validation on noisy images: the mean average precision that smoothing will feel."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from multiguard.data import Pixels
from multiguard.train.feed import Feed
from multiguard.train.metrics import mean_average_precision
from multiguard.train.noise import VALIDATION, add_noise, derived_seed

_CHUNK = 100


@torch.no_grad()
def noisy_scores(
    classifier: Callable[[Tensor], Tensor],
    feed: Feed,
    sigma: float,
    *,
    seed: int = 0,
    rank: int = 0,
    world: int = 1,
    amp: bool = False,
) -> Tensor:
    """The scores (n, c) of one noisy copy of each image, on noise that only the seed and the device decide.

    Rows that belong to other ranks are zero, so that the sum over the ranks is the whole.
    """
    scores = torch.zeros(feed.targets.shape, device=feed.device)
    chunks = [np.arange(start, min(start + _CHUNK, len(feed))) for start in range(0, len(feed), _CHUNK)]
    ours = range(rank, len(chunks), world)
    generator = torch.Generator(feed.device)
    for number, (images, _) in zip(ours, feed.batches([chunks[i] for i in ours]), strict=True):
        generator.manual_seed(derived_seed(seed, VALIDATION, number))
        noisy = add_noise(images.float() / 255, sigma, generator)
        with torch.autocast(feed.device.type, torch.bfloat16, enabled=amp):
            scores[chunks[number][0] : chunks[number][-1] + 1] = classifier(noisy).float()
    return scores


def noisy_map(classifier: nn.Module, pixels: Pixels, sigma: float, *, seed: int = 0) -> float:
    """The mean average precision of a classifier in eval mode on one noisy copy of each image.

    Args:
        classifier: Images in [0, 1] to one score a label; where its weights lie is where it runs.
        pixels: The decoded images.
        sigma: Deviation of the noise.
        seed: Decides the noise.
    """
    weights = next(classifier.parameters(), None)
    device = torch.device("cpu") if weights is None else weights.device
    scores = noisy_scores(classifier, Feed(pixels, device), sigma, seed=seed)
    return mean_average_precision(scores.cpu().numpy(), pixels.targets)
