"""The page is made of votes: what is there is shown, and choices never see the images that they are shown on."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.results import blocks
from benchmarks.results.__main__ import Evidence, coco_blocks
from benchmarks.results.choice import Candidate, Choice
from benchmarks.results.distance import distance_block
from benchmarks.results.main_table import threshold_block
from benchmarks.results.markdown_tables import RADII
from benchmarks.results.sources import MAIN, Source, open_arrays
from benchmarks.results.tradeoff import draws_block
from tests.evaluate.votes_cases import THRESHOLD, votes_of_kind

from multiguard.certify import Threshold, TopK, certified_radii_batch
from multiguard.evaluate import set_scores
from multiguard.io.rounding import percent_value, plain

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Votes on 6 images with 24 labels, as arrays: every image has one or two, and nearly all draws hit them."""
    home, rng = tmp_path_factory.mktemp("evidence"), np.random.default_rng(0)
    truth = np.zeros((6, 24), dtype=bool)
    votes = np.empty((6, 120, 3), dtype=np.uint8)
    for image in range(6):
        truth[image, rng.permutation(24)[: 1 + image % 2]] = True
        scores = 4 * truth[image] + 20 * rng.random(24) + rng.gumbel(size=(120, 24))
        votes[image] = np.argsort(-scores, axis=1)[:, :3]
    for name in ("coco-0.5", "older", "earlier", "smaller-0.5", "seed-2"):
        (home / name).mkdir()
        np.savez(home / name / "votes.npz", votes=votes, labels=truth)
    return home


def test_kept_radii(folder):
    """Radii are those of the votes, now and when they are read back, and differ by n and alpha."""
    source = open_arrays(folder / "older" / "votes.npz", "older", 0.5, folder / "kept")
    direct = certified_radii_batch(source.votes, source.labels, MAIN, num_labels=24, sigma=0.5, method="paper")
    for _ in range(2):
        found = source.radii(MAIN, "paper")
        assert all(np.array_equal(one.true, other.true) for one, other in zip(found, direct, strict=True))
    fewer, looser = source.radii(MAIN, "paper", 50), source.radii(MAIN, "paper", alpha=0.1)
    assert any(not np.array_equal(one.true, other.true) for one, other in zip(fewer, direct, strict=True))
    assert all(np.all(one.true >= other.true) for one, other in zip(looser, direct, strict=True))


def test_choice(folder):
    """The rule of each radius is the best on the images that choose, and its score is that on the others."""
    source = open_arrays(folder / "older" / "votes.npz", "older", 0.5, folder / "kept")
    rules = [TopK(10, k_prime) for k_prime in (1, 2, 3)]
    choice = Choice([Candidate(source, rule) for rule in rules], "recall")

    def recall(images: np.ndarray, rule: TopK) -> np.ndarray:
        radii, labels = source.radii(rule, "joint"), source.labels
        counts = [len(labels[i]) for i in images]
        return set_scores([radii[i] for i in images], rule, num_true=counts, radius=RADII).recall

    (one, other), turned = choice.folds
    assert np.array_equal(turned, (other, one))
    assert sorted([*one, *other]) == list(range(6))
    expected = np.zeros(len(RADII))
    for (who, left), chosen in zip(choice.folds, choice.chosen, strict=True):
        tuned = np.array([recall(who, rule) for rule in rules])
        assert [each.rule for each in chosen] == [rules[i] for i in tuned.argmax(axis=0)]
        expected += [recall(left, each.rule)[place] / 2 for place, each in enumerate(chosen)]
    assert choice.scores("joint", "recall") == pytest.approx(expected)


def test_choice_elsewhere(folder):
    """Votes on other images choose alone, and all images are certified."""
    source = open_arrays(folder / "older" / "votes.npz", "older", 0.5, folder / "kept")
    one, other = source.subset([0, 1]), source.subset([2, 3, 4, 5])
    choice = Choice([Candidate(one, TopK(10, k_prime), other) for k_prime in (1, 2, 3)], "recall", [0.1])
    same = Choice([Candidate(other, TopK(10, k_prime), other) for k_prime in (1, 2, 3)], "recall", [0.1])
    assert choice.words() == "4 training images"
    assert choice.chosen[0][0].rule == same.chosen[0][0].rule
    assert choice.scores("joint", "recall") == one.scores(choice.chosen[0][0].rule, "joint", radius=[0.1]).recall


def test_limits(folder):
    """What is proved from the exact law is never above what no method can prove."""
    source = open_arrays(folder / "coco-0.5" / "votes.npz", "coco-0.5/votes", 0.5, folder / "kept")
    rows = [line.split(" | ") for line in distance_block(source, None, None, None)["distance"].splitlines()[2:]]
    values = {row[0].strip("| "): [float(cell.strip(" |")) for cell in row[3:]] for row in rows}
    upper = values["no method can prove more from the law of the votes"]
    lower = values["proved from the law of the votes, if it were exact"]
    certified = values["certified from 120 draws"]
    assert all(certified[i] <= upper[i] and lower[i] <= upper[i] for i in range(2))
    assert upper[0] > certified[0]


def test_coco_blocks(folder, tmp_path):
    """Every part that needs no more than one noise is made, under a name that the page has; figures go beside it."""
    made = coco_blocks(Evidence(folder), tmp_path)
    pages = [ROOT / "docs" / name for name in ("results.md", "deployment.md")] + [ROOT / "README.md"]
    assert set(made) <= {name for page in pages for name in blocks.names(page.read_text(encoding="utf-8"))}
    assert {"methods-3-10", "tuned", "distance", "row-n", "statistics"} <= set(made)
    assert "| 224 x 224 | 0.5 |" in made["sizes"]
    assert "`seed-2/votes`" in made["seeds"]
    assert "448-pixel input" in made["waterfall"]
    source: Source = Evidence(folder).main()
    assert f"`{source.name}`" in made["votes"]
    drawn = {path.stem for path in (tmp_path / "images" / "results").iterdir()}
    assert {"methods-3-10", "waterfall", "k_prime", "k", "n", "alpha", "statistics", "tradeoff"} <= drawn


def test_threshold_block(tmp_path):
    """Of several score thresholds and t the best of the training images is certified on the others."""
    for number, score in enumerate((0.3, 0.5)):
        for seed, end in ((0, ""), (1, "-train")):
            home = tmp_path / "coco-0.5" / f"votes-threshold-{score}{end}"
            votes_of_kind(
                home, images=4, labels=6, draws=60, seed=seed + 2 * number, **THRESHOLD | {"score_threshold": score}
            )
    pairs = Evidence(tmp_path).thresholds()
    assert [(one.name, other.name) for one, other in pairs] == [
        (f"coco-0.5/votes-threshold-{score}", f"coco-0.5/votes-threshold-{score}-train") for score in (0.3, 0.5)
    ]
    rows = [line.strip("| ").split(" | ") for line in threshold_block(pairs)["threshold"].splitlines()[2:]]
    table = {(row[0], row[1]): row[2:] for row in rows}
    tried = [(pair, Threshold(step / 20)) for pair in pairs for step in range(1, 20)]
    (one, _), rule = max(tried, key=lambda pair_rule: _f1(pair_rule[0][1], pair_rule[1]))
    assert (table["t", ""][0], table["score threshold", ""][0]) == (plain(rule.t), one.name.rsplit("-", 1)[1])
    assert table["joint", "F1"][0] == percent_value(_f1(one, rule))


def _f1(source: Source, rule: Threshold) -> float:
    return float(source.scores(rule, "joint", radius=[0.0]).f1[0])


def test_more_draws(folder):
    """More draws of some images, and adaptive ones, have rows of their own."""
    source = open_arrays(folder / "coco-0.5" / "votes.npz", "coco-0.5/votes", 0.5, folder / "kept")
    few = source.subset([0, 2]).shortened([60, 60])
    alone, both = (draws_block(few, *other)["draws"].splitlines() for other in ((None, None), (source, few)))
    assert len(alone) == 2 + 2
    assert len(both) == 2 + 2 + 4 + 1
    assert "| adaptive for R = 0.5, 60 on average, at most 60 | 2 | betting |" in both[-1]
    assert "| adaptive for R = 0.5, " in draws_block(few, source, None)["draws"].splitlines()[-1], "replayed"
