"""Each mistake a caller can make, and the word that its message must hold."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from multiguard.certify import (
    Threshold,
    TopK,
    certified_radii,
    certified_radii_batch,
    certified_size,
    exact_radii,
    label_radii,
)
from multiguard.errors import InvalidInputError

HITS = np.eye(4, dtype=np.bool_)[[0, 0, 1, 2]]
RANKED = np.array([[0, 1], [1, 2]])
GOOD = {"votes": HITS, "labels": [0], "rule": TopK(1, 1), "sigma": 0.5, "alpha": 0.001, "method": "joint"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"votes": np.vstack([HITS, [True, True, False, False]])}, "row 4 has 2"),
        ({"rule": TopK(1, 2)}, "exactly k_prime = 2"),
        ({"votes": HITS.astype(int)}, "boolean"),
        ({"votes": HITS[0]}, r"\(draws, num_labels\)"),
        ({"votes": HITS[:0]}, "at least one draw"),
        ({"votes": HITS[:, :0]}, "num_labels"),
        ({"labels": [4]}, r"0\.\.3"),
        ({"labels": [1, 1]}, "different"),
        ({"labels": []}, "empty"),
        ({"labels": [0.0]}, "integer"),
        ({"labels": [[0]]}, "integer label indices"),
        ({"num_labels": 3}, "one column per label"),
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": float("nan")}, "sigma"),
        ({"sigma": "0.5"}, "sigma"),
        ({"alpha": 1.0}, "alpha"),
        ({"alpha": 1e-300}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"method": "jiont"}, "did you mean 'joint'"),
        ({"method": "bogus"}, "joint, coupled, betting, paper, independent, jia"),
        ({"rule": Threshold(0.5), "method": "paper"}, "joint, coupled, betting, independent"),
    ],
)
def test_image_arguments(change, says: str) -> None:
    """Every mistake with one image is named."""
    with pytest.raises(InvalidInputError, match=says):
        certified_radii(**{**GOOD, **change})
    certified_radii(**GOOD)


@pytest.mark.parametrize("votes", [HITS, HITS.astype(float)])
def test_label_arguments(votes) -> None:
    """Labels named twice are refused, and so are bad votes, even where no label is asked about."""
    for rule in (TopK(1, 1), Threshold(0.4)):
        with pytest.raises(InvalidInputError):
            label_radii(votes, [1, 1] if votes is HITS else [], rule, num_labels=4, sigma=0.5)


BATCH = {"votes": [RANKED, RANKED], "labels": [[0], [1]], "rule": TopK(1, 1), "num_labels": 4, "sigma": 0.5}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"votes": [RANKED, RANKED + 3], "rule": TopK(1, 2)}, "image 1: .*0..3"),
        ({"votes": [RANKED, RANKED * 0], "rule": TopK(1, 2)}, "image 1: .*different labels"),
        ({"votes": [RANKED * 1.0, RANKED]}, "image 0: .*integers"),
        ({"votes": [RANKED, RANKED[:0]]}, "image 1: .*at least one draw"),
        ({"votes": [RANKED, RANKED[0]]}, "image 1: "),
        ({"rule": TopK(1, 3)}, "image 0: .*keep 2 labels per draw"),
        ({"labels": [[0], [9]]}, "image 1: .*labels"),
        ({"labels": [[0]]}, "labels ends at 1"),
        ({"votes": [RANKED]}, "votes ends at 1"),
        ({"num_labels": 0}, "num_labels"),
        ({"method": "bogus"}, "choose one of"),
    ],
)
def test_batch_arguments(change, says: str) -> None:
    """Every mistake with a batch is named, with the image."""
    with pytest.raises(InvalidInputError, match=says):
        certified_radii_batch(**{**BATCH, **change})
    certified_radii_batch(**BATCH)


def test_distribution_arguments() -> None:
    """Probabilities must be one per vote set, not negative, and sum to 1."""
    sets = np.eye(3, dtype=np.bool_)
    for chances, says in [
        ([0.5, 0.5], "one per vote set"),
        ([0.5, 0.6, 0.1], "sum to 1"),
        ([-0.1, 0.6, 0.5], "negative"),
    ]:
        with pytest.raises(InvalidInputError, match=says):
            exact_radii(sets, chances, [0], TopK(1, 1), sigma=1.0)


@pytest.mark.parametrize(
    ("radii", "radius", "says"),
    [
        ([0.1, 0.2], 0.1, "non-increasing"),
        ([[0.2]], 0.1, "one image"),
        ([np.nan], 0.1, "radii"),
        ([0.2], -0.1, "radius"),
        ([0.2], np.nan, "radius"),
    ],
)
def test_size_arguments(radii, radius, says: str) -> None:
    """Radii must be non-increasing radii of one image, a radius not negative."""
    with pytest.raises(InvalidInputError, match=says):
        certified_size(radii, radius)


def test_size_at_radius() -> None:
    """A radius counts up to itself and no further."""
    radii = [np.inf, 0.5, 0.0, -np.inf]
    assert certified_size(radii, 0.5) == 2
    assert certified_size(radii, np.nextafter(0.5, 1)) == 1
    np.testing.assert_array_equal(certified_size(radii, [[0.0, 0.1], [9.0, np.inf]]), [[3, 2], [1, 1]])
    assert certified_size([], 0.0) == 0


PARALLEL = """
import numpy as np
from multiguard.certify import Threshold, TopK, arguments, certified_radii_batch, label_radii

rng = np.random.default_rng(0)
votes, labels = [rng.integers(0, 3, (200, 1)) for _ in range(6)], [[0], [1], [0, 1], [], [2], [0]]
alone = certified_radii_batch(votes, labels, TopK(2, 1), num_labels=3, sigma=1.0, method="coupled")
arguments._SECONDS_ALONE = arguments._SECONDS_SAVED = -1e9
together = certified_radii_batch(iter(votes), labels, TopK(2, 1), num_labels=3, sigma=1.0, method="coupled")
assert [each.row.tolist() for each in alone] == [each.row.tolist() for each in together]
assert any(each.row.max(initial=-1) > 0 for each in together)
try:
    certified_radii_batch(votes, [*labels[:4], [3], [0]], TopK(2, 1), num_labels=3, sigma=1.0, method="coupled")
except arguments.InvalidInputError as error:
    print(error)
"""


def test_processes(tmp_path: Path) -> None:
    """Many slow images are read by several processes: same radii in order, same errors, in a script without a guard."""
    script = tmp_path / "script.py"
    script.write_text(PARALLEL)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "image 4: labels must lie in 0..2, got 3..3\n"), done.stderr
