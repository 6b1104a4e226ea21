"""Every table, figure and page counts failed images; an image whose pixels have changed is not shown."""

import csv
import json
import re

import pytest
from tests.report.studies import ADAPTIVE, NoiseImages, make_run
from tests.report.test_figures import figure_text

from multiguard.data.image import image_hash
from multiguard.report import Study, write_page, write_tables
from multiguard.report.figures import draws_figure, family_figure, label_figure

FAILED = {2: "<script>alert(9)</script> & {{ 7 * 7 }}", 6: "the file is empty"}
SENTENCE = "2 of 12 images could not be voted on and are left out."


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    home = tmp_path_factory.mktemp("failed")
    main = make_run(home / "main", methods=("joint", "paper"), swept=True, failed=FAILED, **ADAPTIVE)
    beside = {
        "low": make_run(home / "low", sigma=0.25, failed={3: "torn"}, **ADAPTIVE),
        "same": make_run(home / "same", sigma=1.0, failed=FAILED, **ADAPTIVE),
        "clean": make_run(home / "clean", trained=0.0, **ADAPTIVE),
    }
    return Study(main, beside, "Some failed")


def test_tables_count_failures(study, tmp_path):
    """Every table counts the failed images of its runs."""
    written = write_tables(study, tmp_path)
    names = {path.stem for path in written}
    assert names >= {"methods", "k", "alpha", "noise", "training", "labels", "draws"}
    for name in names:
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        counts = {"σ = 0.25": "1", "trained without noise": "0"}
        assert [row["failed"] for row in rows] == [counts.get(row.get(name, ""), "2") for row in rows]
        for kind in ("md", "tex"):
            text = (tmp_path / f"{name}.{kind}").read_text(encoding="utf-8")
            assert SENTENCE in text or "2 that could not be voted on are left out." in text
            assert "could not be voted on |" not in text
    assert "Over 7 images; 3 without labels and 2 that could not be voted on" in (tmp_path / "k.md").read_text()


def test_other_failures(study):
    """A comparison names the runs that failed on other images."""
    notes = {family.key: family.note for family in study.families}
    assert "σ = 0.25: 1 of 12 images could not be voted on and is left out." in notes["noise"]
    assert "1.0: " not in notes["noise"]
    assert "trained without noise: no image failed." in notes["training"]


def test_figures_count_failures(study):
    """Every figure counts the failed images."""
    for family in study.families:
        assert "3 without labels and 2 that could not be voted on left out" in figure_text(family_figure(study, family))
    assert SENTENCE in figure_text(label_figure(study))
    assert SENTENCE in figure_text(draws_figure(study))


def test_page_lists_failures(study, tmp_path):
    """The page counts the failed images at the top and lists them, escaped."""
    write_page(study, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text))
    assert words.index(SENTENCE) < words.index("Sweeps The same votes") < words.index("the file is empty")
    assert "7 images are averaged; 3 are left out" in words
    assert "&lt;script&gt;alert(9)&lt;/script&gt; &amp; {{ 7 * 7 }}" in text
    assert "<script>alert(9)" not in text
    assert "The averages are over the others and might be lower with them." in words


def test_page_without_failures(tmp_path):
    """A page without failures does not mention any."""
    write_page(Study(make_run(tmp_path / "run")), tmp_path / "report.html")
    assert "voted on" not in (tmp_path / "report.html").read_text(encoding="utf-8").split('id="data"')[0]


def test_replaced_images(tmp_path):
    """An image that was replaced is not shown as the certified one."""
    ids = [f"image-{index}" for index in range(12)]
    images = NoiseImages(ids, side=8)
    true = {index: image_hash(images[index].image) for index in range(1, 12)}
    run = make_run(tmp_path / "run", hashes={**true, 3: "0" * 64, 5: "1" * 64})
    known = list(run.certificates.ids)
    images.ids = known
    assert write_page(Study(run), tmp_path / "report.html", images=images) == 2
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])
    assert {each["id"] for each in data["images"] if each["thumbnail"] is None} == {known[3], known[5]}
    assert "The pixels of 2 are no longer those that were voted on" in text
    images.ids = known[:7]
    assert write_page(Study(run), tmp_path / "report.html", images=images) == 2
    text = re.sub(r"\s+", " ", (tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "5 could not be found or read" in text
