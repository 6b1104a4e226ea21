"""Any m pixels, or one square patch of side m: what is counted, and what the searches find."""

import numpy as np
import pytest
import torch
from torch import nn

from multiguard.attack import AttackConfig, Hide, pgd, random_search
from multiguard.attack.threats import Patch, Pixels
from multiguard.certify import TopK
from multiguard.errors import InvalidInputError

SIZE = 12


class Needles(nn.Module):
    """The first label leads by 3.5; each of some pixels takes one off it when its first channel is 1."""

    def __init__(self, places):
        super().__init__()
        weights = torch.zeros(1, SIZE, SIZE)
        for row, column in places:
            weights[0, row, column] = 1
        self.register_buffer("weights", weights)

    def forward(self, images):
        taken = (images[:, 0] * self.weights).sum(dim=(1, 2))
        still = torch.tensor([0.0, -2.0, -6.0]).expand(len(images), 3)
        return torch.cat([(3.5 - taken)[:, None], still], dim=1)


def search(attack, places, attacker, radius, **effort):
    images = np.zeros((2, 3, SIZE, SIZE), dtype=np.float32)
    how = {"labels": ["cat", "dog", "emu", "fox"], "device": "cpu", "attacker": attacker, "radius": radius}
    return attack(Needles(places), images, Hide("cat"), TopK(1, 1), **how, config=AttackConfig(**effort))


SCATTERED = [(0, 0), (11, 3), (5, 7), (2, 10), (8, 8)]
SQUARE = [(4, 5), (4, 7), (6, 5), (6, 7), (5, 6)]


def test_distances():
    """Pixels count once for all channels; the side of a patch is that of the smallest square around them."""
    clean = torch.zeros(3, 3, SIZE, SIZE)
    images = clean.clone()
    images[1, :, 2, 3] = 0.5
    images[2, 0, 2, 3] = 1e-30
    images[2, 1, 6, 4] = 1
    assert Pixels().distances(clean, images).tolist() == [0, 1, 2]
    assert Patch().distances(clean, images).tolist() == [0, 1, 5]


@pytest.mark.parametrize(("attacker", "places", "enough"), [("pixels", SCATTERED, 4), ("patch", SQUARE, 3)])
def test_gradients(attacker, places, enough):
    """Gradients find four scattered pixels, or the one patch that holds four of five; fewer cannot do it."""
    found = search(pgd, places, attacker, enough, steps=6)
    assert found.success.all()
    assert np.all(found.norms <= enough)
    assert found.inputs.min() >= 0
    assert found.inputs.max() <= 1
    assert not search(pgd, places, attacker, enough - 1, steps=6).success.any()


@pytest.mark.parametrize(("attacker", "places", "radius"), [("pixels", SCATTERED, 40), ("patch", SQUARE, 4)])
def test_scores(attacker, places, radius):
    """Scores alone find a perturbation of some more pixels, and never one of more than allowed."""
    found = search(random_search, places, attacker, radius, tries=300)
    assert found.success.all()
    assert np.all(found.norms <= radius)


def test_mistakes():
    """Vectors have no pixels, less than one pixel is none, and an unknown attacker is named."""
    for inputs, radius, attacker, message in (
        (np.zeros((1, 4)), 1, "pixels", "needs images"),
        (np.zeros((1, 3, 4, 4)), 0.5, "patch", "counts pixels"),
        (np.zeros((1, 4)), 1, "l0", "l1-norm"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            pgd(
                lambda x: x.flatten(1)[:, :2],
                inputs,
                Hide(0),
                TopK(1, 1),
                radius=radius,
                attacker=attacker,
                labels=["cat", "dog"],
            )
