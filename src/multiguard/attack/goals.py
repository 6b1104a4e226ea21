"""What an attack shall achieve, and what it achieved."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multiguard.attack.objective import Kind

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Hide:
    """The labels shall not be returned any more.

    Attributes:
        labels: A label, by index or name, or a list of them, for all inputs; or a multi-hot array (inputs, labels).

    >>> Hide("cat").labels
    'cat'
    """

    labels: Any
    kind: ClassVar[Kind] = "hide"


@dataclass(frozen=True, eq=False)
class Add:
    """The labels shall be returned; `labels` as in `Hide`.

    >>> Add([3, 7]).labels
    [3, 7]
    """

    labels: Any
    kind: ClassVar[Kind] = "add"


@dataclass(frozen=True)
class Change:
    """As many labels as possible shall leave or come in.

    >>> Change()
    Change()
    """

    kind: ClassVar[Kind] = "change"


AttackGoal = Hide | Add | Change


@dataclass(frozen=True, eq=False)
class AdversarialBatch:
    """Perturbed inputs, none further from its input than the radius allows, and what the classifier makes of them.

    Attributes:
        inputs: (N, ...) float32, the perturbed inputs; uint8 images are in [0, 1] here.
        delta: (N, ...) float32, what was added.
        norms: (N,), how much was added to each, in exact differences of float32 values: its norm, the number of
            pixels, or the side of the patch.
        scores_before: (N, c), the scores at the inputs: those of the model or, where it is smoothed, the fraction of
            fresh draws that hit each label.
        scores_after: (N, c), the scores at the perturbed inputs.
        labels_before: (N, c) boolean, the labels returned for the inputs.
        labels_after: (N, c) boolean, those returned for the perturbed inputs.
        success: (N,) boolean, whether the goal is reached: no label to hide is returned, all labels to add are, or
            some label has changed.
    """

    inputs: Floats
    delta: Floats
    norms: NDArray[np.float64]
    scores_before: Floats
    scores_after: Floats
    labels_before: Bools
    labels_after: Bools
    success: Bools

    def __repr__(self) -> str:
        changed = float((self.labels_before != self.labels_after).sum(axis=1).mean())
        return (
            f"AdversarialBatch({int(self.success.sum())} of {len(self.success)} succeeded, {changed:.1f} labels "
            f"changed on average, norms up to {self.norms.max():.3g})"
        )
