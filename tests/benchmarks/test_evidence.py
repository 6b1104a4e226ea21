"""The page is made of votes: what is there is shown, and choices never see the images that they are shown on."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.results import blocks
from benchmarks.results.__main__ import _FEW as FEW
from benchmarks.results.__main__ import Evidence, _parts, coco_blocks, main
from benchmarks.results.choice import Candidate, Choice
from benchmarks.results.distance import _smoothed_recall, distance_block
from benchmarks.results.main_table import STRICT, many_draws_block, threshold_block, tuned_block
from benchmarks.results.markdown_tables import RADII, csv_link, csv_rows
from benchmarks.results.sources import MAIN, Source, open_arrays
from benchmarks.results.tradeoff import draws_block
from tests.benchmarks.make_believe import write_evidence
from tests.evaluate.votes_cases import THRESHOLD, votes_of_kind

from multiguard.certify import Threshold, TopK, certified_radii_batch
from multiguard.evaluate import set_scores
from multiguard.io.rounding import percent_value, plain

ROOT = Path(__file__).parents[2]
PAGES = ("results.md", "reproduction.md", "measurements.md")
DRAWN = {"draws", "many-draws", "tradeoff", "row-n", "distance", "threshold"}  # parts that coco-0.5 is enough for
MATRIX = {"matrix", "matrix-findings", "matrix-why"}  # made of files, not of votes
FOLDERS = {"older/votes", "full-data/votes", "smaller-0.5/votes", "clean/votes", "coco-0.5/votes-adaptive"}
FOLDERS |= {f"coco-{sigma}/votes{end}" for sigma in ("0.25", "0.5", "1") for end in ("", "-train")}
FOLDERS |= {f"coco-0.5/votes-threshold-{score}{end}" for score in (0.3, 0.5) for end in ("", "-train")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Votes on 6 images with 24 labels: every image has one or two, and nearly all draws hit them."""
    home, rng = tmp_path_factory.mktemp("evidence"), np.random.default_rng(0)
    truth = np.zeros((6, 24), dtype=bool)
    votes = np.empty((6, 240, 3), dtype=np.uint8)
    for image in range(6):
        truth[image, rng.permutation(24)[: 1 + image % 2]] = True
        scores = 4 * truth[image] + 20 * rng.random(24) + rng.gumbel(size=(240, 24))
        votes[image] = np.argsort(-scores, axis=1)[:, :3]
    write_evidence(home, votes, truth, 120)
    return home


@pytest.fixture(autouse=True)
def first_draws(monkeypatch) -> None:
    """The page of made-up votes is about the first 120 draws, not 1,000."""
    monkeypatch.setattr("benchmarks.results.__main__._DRAWS", 120)


def test_kept_radii(folder):
    """Radii are those of the votes, now and when they are read back, and differ by n, alpha and sigma."""
    source = open_arrays(folder / "older" / "votes.npz", "older", 0.5, folder / "kept")
    direct = certified_radii_batch(source.votes, source.labels, MAIN, num_labels=24, sigma=0.5, method="paper")
    for _ in range(2):
        found = source.radii(MAIN, "paper")
        assert all(np.array_equal(one.true, other.true) for one, other in zip(found, direct, strict=True))
    fewer, looser = source.radii(MAIN, "paper", 50), source.radii(MAIN, "paper", alpha=0.1)
    assert any(not np.array_equal(one.true, other.true) for one, other in zip(fewer, direct, strict=True))
    assert all(np.all(one.true >= other.true) for one, other in zip(looser, direct, strict=True))
    twice = replace(source, sigma=2 * source.sigma).radii(MAIN, "paper")
    assert all(np.allclose(one.true, 2 * other.true) for one, other in zip(twice, direct, strict=True))


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
    """What is proved from the exact law is never above what no method can prove; an attack leaves what it left."""
    evidence = Evidence(folder)
    (source, _), more, clean = evidence.noises[1], evidence.open("coco-0.5/votes"), evidence.get("clean/votes")
    attacks, rules = sorted(folder.glob("coco-0.5/attack*")), (MAIN, STRICT)
    first, made = distance_block(source, more, clean, attacks, rules)["distance"].split("k' = 3, k = 3:")
    assert "attacked" not in first, "the attack was on the other rule"
    few, many = (one.scores(MAIN, "coupled", radius=[0.5, 1.0]).recall.tolist() for one in (source, more))
    for draws, values in ((240, many), (120, few)):
        assert f"| certified from {draws} draws | proved | 6 | {' | '.join(map(percent_value, values))} |" in first
    assert few[1] < many[1]
    rows = [line.split(" | ") for line in made.splitlines() if line.startswith("|")][2:]
    values = {(row[0].strip("| "), row[1]): [float(cell.strip(" |")) for cell in row[2:]] for row in rows}
    proved = values["certified from 120 draws", "proved"]
    upper = values["no method can prove more from the distribution of the votes", "upper bound"]
    lower = values["proved from the distribution of the votes, if it were exact", "lower bound"]
    assert all(upper[i] >= max(lower[i], proved[i]) for i in (1, 2))
    assert upper[2] > proved[2]
    assert values["undefended network, no perturbation", "observed"][0] == len(clean)
    attacked = np.mean([image % 2 for image in np.random.default_rng(0).permutation(6)[:3]])
    assert values["no perturbation, evaluated like the attack", "estimate"][:3] == [3, 100, 100]
    for kind in ("estimate", "upper bound"):
        assert values["attacked by pgd, 300 fresh draws", kind][:3] == pytest.approx([3, 100, 100 * attacked], abs=0.1)


def test_coco_blocks(folder, tmp_path):
    """Every part is made under a name that the page has, from the files of an evidence folder; figures go beside it."""
    evidence = Evidence(folder)
    made = coco_blocks(evidence, tmp_path)
    pages = [ROOT / "docs" / name for name in PAGES] + [ROOT / "README.md"]
    named = {name for page in pages for name in blocks.names(page.read_text(encoding="utf-8"))}
    assert set(made) == named - {"made", "votes", "limit", "wrong-claims", "comparison", "digits", *MATRIX}
    assert "At R = 0, 0.5, 1, 1.5 and 448 pixels, sigma = 1 certifies" in made["sizes"]
    assert "448-pixel input" in made["waterfall"]
    assert "Chosen on 3 training images" in made["tuned"]
    assert csv_rows(tmp_path, "row-training")[0][:2] == ["with noise", "precision"]
    assert made["speed"].splitlines()[-2:] == ["| sampler | 100 draws/s |", "| sampler / bare | 0.980 |"]
    for text in (made["draws"], csv_rows(tmp_path, "row-n")[-1][0], made["distance"]):
        assert "240" in text, "all draws"
    drawn = {path.stem for path in (tmp_path / "images" / "results").iterdir()}
    assert {"methods", "waterfall", "k_prime", "k", "n", "alpha", "training", "statistics", "tradeoff"} <= drawn


def test_tuned_block(folder, tmp_path):
    """Scores are those of the k' that the training images choose, at the radius it is tuned for and at the other."""
    pair = Evidence(folder).noises[1]
    source, other = pair
    rules = [TopK(10, k_prime) for k_prime in (1, 2, 3)]
    rule = max(rules, key=lambda each: other.scores(each, "joint", radius=[0.5]).recall[0])
    scores = source.scores(rule, "coupled", radius=[0.5, 1.0])
    cells = [percent_value(float(getattr(scores, name)[i])) for i in (0, 1) for name in ("precision", "recall", "f1")]
    assert f"k' = {rule.k_prime} for R = 0.5 ({cells[1]} %)" in tuned_block([pair], tmp_path)["tuned"]
    assert ["0.5", "R = 0.5", str(rule.k_prime), "coupled", *cells] in csv_rows(tmp_path, "tuned")


def test_first_draws(folder, monkeypatch):
    """Only the first draws of a network are used where nothing else is said; the comparison has twice as many."""
    evidence = Evidence(folder)
    assert [one.draws for one, _ in evidence.noises] == [120, 120, 120]
    compared = evidence.compared()
    assert {letter: one.draws for letter, one in compared.items()} == {
        FEW: 120,
        f"{FEW}, resampled": 20_000,
        "coco-0.5": 240,
    }
    monkeypatch.setattr("benchmarks.results.__main__._DRAWS", 100)
    assert evidence.compared()["coco-0.5"].draws == 200


def test_resampled_votes(folder):
    """Resampled votes are votes of the same images, with about the same frequencies."""
    compared = Evidence(folder).compared()
    for first, again in zip(compared[FEW].votes, compared[f"{FEW}, resampled"].votes, strict=True):
        kinds, count = np.unique(first, axis=0, return_counts=True)
        more = [np.all(again == kind, axis=1).mean() for kind in kinds]
        assert sum(more) == pytest.approx(1)
        np.testing.assert_allclose(more, count / len(first), atol=0.05)


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
    threshold_block(pairs, tmp_path)
    table = {(row[0], row[1]): row[2:] for row in csv_rows(tmp_path, "threshold")}
    tried = [(pair, Threshold(step / 20)) for pair in pairs for step in range(1, 20)]
    (one, _), rule = max(tried, key=lambda pair_rule: _f1(pair_rule[0][1], pair_rule[1]))
    assert (table["t", ""][0], table["score threshold", ""][0]) == (plain(rule.t), one.name.rsplit("-", 1)[1])
    assert table["joint", "F1"][0] == percent_value(_f1(one, rule))


def _f1(source: Source, rule: Threshold) -> float:
    return float(source.scores(rule, "joint", radius=[0.0]).f1[0])


def test_more_draws(folder, tmp_path):
    """All draws of the same images, and adaptive ones, have rows of their own."""
    evidence = Evidence(folder)
    (source, _), more = evidence.noises[1], evidence.open("coco-0.5/votes")
    every = _cells(draws_block(source, more, evidence.get("coco-0.5/votes-adaptive"))["draws"])
    assert [row[0] for row in every[:-1]] == ["120, fixed"] * 3 + ["240, fixed"] * 3
    assert every[-1][:2] == ["adaptive for R = 0.5 and 1: 75 on average, at most 100", "betting"]
    recall = [float(one.scores(MAIN, "coupled", radius=[1.0]).recall[0]) for one in (source, more)]
    assert [every[0][6], every[3][6]] == [percent_value(each) for each in recall]
    assert recall[0] < recall[1]
    assert _cells(draws_block(source, source, None)["draws"]) == every[:3], "no more draws than the first"
    assert "all 240 draws" in many_draws_block(more, (MAIN, STRICT), tmp_path)["many-draws"]
    f1 = [percent_value(float(value)) for value in more.scores(STRICT, "paper", radius=RADII).f1]
    assert ["0.5", "240", "3", "3", "paper", "F1", *f1] in csv_rows(tmp_path, "many-draws")


def _cells(table: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def test_smoothed_recall(folder):
    """Labels that no draw hit are not counted."""
    source = Evidence(folder).open("coco-0.5/votes")
    unhit = sorted(set(range(24)) - set(source.votes[0].ravel().tolist()))[:2]
    one = replace(source.subset([0]), labels=[[int(source.votes[0][0, 0]), *unhit]])
    assert _smoothed_recall(one, TopK(24, 3)) == pytest.approx(1 / 3)


@pytest.mark.soak
def test_few_draws(folder, tmp_path, monkeypatch):
    """Where no network has more than the first draws, everything is made, and nothing is shown twice."""
    monkeypatch.setattr("benchmarks.results.__main__._DRAWS", 240)
    made = coco_blocks(_linked(tmp_path, folder, "coco-0.5"), tmp_path)
    assert made["draws"].count("240, fixed") == 3
    assert "many-draws" not in made
    assert made["distance"].count("certified from 240 draws") == 2, "one for each rule"


def _linked(home: Path, folder: Path, *names: str) -> Evidence:
    """An evidence folder with some of the files."""
    evidence = home / "evidence"
    evidence.mkdir(exist_ok=True)
    for name in names:
        (evidence / name).symlink_to(folder / name)
    return Evidence(evidence)


@pytest.mark.soak
def test_missing_votes(folder, tmp_path):
    """Without the network of a noise only parts about the draws are made, of the votes that they need."""
    (tmp_path / "evidence" / "coco-0.5").mkdir(parents=True)
    evidence = _linked(tmp_path, folder, "coco-0.5/votes", "coco-0.5/votes-train", "coco-0.25", "older", "smaller-0.5")
    made = coco_blocks(evidence, tmp_path)
    assert set(made) == DRAWN - {"threshold"}
    assert set(evidence.found) == {"coco-0.5/votes"}, "votes that no part is made of are not on the page"
    assert "undefended" not in made["distance"]


def test_missing_networks(folder, tmp_path):
    """With all noises the main parts are made; those of other networks only if these are there."""
    before: set[str] = set()
    for names, parts in (
        (["coco-0.25", "coco-0.5"], {"threshold", "draws", "many-draws", "tradeoff", "n", "distance"}),
        (["coco-1"], {"methods", "headline", "tuned", "sigma", "jia", "statistics", "labels", "certify-cost"}),
        (["smaller-0.5"], {"sizes"}),
        (["clean"], {"training"}),
        (["older"], set()),
        (["full-data"], {"waterfall"}),
    ):
        found = {name for name, _ in _parts(_linked(tmp_path, folder, *names), tmp_path)}
        assert {name for name in found - before if not name.endswith("_row")} == parts
        before = found


def test_no_votes(tmp_path):
    """A folder without votes, perhaps a wrong one, is an error."""
    with pytest.raises(SystemExit, match="has no votes"):
        coco_blocks(Evidence(tmp_path), tmp_path)


def test_kept_parts(folder, tmp_path, monkeypatch):
    """What is not made keeps its text and its commit, until a later run makes it."""
    docs = tmp_path / "docs"
    docs.mkdir()
    for page in (*ROOT.glob("docs/*.md"), ROOT / "README.md"):
        shutil.copy(page, docs)
    shutil.copytree(ROOT / "docs" / "results", docs / "results")
    page = docs / "results.md"
    for name in PAGES:
        text = (docs / name).read_text(encoding="utf-8")
        (docs / name).write_text(re.sub(r"(<!-- results: \S+ at )\w+ -->", r"\1aaaaaaa -->", text), encoding="utf-8")
    csv_link(docs, "votes", ["votes", "images", "commit"], [["older/votes", "6", "aaaaaaa"]])
    before, readme = blocks.texts(page.read_text(encoding="utf-8")), (docs / "README.md").read_text(encoding="utf-8")

    def after(commit: str) -> dict[str, str]:
        words = ["results", str(tmp_path / "evidence"), "--out", str(docs), "--readme", str(docs / "README.md")]
        monkeypatch.setattr("sys.argv", words)
        monkeypatch.setattr("benchmarks.results.__main__._commit", lambda: commit)
        main()
        return blocks.texts(page.read_text(encoding="utf-8"))

    _linked(tmp_path, folder, "coco-0.5")
    some = after("bbbbbbb")
    assert {name for name in before if some[name] != before[name]} == DRAWN - {"row-n"} | {"made"}
    assert (docs / "README.md").read_text(encoding="utf-8") == readme
    old, new = _cells(some["made"])
    assert (old[0], new[0]) == ("aaaaaaa", "bbbbbbb")
    assert "What each step is worth" in old[1]
    assert csv_rows(docs, "votes")[-1] == ["older/votes", "6", "aaaaaaa"]
    _linked(tmp_path, folder, *(path.name for path in folder.iterdir() if path.name not in ("coco-0.5", "kept")))
    every = after("ccccccc")
    assert [row[0] for row in _cells(every["made"])] == ["ccccccc"]
    assert {row[-1] for row in csv_rows(docs, "votes")} == {"ccccccc"}
    assert {row[0] for row in csv_rows(docs, "votes")} == FOLDERS
    assert (docs / "README.md").read_text(encoding="utf-8") != readme
