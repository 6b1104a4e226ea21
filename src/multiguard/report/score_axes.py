"""Certified scores on axes of the caller: exact steps, one line per method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from multiguard.certify import Method
from multiguard.certify.arrays import Floats
from multiguard.evaluate import Averaging, Certificates, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_STEPS = 2000
_SCORE_AXIS = {"recall": "certified recall", "precision": "certified precision", "f1": "certified F1"}


def draw_scores(
    results: Results,
    axes: Axes | None,
    score: str,
    methods: Sequence[Method],
    averaging: Averaging,
    style: dict[str, Any],
) -> Axes:
    """Draw one line per method; the arguments are those of `Results.plot`."""
    if axes is None:
        from matplotlib import pyplot

        _, axes = pyplot.subplots()
    last = float(results.curves[0].scores.radius[-1])
    for method in methods:
        radius = step_radii(results.certificates, method, last)
        values = getattr(results.curve(radius, method=method, averaging=averaging).scores, score)
        # A score holds up to and including its radius: beyond the radius before it, the value of the next one counts.
        axes.step(radius, values, where="pre", **{"label": method, **style})
    axes.set(xlabel=results.certificates.noise.axis_label, ylabel=_SCORE_AXIS[score], ylim=(0, 1.02), xlim=(0, None))
    axes.legend()
    return axes


def step_radii(certificates: Certificates, method: Method, last: float) -> Floats:
    """0, every radius at which a score of this method falls, and `last` if that is more; a grid if they are too many.

    Between two radii of a grid the value of the larger one is drawn, so that no step is drawn too high.
    """
    false = [] if certificates.false_radii is None else [certificates.false_radii[method].values]
    falls: Floats = np.unique(np.concatenate([[0.0, last], certificates.radii[method].values, *false]))
    falls = falls[np.isfinite(falls) & (falls >= 0)]
    if len(falls) <= _MOST_STEPS:
        return falls
    grid = np.linspace(0.0, falls[-1], _MOST_STEPS)
    return np.unique(np.floor(grid)) if certificates.noise.whole else grid
