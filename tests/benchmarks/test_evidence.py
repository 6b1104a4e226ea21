"""The page is made of votes: what is there is shown, and choices never see the images that they are shown on."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.results import blocks
from benchmarks.results.__main__ import Evidence, _parts, coco_blocks, main
from benchmarks.results.distance import _smoothed_recall, distance_block
from benchmarks.results.main_table import STRICT, draws_block
from benchmarks.results.markdown_tables import csv_link, csv_rows
from benchmarks.results.sources import MAIN
from tests.benchmarks.make_believe import write_evidence

from multiguard.certify import TopK, certified_radii_batch
from multiguard.io.rounding import percent_value

ROOT = Path(__file__).parents[2]
PAGES = ("results.md", "reproduction.md", "measurements.md")
MORE = {"draws", "distance"}  # parts about more draws than the first
MATRIX = {"matrix", "matrix-findings", "matrix-why"}  # made of files, not of votes
FOLDERS = {"noise/votes", "clean/votes", "sigma-0.5/votes-adaptive"}
FOLDERS |= {f"sigma-{sigma}/votes" for sigma in ("0.25", "0.5", "1")}


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
    source = Evidence(folder).open("clean/votes")
    direct = certified_radii_batch(source.votes, source.labels, MAIN, num_labels=24, sigma=0.5, method="paper")
    for _ in range(2):
        found = source.radii(MAIN, "paper")
        assert all(np.array_equal(one.true, other.true) for one, other in zip(found, direct, strict=True))
    fewer, looser = source.radii(MAIN, "paper", 50), source.radii(MAIN, "paper", alpha=0.1)
    assert any(not np.array_equal(one.true, other.true) for one, other in zip(fewer, direct, strict=True))
    assert all(np.all(one.true >= other.true) for one, other in zip(looser, direct, strict=True))
    twice = replace(source, sigma=2 * source.sigma).radii(MAIN, "paper")
    assert all(np.allclose(one.true, 2 * other.true) for one, other in zip(twice, direct, strict=True))


def test_limits(folder, tmp_path):
    """What is proved from the exact law is never above what no method can prove; an attack leaves what it left."""
    evidence = Evidence(folder)
    source, more, clean = evidence.noises[1], evidence.open("sigma-0.5/votes"), evidence.get("clean/votes")
    attacks, rules = sorted(folder.glob("sigma-0.5/attack*")), (MAIN, STRICT)
    words = distance_block(source, more, clean, attacks, rules, tmp_path)["distance"]
    found = csv_rows(tmp_path, "distance")
    assert {row[0] for row in found if "attacked" in row[1]} == {"3, 3"}, "the attack was on this rule"
    values = {(row[1], row[2]): list(map(float, row[3:])) for row in found if row[0] == "3, 3"}
    few, many = (one.scores(STRICT, "coupled", radius=[0.5, 1.0]).recall.tolist() for one in (source, more))
    for draws, each in ((240, many), (120, few)):
        assert values[f"certified from {draws} draws", "proved"] == [6, *map(float, map(percent_value, each))]
    assert "120 draws cost" in words
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
    made = coco_blocks(Evidence(folder), tmp_path)
    pages = [ROOT / "docs" / name for name in PAGES] + [ROOT / "README.md"]
    named = {name for page in pages for name in blocks.names(page.read_text(encoding="utf-8"))}
    assert set(made) == named - {"votes", "limit", "wrong-claims", "digits", *MATRIX}
    assert csv_rows(tmp_path, "row-training")[0][:2] == ["with noise", "precision"]
    assert made["speed"].splitlines()[-2:] == ["| sampler | 100 draws/s |", "| sampler / bare | 0.980 |"]
    for text in (made["draws"], csv_rows(tmp_path, "row-n")[-1][0], made["distance"]):
        assert "240" in text, "all draws"
    drawn = {path.stem for path in (tmp_path / "images" / "results").iterdir()}
    assert {"methods", "k_prime", "k", "n", "alpha", "training", "statistics"} <= drawn


def test_noises(folder, tmp_path):
    """The best noise of each radius comes first."""
    evidence = Evidence(folder)
    assert [(one.sigma, one.draws) for one in evidence.noises] == [(0.25, 120), (0.5, 120), (1.0, 120)]
    best, *each = [row[2:] for row in _cells(coco_blocks(evidence, tmp_path)["noises"])[:4]]
    assert best == [f"**{max(column, key=float)}**" for column in zip(*each, strict=True)]
    radii = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0]
    recall = evidence.noises[1].scores(MAIN, "coupled", radius=radii).recall
    assert each[1] == [percent_value(value) for value in recall.tolist()]


def test_ceiling(folder, tmp_path):
    """Our recall is not above what any certificate can expect."""
    made = coco_blocks(Evidence(folder), tmp_path)["ceiling"]
    pairs = re.findall(r"([\d.]+) at R = \S+ \(`coupled`: ([\d.]+)\)", made)
    assert len(pairs) == 4
    assert all(float(most) >= float(ours) for most, ours in pairs)


def test_more_draws(folder):
    """All draws of the same images, and adaptive ones, have rows of their own."""
    evidence = Evidence(folder)
    source, more = evidence.noises[1], evidence.open("sigma-0.5/votes")
    every = _cells(draws_block(source, more, evidence.get("sigma-0.5/votes-adaptive"))["draws"])
    assert [row[0] for row in every[:-1]] == ["120, fixed"] * 2 + ["240, fixed"] * 2
    assert every[-1][:2] == ["adaptive for R = 0.5 and 1: 75 on average, at most 100", "betting"]
    recall = [float(one.scores(MAIN, "coupled", radius=[1.0]).recall[0]) for one in (source, more)]
    assert [every[0][4], every[2][4]] == [percent_value(each) for each in recall]
    assert recall[0] < recall[1]


def _cells(table: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def test_smoothed_recall(folder):
    """Labels that no draw hit are not counted."""
    source = Evidence(folder).open("sigma-0.5/votes")
    unhit = sorted(set(range(24)) - set(source.votes[0].ravel().tolist()))[:2]
    one = replace(source.subset([0]), labels=[[int(source.votes[0][0, 0]), *unhit]])
    assert _smoothed_recall(one, TopK(24, 3)) == pytest.approx(1 / 3)


def _linked(home: Path, folder: Path, *names: str) -> Evidence:
    """An evidence folder with some of the files."""
    evidence = home / "evidence"
    evidence.mkdir(exist_ok=True)
    for name in names:
        (evidence / name).symlink_to(folder / name)
    return Evidence(evidence)


def test_missing_votes(folder, tmp_path, monkeypatch):
    """Parts are made of the votes that are there: nothing about noise without 0.5, nothing about more draws."""

    def found(*names: str) -> set[str]:
        return {name for name, _ in _parts(_linked(tmp_path, folder, *names), tmp_path)}

    assert found("sigma-0.25", "clean") == set()
    assert found("noise") == {"training"}
    every = found("sigma-0.5")
    assert {"methods", "noises", "ceiling"} | MORE < every
    monkeypatch.setattr("benchmarks.results.__main__._DRAWS", 240)
    assert every - found() == MORE


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

    _linked(tmp_path, folder, "noise", "clean")
    some = after("bbbbbbb")
    assert some == before
    assert "row-training at bbbbbbb" in (docs / "reproduction.md").read_text(encoding="utf-8")
    assert (docs / "README.md").read_text(encoding="utf-8") == readme
    assert csv_rows(docs, "votes")[-1] == ["older/votes", "6", "aaaaaaa"]
    _linked(tmp_path, folder, *(path.name for path in folder.iterdir() if path.name not in ("noise", "clean", "kept")))
    every = after("ccccccc")
    assert {name for name in before if every[name] == before[name]} <= {"votes", "limit", "wrong-claims", "digits"}
    assert {row[-1] for row in csv_rows(docs, "votes")} == {"ccccccc"}
    assert {row[0] for row in csv_rows(docs, "votes")} == FOLDERS
    assert (docs / "README.md").read_text(encoding="utf-8") != readme
