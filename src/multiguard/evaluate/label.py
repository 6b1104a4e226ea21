"""How often each label is certified on its own."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from multiguard.evaluate.certificates import Certificates
from multiguard.evaluate.curve import checked_radius
from multiguard.evaluate.scores import Floats


@dataclass(frozen=True, eq=False)
class LabelScores:
    """In which share of the images that have a label it is proved to stay among those returned.

    Where pilot draws chose the labels, an image has those that were chosen.

    Attributes:
        label: The name of the label.
        images: How many images have it; at least 1.
        radius: (radii,), the l2-norms asked about.
        certified: (radii,), the share of these images in which the label alone is certified at each radius.
        failed: How many images of the whole set could not be voted on; they count for no label.
    """

    label: str
    images: int
    radius: Floats
    certified: Floats
    failed: int


def label_scores(certificates: Certificates, radius: ArrayLike) -> list[LabelScores]:
    """For each label that some image has, in index order, how often its own radius reaches so far.

    Args:
        certificates: What `certify_votes` returns.
        radius: (radii,), the l2-norms to ask about.
    """
    asked = checked_radius(radius)
    own: dict[int, list[float]] = {}
    for labels, radii in zip(certificates.labels, certificates.label_radii, strict=True):
        for label, proved in zip(labels, radii.tolist(), strict=True):
            own.setdefault(label, []).append(proved)
    return [
        LabelScores(
            certificates.label_names[label],
            len(own[label]),
            asked,
            np.mean(np.array(own[label])[:, None] >= asked, axis=0),
            len(certificates.failures),
        )
        for label in sorted(own)
    ]
