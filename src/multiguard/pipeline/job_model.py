"""What the votes of a command need beside a model: its device, and its score threshold."""

import torch

from multiguard.certify.rules import RuleName
from multiguard.io.ranks import this_rank

_DEFAULT_SCORE_THRESHOLD = 0.5


def own_device(device: str | None) -> str | None:
    """The requested device; of several processes on one machine each takes its own GPU if none was named."""
    rank, gpus = this_rank(), torch.cuda.device_count()
    return f"cuda:{rank.local % gpus}" if rank.count > 1 and gpus and device in (None, "cuda") else device


def score_threshold(rule: RuleName, given: float | None) -> float | None:
    """The probability from which the base classifier returns a label; None for the top-k rule, unless one is given."""
    return _DEFAULT_SCORE_THRESHOLD if rule == "threshold" and given is None else given
