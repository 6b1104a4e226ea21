"""Small training runs, and how to interrupt them."""

import torch

from multiguard.models.backbone import build_backbone
from multiguard.train import hyperparameters_for

SMALL = hyperparameters_for("digits", epochs=4, batch=16, sigma=0.25, ramp_epochs=2, lr=5e-3)


def backbone():
    torch.manual_seed(0)
    return build_backbone("cnn:4", 10, dropout=0.2)


class KilledError(Exception):
    """Stands for a kill of the process."""


def kill_after(epoch):
    def stop(record):
        if record["epoch"] == epoch:
            raise KilledError

    return stop
