"""Mean average precision over labels."""

import numpy as np
from numpy.typing import NDArray


def mean_average_precision(scores: NDArray[np.floating], targets: NDArray[np.integer]) -> float:
    """The mean average precision over the labels that at least one image carries.

    Args:
        scores: (n, c), higher for more likely; only their order within a label matters.
        targets: (n, c), 1 where the label is present.

    Returns:
        A value in [0, 1]; nan where no label has a positive image.
    """
    from sklearn.metrics import average_precision_score

    carried = np.flatnonzero(targets.any(axis=0))
    if not len(carried):
        return float("nan")
    return float(np.mean([average_precision_score(targets[:, j], scores[:, j]) for j in carried]))
