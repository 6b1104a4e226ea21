"""Images that could not be voted on are told of in every table, figure and page; a replaced image is not shown."""

import csv
import json
import re

import pytest
from tests.report.studies import ADAPTIVE, NoiseImages, make_run

from multiguard.errors import InvalidInputError
from multiguard.report import Study, write_page, write_tables
from multiguard.report.draws import stops
from multiguard.report.families import families
from multiguard.report.figures import _draw_draws, _draw_family, _draw_labels
from multiguard.votes import image_hash

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


def text_of(figure):
    return " ".join(text.get_text() for text in figure.texts)


def test_every_table_counts_them(study, tmp_path):
    written = write_tables(study, tmp_path)
    names = {path.stem for path in written}
    assert names >= {"methods", "k", "alpha", "sigma", "training", "labels", "draws"}
    for name in names:
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        counts = {"0.25": "1", "trained without noise": "0"}
        assert [row["failed"] for row in rows] == [counts.get(row.get(name, ""), "2") for row in rows]
        for kind in ("md", "tex"):
            text = (tmp_path / f"{name}.{kind}").read_text(encoding="utf-8")
            assert SENTENCE in text or "2 that could not be voted on are left out." in text
            assert "could not be voted on |" not in text
    assert "Over 7 images; 3 without labels and 2 that could not be voted on" in (tmp_path / "k.md").read_text()


def test_runs_that_failed_on_other_images_are_told_apart(study):
    notes = {family.key: family.note for family in families(study)}
    assert "σ = 0.25: 1 of 12 images could not be voted on and is left out." in notes["sigma"]
    assert "1.0: " not in notes["sigma"]
    assert "trained without noise: all images could be voted on." in notes["training"]


def test_runs_on_other_images_are_still_refused(study, tmp_path):
    fewer = make_run(tmp_path, images=11, **ADAPTIVE)
    with pytest.raises(InvalidInputError, match="'fewer' is about other images"):
        Study(study.main, {"fewer": fewer})


def test_every_figure_says_it(study):
    for family in families(study):
        assert "3 without labels and 2 that could not be voted on left out" in text_of(_draw_family(study, family))
    assert SENTENCE in text_of(_draw_labels(study))
    assert SENTENCE in text_of(_draw_draws(study, stops(study.main)))


def test_the_page_says_it_at_the_top_and_lists_them_escaped(study, tmp_path):
    write_page(study, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text))
    assert words.index(SENTENCE) < words.index("Sweeps The same votes") < words.index("the file is empty")
    assert "7 images are counted; 3 are left out" in words
    assert "&lt;script&gt;alert(9)&lt;/script&gt; &amp; {{ 7 * 7 }}" in text
    assert "<script>alert(9)" not in text
    assert "The averages are over the others, and might be lower with them." in words


def test_a_page_without_failures_does_not_speak_of_them(tmp_path):
    write_page(Study(make_run(tmp_path / "run")), tmp_path / "report.html")
    assert "voted on" not in (tmp_path / "report.html").read_text(encoding="utf-8").split('id="data"')[0]


def test_a_image_that_was_replaced_is_not_shown_as_certified(tmp_path):
    ids = [f"image-{place}" for place in range(12)]
    images = NoiseImages(ids, side=8)
    true = {place: image_hash(images[place].image) for place in range(1, 12)}
    run = make_run(tmp_path / "run", hashes={**true, 3: "0" * 64, 5: "1" * 64})
    known = list(run.certificates.ids)
    images.ids = known
    assert write_page(Study(run), tmp_path / "report.html", images=images) == 2
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])
    assert {each["id"] for each in data["images"] if each["thumbnail"] is None} == {known[3], known[5]}
    assert "In the place of 2 of them another image lies" in text
    images.ids = known[:7]
    assert write_page(Study(run), tmp_path / "report.html", images=images) == 2
    text = re.sub(r"\s+", " ", (tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "5 of them could not be found or read" in text
