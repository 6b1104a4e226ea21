"""Small training runs, and how to interrupt them."""

from dataclasses import replace

import torch

from multiguard.models.backbone import build_backbone
from multiguard.train import TrainConfig, loop
from multiguard.train.checkpoint import new_card

SMALL = TrainConfig(epochs=4, batch=16, sigma=0.25, lr=5e-3).resolved("digits")


def backbone(network=None):
    torch.manual_seed(0)
    made = build_backbone("cnn:4", 10, dropout=0.2)
    return made if network is None else replace(made, network=network)


def fit(pixels, val_pixels, config, out, *, start=None, **more):
    """Train a small network on decoded images."""
    start = start or backbone()
    size = tuple(pixels.images.shape[2:])
    card = new_card(start, pixels, val_pixels, size, config.resolved("digits", size), {})
    return loop.fit(card, start.network, pixels, val_pixels, config, out, **more)


class KilledError(Exception):
    """Stands for a kill of the process."""


def kill_after(epoch):
    def stop(record):
        if record["epoch"] == epoch:
            raise KilledError

    return stop
