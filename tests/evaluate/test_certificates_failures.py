"""Images that could not be voted on: nothing is claimed of them, no average has them, every summary counts them."""

import numpy as np
import pytest
from tests.evaluate.votes_cases import KINDS, as_lists, config_of, source_of, votes_of_kind

from multiguard.errors import ImageFailure, InvalidInputError
from multiguard.evaluate import curves, make_certificates

RADII = np.array([0.0, 0.25, 0.5])
FAILED = {1: "the file is empty", 4: "draw 7: the classifier returned a score that is NaN or infinite", 8: "gone"}


@pytest.mark.parametrize("kind", ["top-k", "adaptive", "unlabelled threshold"])
def test_other_images(tmp_path, kind):
    """The other images are certified and averaged as if the failed ones had never been there."""
    some = votes_of_kind(tmp_path / "some", failed=FAILED, **KINDS[kind])
    every = votes_of_kind(tmp_path / "every", **KINDS[kind])
    config, source = config_of(some), source_of(some)
    found, every_image = (make_certificates(config, votes, labels=source) for votes in (some, every))
    kept, (method,) = [index for index in range(9) if index not in FAILED], found.methods
    assert found.ids == tuple(every_image.ids[index] for index in kept)
    for name in ("labels", "label_radii", "predicted", "predicted_hits", "draws"):
        assert as_lists(getattr(found, name)) == [as_lists(getattr(every_image, name)[index]) for index in kept]
    assert as_lists(found.radii[method]) == [as_lists(every_image.radii[method][index]) for index in kept]
    assert found.failures == tuple(ImageFailure(some.provenance.image_ids[i], reason) for i, reason in FAILED.items())
    made = curves(found, RADII)
    assert [curve.failed for curve in made] == [3, 3]
    assert all(curve.scores.images + curve.scores.without_labels == 6 for curve in made)
    recall = next(curve.scores.recall for curve in made if curve.averaging == "mean")
    fractions = [np.searchsorted(-radii, -RADII, side="right") / len(own) for radii, own in certified(found)]
    np.testing.assert_allclose(recall, np.mean(fractions, axis=0))


def certified(found):
    """The radii and labels of each image that has labels."""
    images = zip(found.radii[found.methods[0]], found.labels, strict=True)
    return [(np.maximum.accumulate(radii[::-1])[::-1], own) for radii, own in images if own]


def test_only_failures(tmp_path):
    """Votes of nothing but failures certify nothing."""
    votes = votes_of_kind(tmp_path, images=2, failed={0: "gone", 1: "gone"})
    with pytest.raises(InvalidInputError, match="nothing to certify: all 2 images failed"):
        make_certificates(config_of(votes), votes)
