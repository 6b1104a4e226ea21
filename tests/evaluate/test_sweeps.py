"""Every point of a sweep is what certifying at this point alone gives."""

import pytest
from tests.evaluate.votes_cases import assert_same_curves, random_votes

from multiguard.certify import TopK
from multiguard.certify.noise import Gaussian
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig, certificates, certify_votes, curves, radius_grid, sweep

GRID = radius_grid(Gaussian(0.5), step=0.25)
BASE = CertifyConfig(TopK(3, 2), alpha=0.01)


@pytest.fixture(scope="module")
def votes(tmp_path_factory):
    return random_votes(tmp_path_factory.mktemp("votes"))


def test_points(votes, monkeypatch) -> None:
    """A sweep varies one parameter at a time around the base."""
    monkeypatch.setattr(certificates, "_IMAGES_AT_A_TIME", 4)
    told = []
    vary = {"k": [1, 3, 5, 5], "k_prime": [1, 2], "n": [50, 200], "alpha": [0.01, 1e-4]}
    methods = ("paper", "joint")
    found = sweep(votes, BASE, vary, GRID, methods=methods, progress=lambda done, total: told.append((done, total)))
    points = [
        CertifyConfig(TopK(1, 2), 0.01),
        CertifyConfig(TopK(5, 2), 0.01),
        CertifyConfig(TopK(3, 1), 0.01),
        CertifyConfig(TopK(3, 2), 0.01, 50),
        CertifyConfig(TopK(3, 2), 1e-4),
    ]
    expected = [curve for point in points for curve in curves(certify_votes(votes, point, methods=methods), GRID)]
    assert_same_curves(found, expected)
    assert told == sorted(told)
    assert told[-1] == (5, 5)
    assert (5, 5) not in told[:-1]
    assert len({tuple(curve.scores.recall) for curve in found if curve.method == "joint"}) >= 5


def test_single_read(votes, monkeypatch) -> None:
    """Every image is read once."""
    read, of_file = [], votes._read
    monkeypatch.setattr(votes, "_read", lambda positions: (read.extend(positions), of_file(positions))[1])
    sweep(votes, BASE, {"k": [1, 2, 4], "n": [10, 20]}, GRID, methods=("joint", "jia"))
    assert read == list(range(11))


def test_empty_sweep(votes) -> None:
    """Nothing to vary gives no curves."""
    assert sweep(votes, BASE, {}, GRID) == []
    assert sweep(votes, BASE, {"k": [3], "n": [200]}, GRID) == []


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ({"k_prime": [1, 6]}, "k_prime = 6, but these votes keep 5 labels"),
        ({"n": [100, 201]}, "n = 201, but these votes hold 200 draws"),
        ({"k": [1, 21]}, "at most the number of labels, 20"),
        ({"alpha": [0.1, 1.0]}, "alpha"),
        ({"kprime": [1]}, "did you mean 'k_prime'"),
        ({"draws": [10]}, "unknown parameter of a sweep of the top-k rule 'draws'"),
    ],
)
def test_refused_points(votes, monkeypatch, vary, message) -> None:
    """Points that cannot be are refused before any image is read."""
    monkeypatch.setattr(votes, "row", lambda position, adaptive: pytest.fail("an image was read"))
    with pytest.raises(InvalidInputError, match=message):
        sweep(votes, BASE, {"k": [1], **vary}, GRID)
