"""When to stop drawing: at once, never too early, and the same with and without a memory."""

import math

import numpy as np
import pytest
from tests.certify.cases import random_sets, votes_and_labels

from multiguard.certify import Looks, StoppingRule, Threshold, TopK, certified_radii_batch, certified_size
from multiguard.errors import InvalidInputError

LOOKS = Looks((20, 50, 120), (0.1, 0.2, 0.7))
TOP_K = {"rule": TopK(3, 2), "num_labels": 10, "sigma": 0.5, "alpha": 0.01}
SETS = {"rule": Threshold(0.4), "num_labels": 8, "sigma": 0.5, "alpha": 0.01}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"radii": []}, "one or more"),
        ({"radii": [-0.1]}, "none negative"),
        ({"radii": [math.inf]}, "finite"),
        ({"radii": 0.5}, "one or more"),
        ({"forecast_margin": -1.0}, "forecast_margin"),
        ({"forecast_margin": math.nan}, "forecast_margin"),
        ({"alpha": 0.0}, "alpha"),
        ({"sigma": 0.0}, "sigma"),
    ],
)
def test_arguments(change, says: str) -> None:
    """Arguments out of range are refused."""
    for options in (TOP_K, SETS):
        with pytest.raises(InvalidInputError, match=says):
            StoppingRule(looks=LOOKS, **{"radii": [0.5], **options, **change})


def test_decided_at_once() -> None:
    """All labels certified, no labels at all, the last look; but not what a few more draws would certify."""
    sure = np.tile([0, 1], (120, 1))
    looks = Looks((20, 120), (0.5, 0.5))
    rule = StoppingRule(looks=looks, radii=[0.0, 0.3], **TOP_K)
    assert rule.decided([sure[:20], sure[:20], sure], [[0], [], [0, 1, 5]]) == [False, True, True]
    assert StoppingRule(looks=looks, radii=[0.0], **TOP_K).decided([sure[:20]], [[0]]) == [True]
    assert rule.decided([sure[:20]], [[5]]) == [True]
    certain = StoppingRule(looks=looks, radii=[0.3], **TOP_K, forecast_margin=math.inf)
    assert certain.decided([sure[:20]], [[5]]) == [False]


def finished(rng: np.random.Generator, votes: np.ndarray, labels: np.ndarray, draws: int, kind: bool) -> np.ndarray:
    """The votes with further draws up to `draws`: like those so far, or all on the labels of L."""
    if kind:
        rest = np.tile(np.concatenate([labels, np.setdiff1d(np.arange(10), labels)])[:3], (draws - len(votes), 1))
        rest[:, : min(3, len(labels))] = np.stack(
            [rng.permutation(labels)[: min(3, len(labels))] for _ in range(len(rest))]
        )
    else:
        rest = votes[rng.integers(0, len(votes), draws - len(votes))]
    return np.concatenate([votes, rest])


def test_infinite_margin() -> None:
    """Whatever the draws to come are, an image decided with an infinite margin certifies no more."""
    rng = np.random.default_rng(5)
    looks = Looks((60, 90, 100), (0.2, 0.2, 0.6))
    asked = [0.1, 0.4]
    rule = StoppingRule(looks=looks, radii=asked, **TOP_K, forecast_margin=math.inf)
    stopped = 0
    for _ in range(80):
        (votes,), (true,) = votes_and_labels(rng, 1, [90])
        if len(true) == 0 or not rule.decided([votes], [true])[0]:
            continue
        stopped += 1
        has = certified_size(certified_radii_batch([votes], [true], looks=looks, **TOP_K)[0].true, asked)
        for kind in (True, False):
            whole = finished(rng, votes, true, 100, kind)
            assert np.all(
                certified_size(certified_radii_batch([whole], [true], looks=looks, **TOP_K)[0].true, asked) == has
            )
    assert stopped > 15


def test_larger_margin() -> None:
    """A larger forecast margin never stops earlier."""
    rng = np.random.default_rng(6)
    ranked, labels = votes_and_labels(rng, 80, LOOKS.draws)
    stopped = np.array(
        [
            StoppingRule(looks=LOOKS, radii=[0.2, 0.5], **TOP_K, forecast_margin=z).decided(ranked, labels)
            for z in (0, 1, 3, math.inf)
        ]
    )
    assert np.all(stopped[1:] <= stopped[:-1])
    assert len(set(stopped.sum(axis=1))) > 2
    hits = [random_sets(rng, labels=8, draws=20, spread=1.0) for _ in range(60)]
    stopped = np.array(
        [
            StoppingRule(looks=LOOKS, radii=[0.1], **SETS, forecast_margin=z).decided(hits, [[0, 1]] * 60)
            for z in (0, 1, math.inf)
        ]
    )
    assert np.all(stopped[1:] <= stopped[:-1])
    assert stopped[0].sum() > stopped[2].sum()


def test_mixed_looks() -> None:
    """Images at different looks are decided as each alone."""
    rng = np.random.default_rng(7)
    ranked, labels = votes_and_labels(rng, 60, LOOKS.draws)
    rule = StoppingRule(looks=LOOKS, radii=[0.2], **TOP_K)
    together = rule.decided(ranked, labels)
    assert together == [rule.decided([votes], [true])[0] for votes, true in zip(ranked, labels, strict=True)]
    assert 0 < sum(together) < 60


@pytest.mark.parametrize("seed", range(4))
def test_memory(seed: int) -> None:
    """A rule that saw the earlier looks decides as one that did not, whichever images came in between."""
    rng = np.random.default_rng(seed)
    votes, labels = votes_and_labels(rng, 12, LOOKS.draws[-1:])
    votes[1] = votes[0].copy()
    lasting = StoppingRule(looks=LOOKS, radii=[0.05, 0.3], **TOP_K)
    for n in LOOKS.draws:
        for part in np.array_split(rng.permutation(len(votes)), 3):
            asked = [votes[i][:n] for i in part], [labels[i] for i in part]
            assert lasting.decided(*asked) == StoppingRule(looks=LOOKS, radii=[0.05, 0.3], **TOP_K).decided(*asked)


def test_later_looks() -> None:
    """A last look with next to no alpha does not hide a better one before it."""
    votes = np.tile([0, 1], (20, 1))
    starved = Looks((20, 120, 121), (0.1, 0.8, 1e-190))
    assert StoppingRule(looks=starved, radii=[0.5], **TOP_K).decided([votes], [[0]]) == [False]
    assert StoppingRule(looks=Looks((20, 121), (0.1, 1e-190)), radii=[0.5], **TOP_K).decided([votes], [[0]]) == [True]


def test_decided_sets() -> None:
    """Sets that can gain nothing are decided, others are not."""
    looks = Looks((20, 400), (0.5, 0.5))
    hits = np.zeros((20, 8), dtype=np.bool_)
    hits[:, 0] = True
    rule = StoppingRule(looks=looks, radii=[0.4], **SETS)
    assert rule.decided([hits, hits], [[0], [1]]) == [False, False]
    hopeless = hits.copy()
    hopeless[:, 1:] = np.arange(20)[:, None] % 2 == 0
    hopeless[:, 0] = False
    assert rule.decided([hopeless], [[0]]) == [True]
