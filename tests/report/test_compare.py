"""Runs are compared on the same images, and whatever sets them apart is said."""

import csv
from itertools import product

import numpy as np
import pytest
from tests.report.browsing import settle, slide_to, table
from tests.report.conftest import HOSTILE_NAMES
from tests.report.studies import THRESHOLD, UNLABELLED, changed, make_run

from multiguard.certify import certified_size
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CertifyConfig, Results
from multiguard.io.rounding import percent_value
from multiguard.report import ReportConfig, compare_runs, write_comparison
from multiguard.report.reports import difference_words

RADII = (0.0, 0.25, 0.5)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Results]:
    """Two trainings, the second of images of which one failed, and the other rule."""
    home = tmp_path_factory.mktemp("runs")
    return {
        "before": make_run(home / "before", images=30, methods=("joint", "paper")),
        "after": make_run(home / "after", images=32, spread=4.0, failed={7: "no such file"}),
        "sets": make_run(home / "sets", images=30, **THRESHOLD),
    }


def compared(runs, **config):
    return compare_runs(ReportConfig(**config), runs)


def own_recall(run: Results, method: str, ids, radius: float) -> np.ndarray:
    """The certified recall of each of these images that has labels."""
    proved = run.certificates
    rows = {name: (proved.radii[method][i], len(proved.labels[i])) for i, name in enumerate(proved.ids)}
    return np.array([certified_size(rows[i][0], radius) / rows[i][1] for i in ids if rows[i][1]])


def test_common_images(runs) -> None:
    """Scores and differences are over the images that all runs have votes of."""
    board = compared(runs, radii=RADII)
    failed = runs["after"].certificates.failures[0].image_id
    assert board.images == tuple(i for i in runs["before"].certificates.ids if i != failed)
    assert board.notes[0] == (
        "Compared on the 29 images that all runs have votes of; left out: 1 of before, 3 of after, 1 of sets."
    )
    for each in board.contenders:
        for radius in RADII:
            index = each.curves["mean"].scores.radius.tolist().index(radius)
            own = own_recall(runs[each.name], "joint", board.images, radius)
            assert each.curves["mean"].scores.recall[index] == pytest.approx(own.mean(), abs=1e-12)
            if each.differences is not None:
                paired = own - own_recall(runs["before"], "joint", board.images, radius)
                value, low, high = (ends[index] for ends in each.differences["recall"])
                assert value == pytest.approx(paired.mean(), abs=1e-12)
                assert low <= value <= high


def test_pairing(runs) -> None:
    """Intervals are paired: narrower than those of the two runs by themselves, and symmetric for a run and itself."""
    board = compared({"one": runs["before"], "same": runs["before"]}, radii=RADII)
    found = board.contenders[1].differences
    for difference, low, high in found.values():
        assert not difference.any()
        np.testing.assert_allclose(low, -high, atol=1e-8)
    apart = compared({"one": runs["before"], "other": runs["after"]}, radii=RADII).contenders[1]
    low, high = apart.differences["recall"][1:]
    widest = np.argmax(high - low)
    unpaired = [each.curves["mean"].bands.recall for each in (apart, board.baseline)]
    assert 0 < (high - low)[widest] < sum((band[1] - band[0])[widest] for band in unpaired)


def test_baseline(runs) -> None:
    """Any of the runs may be the baseline; its differences to the others change sign."""
    first, second = (compared(runs, radii=RADII, baseline=name) for name in ("before", "after"))
    forth = next(each for each in first.contenders if each.name == "after").differences["f1"][0]
    back = next(each for each in second.contenders if each.name == "before").differences["f1"][0]
    np.testing.assert_allclose(forth, -back, atol=1e-12)
    with pytest.raises(InvalidInputError, match="unknown baseline 'befor': did you mean 'before'"):
        compared(runs, baseline="befor")


def test_methods(runs) -> None:
    """Several methods of one run are compared, each under a name of its own."""
    board = compared({"run": runs["before"]}, methods=("joint", "paper"))
    assert [each.name for each in board.contenders] == ["run, joint", "run, paper"]
    assert compared({"run": runs["before"]}, methods=("joint", "paper"), baseline="run").baseline.method == "joint"
    with pytest.raises(InvalidInputError, match="one certificate cannot be compared"):
        compared({"run": runs["before"]})
    with pytest.raises(InvalidInputError, match="after has no certificates by paper; it was certified with joint"):
        compared(runs, methods=("paper",))


def test_other_truth(runs, tmp_path) -> None:
    """Runs that disagree on true labels, or have none, are not compared."""
    proved = runs["before"].certificates
    own = proved.labels[1]
    labels = (proved.labels[0], tuple((label + 1) % 20 for label in own), *list(proved.labels)[2:])
    other = changed(runs["before"], labels=labels)
    with pytest.raises(InvalidInputError, match=r"other and before disagree on the true labels of image-é-1"):
        compared({"before": runs["before"], "other": other})
    unlabelled = make_run(tmp_path, images=30, **UNLABELLED)
    with pytest.raises(InvalidInputError, match="different labels"):
        compared({"before": runs["before"], "unlabelled": unlabelled})
    renamed = changed(runs["before"], id=[f"other {i}" for i in proved.ids])
    with pytest.raises(InvalidInputError, match="no image is in all of before, other"):
        compared({"before": runs["before"], "other": renamed})


def test_without_truth(tmp_path) -> None:
    """Without ground truth the images count for which each run predicts a label."""
    kind = {**THRESHOLD, **UNLABELLED}
    one, other = make_run(tmp_path / "one", **kind), make_run(tmp_path / "other", spread=1.0, **kind)
    board = compared({"one": one, "other": other}, radii=RADII)
    assert [measure.word for measure in board.measures] == ["stay"]
    assert "labels that it predicts itself" in board.notes[1]
    assert all(all(each.run.certificates.labels) for each in board.contenders)


def test_notes(runs, tmp_path) -> None:
    """Another alpha and other pixels are said."""
    config = CertifyConfig(k=5, k_prime=2, alpha=0.1)
    hashes = {index: f"{index:064x}" for index in range(30)}
    loose = make_run(tmp_path, images=30, config=config, hashes=hashes)
    notes = " ".join(compared({"before": runs["before"], "loose": loose}).notes)
    assert "differ in α" in notes
    assert "so the same R is not the same attack" in notes
    plain = " ".join(compared(runs).notes)
    assert "differ in α" not in plain
    assert "not the same attack" not in plain


def test_records(runs, tmp_path) -> None:
    """The CSV and the JSON file hold the same numbers, without loss; no name is a formula."""
    named = {"=before": runs["before"], "after": runs["after"]}
    board = compared(named, radii=RADII)
    write_comparison(board, tmp_path / "comparison.html")
    rows = list(csv.DictReader((tmp_path / "comparison.csv").open(encoding="utf-8", newline="")))
    assert len(rows) == 2 * 2 * 3 * len(RADII)
    assert {row["run"] for row in rows} == {"'=before", "after"}
    for row, record in zip(rows, board.records(), strict=True):
        assert float(row["certified"]) == record["certified"]
        assert row["difference"] == ("" if record["difference"] is None else repr(record["difference"]))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A comparison of runs with hostile names, and its page."""
    home = tmp_path_factory.mktemp("hostile")
    one = make_run(home / "one", methods=("joint", "paper"), **HOSTILE_NAMES)
    other = make_run(home / "other", spread=4.0, **HOSTILE_NAMES)
    board = compared({"<b>one</b>": one, "</script><script>alert(1)</script>": other}, radii=RADII)
    return board, write_comparison(board, home / "comparison.html")[0]


def test_page_numbers(hostile, opened) -> None:
    """The page has the scores at the chosen radius, and the differences with their intervals."""
    board, path = hostile
    page, grid = opened(path).page, board.family.radius
    for averaging, index in product(("pooled", "mean"), (0, 8, 20)):
        page.locator(f"[name=averaging][value={averaging}]").check()
        slide_to(page, index)
        assert float(page.locator("#radius-shown").inner_text()) == grid[index]
        shown = table(page, "scores")
        assert list(shown) == [each.name for each in board.contenders]
        for each in board.contenders:
            for cell, measure in zip(shown[each.name], board.measures, strict=True):
                value, *difference = cell.split("\n")
                assert value == percent_value(float(measure.values(each.curves[averaging])[index]))
                found = each.difference(measure, index) if averaging == "mean" else None
                words = "{} ({} to {})".format(*difference_words(*found)).replace("-", "−") if found else ""
                assert "".join(difference) == words


def test_page_quiet(hostile, opened) -> None:
    """Nothing is fetched, nothing fails, no name is taken for markup, and a phone never scrolls the page sideways."""
    visited = opened(hostile[1])
    page = visited.page
    page.locator("#scores .plot .js-line").first.wait_for(state="attached")
    page.locator("#table").scroll_into_view_if_needed()
    settle(page)
    assert [url for url in visited.requests if url != hostile[1].as_uri() and not url.startswith("data:")] == []
    assert visited.errors == []
    assert page.locator("script").count() == 3
    assert opened(hostile[1], width=390).page.evaluate("document.documentElement.scrollWidth") <= 390
