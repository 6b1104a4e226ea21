"""Certified precision, recall and F1: by hand, against loops, and what they imply."""

import numpy as np
import pytest

from multiguard import Radii, Threshold, TopK
from multiguard.errors import InvalidInputError
from multiguard.evaluate import set_scores
from multiguard.evaluate.curves import AVERAGINGS


def top_k_radii(*true: float) -> Radii:
    return Radii(np.array(true), None)


RULE = TopK(3, 2)
RADII = [top_k_radii(0.5, 0.2), top_k_radii(0.3), top_k_radii(np.inf, 0.1, -np.inf), top_k_radii()]
TRUE = [2, 1, 5, 0]


def test_one_image() -> None:
    """The scores of one image, by hand."""
    scores = set_scores([RADII[2]], RULE, num_true=[5], radius=[0.0, 0.1, 0.2])
    np.testing.assert_allclose(scores.precision, [2 / 3, 2 / 3, 1 / 3])
    np.testing.assert_allclose(scores.recall, [2 / 5, 2 / 5, 1 / 5])
    np.testing.assert_allclose(scores.f1, [4 / 8, 4 / 8, 2 / 8])
    assert (scores.images, scores.without_labels) == (1, 0)


def test_false_labels_of_images_without_labels() -> None:
    """An image without labels returns only wrong ones: they lower pooled precision and F1, and raise the ceiling."""
    radii, num_true = [top_k_radii(1.0), top_k_radii()], [1, 0]
    mean, pooled = (set_scores(radii, TopK(2, 2), num_true=num_true, radius=0.5, averaging=a) for a in AVERAGINGS)
    assert (mean.precision, mean.recall, mean.f1) == (1 / 2, 1, 2 / 3)
    assert (pooled.precision, pooled.recall, pooled.f1) == (1 / 4, 1, 2 / 5)
    for scores in (mean, pooled):
        assert (scores.true_floor, scores.false_ceiling) == (1, 3 / 2)
        assert (scores.images, scores.without_labels) == (1, 1)


def test_radius_shapes() -> None:
    """Radii may have any shape."""
    assert set_scores(RADII, RULE, num_true=TRUE, radius=0.1).recall.shape == ()
    assert set_scores(RADII, RULE, num_true=TRUE, radius=np.zeros((2, 4))).f1.shape == (2, 4)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_true": [2, 1, 5]}, "one entry per image"),
        ({"num_true": [2, 1, 2, 0]}, "image 2"),
        ({"rule": TopK(2, 2)}, "image 2"),
        ({"rule": Threshold(0.5)}, "another rule"),
        ({"averaging": "micro"}, "choose"),
        ({"radii": [top_k_radii()], "num_true": [0]}, "nothing to average"),
        ({"radii": [top_k_radii(0.1, 0.2)], "num_true": [2]}, "non-increasing"),
    ],
)
def test_refused_scores(change, says: str) -> None:
    """Radii of another rule or image are refused."""
    with pytest.raises(InvalidInputError, match=says):
        set_scores(**{"radii": RADII, "rule": RULE, "num_true": TRUE, "radius": 0.1, **change})
