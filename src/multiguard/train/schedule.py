"""The learning rate as a function of the step, so that a resumed run needs no memory of it."""

import math

_START = 1 / 25
_END = 1e-4


def one_cycle(step: int, steps: int, peak: float, warmup: float = 0.1) -> float:
    """The one-cycle rate at this step (from 0): a cosine up to `peak` in the share `warmup`, then one down.

    It starts at peak / 25 and ends at peak / 10,000.
    """
    top = warmup * steps
    if step < top:
        return _cosine(_START * peak, peak, step / top)
    return _cosine(peak, _END * peak, (step - top) / max(steps - 1 - top, 1))


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * min(share, 1.0))) / 2
