"""Other kinds of pages in a browser: threshold rule, predicted labels, adaptive draws, odd radii, hostile names."""

import math
from decimal import Decimal
from itertools import product
from pathlib import Path

import matplotlib.path
import numpy as np
import pytest
from tests.report.browsing import (
    COLUMNS,
    assert_all_fits,
    assert_quiet,
    cards,
    headline,
    radius_value,
    settle,
    shown_ids,
    slide_to,
    table,
)
from tests.report.studies import HOSTILE_IDS, HOSTILE_LABELS, NoiseImages, make_run

from multiguard.certify import certified_size
from multiguard.evaluate import CalibrateConfig, Curve, calibrate
from multiguard.io.rounding import percent_value, round_up
from multiguard.report import Study, write_page
from multiguard.votes import read_votes

ODD_STEP = 0.0471234567890127
MOST_CEILINGS = 4
CARD = {
    "sizes": ".ceilings .size",
    "ceilings": ".ceilings .value",
    "floors": ".floors .value",
    "count": ".count strong",
    "most": ".ceiling",
    "holding": ".floors .holds",
}


def shown(curve: Curve, columns: tuple[str, ...], index: int) -> list[str]:
    percents = [percent_value(float(getattr(curve.scores, column)[index])) for column in columns]
    return [*percents, round_up(float(curve.scores.false_ceiling[index]), 2)]


def test_slider_with_ceilings(threshold: Study, pages: dict[str, Path], opened) -> None:
    """The slider shows floors and ceilings of the curves."""
    page = opened(pages["threshold"]).page
    for averaging, index in product(("pooled", "mean"), (0, 4, 10, 30)):
        page.locator(f"[name=averaging][value={averaging}]").check()
        own = {method: threshold.main_curve(method, averaging) for method in threshold.main.certificates.methods}
        slide_to(page, index)
        assert table(page, "methods") == {method: shown(curve, COLUMNS, index) for method, curve in own.items()}
        found = headline(page, (*COLUMNS, "false_ceiling"))
        assert list(found.values()) == shown(own["joint"], COLUMNS, index)
        assert page.locator(".readings dd").all_inner_texts()[-1] == found["false_ceiling"]
    assert len({tuple(shown(own["joint"], COLUMNS, index)) for index in (0, 4, 10, 30)}) > 2


def ceilings(radii: np.ndarray, farthest: float) -> list[tuple[str, str]]:
    """The rows of ceilings that a card has room for: none is passed over that is smaller and says as much."""
    reached = next((m for m, radius in enumerate(radii) if radius >= farthest), len(radii) - 1)
    kept = radii[: reached + 1].tolist()
    unproved = kept.count(-math.inf)
    names = (
        [] if not unproved else [("≤\u20090" if unproved == 1 else f"≤\u20090\u2013{unproved - 1}", "not certified")]
    )
    new = [m for m in range(unproved, len(kept)) if m == 0 or kept[m] != kept[m - 1]]
    return names + [(f"≤\u2009{m}", radius_value(kept[m])) for m in new[:MOST_CEILINGS]]


def test_cards_with_ceilings(threshold: Study, pages: dict[str, Path], opened) -> None:
    """Cards show floors and ceilings of the chosen method."""
    page, certificates = opened(pages["threshold"]).page, threshold.main.certificates
    grid = threshold.main.curves[0].scores.radius
    for method, step in (("joint", 5), ("independent", 0), ("independent", 20)):
        page.locator("#method").select_option(method)
        slide_to(page, step)
        for card in cards(page, **CARD):
            index = certificates.ids.index(card["id"])
            true, false = certificates.radii[method][index], certificates.false_radii[method][index]
            sizes = [size.removeprefix("at most ") for size in card["sizes"]]
            assert list(zip(sizes, card["ceilings"], strict=True)) == ceilings(false, grid[-1])
            proved = [radius_value(float(radius)) for radius in true if radius > -np.inf]
            assert card["floors"][: len(proved)] == proved
            if not len(true):
                continue
            assert card["count"] == [f"{certified_size(true, grid[step])} of {len(true)}"]
            most = next((m for m, radius in enumerate(false) if radius >= grid[step]), None)
            words = {None: "any number of wrong labels", 1: "at most 1 wrong label"}
            assert card["most"] == [words.get(most, f"at most {most} wrong labels")]
            assert len(card["holding"]) == certified_size(true, grid[step])


def test_predicted_labels(unlabelled: Study, pages: dict[str, Path], opened) -> None:
    """Predicted labels have radii of their own, and unconfirmed ones are marked."""
    page, certificates = opened(pages["unlabelled"]).page, unlabelled.main.certificates
    unconfirmed, radius = 0, float(page.locator("#radius-shown").inner_text())
    selectors = {"names": ".own .size", "values": ".own .value", "holding": ".own .holds", "true": ".true, .true-one"}
    for card in cards(page, **selectors, marks=".mark"):
        index = certificates.ids.index(card["id"])
        own = certificates.label_radii[index].tolist()
        assert card["names"] == [certificates.label_names[label] for label in certificates.labels[index]]
        words = ["unconfirmed" if each == -math.inf else radius_value(each) for each in own]
        assert card["values"] == words
        unconfirmed += words.count("unconfirmed")
        assert len(card["holding"]) == sum(each >= radius for each in own)
        assert card["true"] == card["marks"] == []
    total = sum(len(labels) for labels in certificates.labels)
    assert 0 < unconfirmed < total
    assert f"{unconfirmed} of {total}" in page.locator(".asides").inner_text()


def test_no_ground_truth(unlabelled: Study, pages: dict[str, Path], opened) -> None:
    """Without ground truth there is neither precision nor F1."""
    page = opened(pages["unlabelled"]).page
    words = "\n".join(page.locator("header, .instrument, main > section:not(#provenance)").all_inner_texts())
    assert not [word for word in ("precision", "F1", "true label", "recall") if word in words]
    assert "predicted labels, on average," in page.locator(".statement").inner_text()
    curve = unlabelled.main_curve("betting", "mean")
    for index in (0, 5):
        slide_to(page, index)
        assert table(page, "methods")["betting"] == shown(curve, ("recall",), index)
        assert headline(page, ("recall",))["recall"] == shown(curve, ("recall",), index)[0]
    page.locator("[name=averaging][value=pooled]").check()
    settle(page)
    assert "of all predicted labels together" in page.locator(".statement").inner_text()


def test_adaptive_draws(unlabelled: Study, pages: dict[str, Path], opened) -> None:
    """An adaptive run shows the draws of each image."""
    page, certificates = opened(pages["unlabelled"]).page, unlabelled.main.certificates
    assert page.locator("#radius-shown").inner_text() == "0.25", "the first radius that draws were spent for"
    counts = {draws: certificates.draws.count(draws) for draws in (40, 70, 100)}
    assert page.locator(".stops .name").all_text_contents() == [f"{draws} draws:" for draws in counts]
    assert page.locator(".stops .value").all_text_contents() == [f"{count} images" for count in counts.values()]
    for card in cards(page, draws="p.draws", percents=".prediction small"):
        index = certificates.ids.index(card["id"])
        draws = certificates.draws[index]
        assert card["draws"] == [f"{draws} draws"]
        percents = [int(text.split("\u00a0")[0]) for text in card["percents"]]
        assert percents == [math.floor(100 * hits / draws + 0.5) for hits in certificates.predicted_hits[index]]
    provenance = page.locator("#provenance").inner_text()
    assert "40, 70, 100" in provenance
    assert "mean_draws" in provenance


def test_staircase_of_bands(tmp_path: Path, opened) -> None:
    """A band has the steps of its curve: between two radii it is the one at the larger."""
    banded = Study(make_run(tmp_path, bands=0.9))
    write_page(banded, tmp_path / "report.html")
    page = opened(tmp_path / "report.html").page
    plot = page.locator("#methods [data-chart=precision] .plot")
    plot.locator(".js-fill").first.wait_for(state="attached")
    x, y, shape = plot.evaluate("({ _fullData: [band] }) => [band.x, band.y, band.line.shape]")
    curve = banded.main_curve("joint", "mean")
    grid, outline = curve.scores.radius, matplotlib.path.Path(np.column_stack([x, y]))
    low, high = (100 * end for end in curve.bands.precision)
    steps = np.flatnonzero(high[1:] > low[1:] + 1) + 1
    assert (shape, len(steps) > 0) == ("linear", True)
    for i in steps:
        ends = (low[i] - 0.5, low[i] + 0.5, high[i] - 0.5, high[i] + 0.5)
        inside = [outline.contains_point((grid[i - 1 : i + 1].mean(), y)) for y in ends]
        assert inside == [False, True, True, False]


@pytest.fixture(scope="module")
def odd_path(tmp_path_factory) -> Path:
    """A page whose radii have all the digits of a float, of images of one size."""
    folder = tmp_path_factory.mktemp("odd")
    study = Study(make_run(folder, step=ODD_STEP))
    write_page(study, folder / "report.html", images=NoiseImages(study.main.certificates.ids, side=40))
    return folder / "report.html"


def test_exact_radii(odd_path: Path, opened) -> None:
    """Radii are shown with all their digits, also where the pointer is over a chart."""
    page = opened(odd_path).page
    for index in (1, 7, 20):
        slide_to(page, index)
        radius = Decimal(repr(ODD_STEP)) * index
        assert page.locator("#radius-shown").inner_text() == repr(float(radius))
        assert set(page.locator("[data-radius]").all_text_contents()) == {repr(float(radius))}


def test_pixel_steps(odd_path: Path, opened) -> None:
    """How far all colour values can move is rounded down."""
    page, seen = opened(odd_path).page, set()
    for index in (0, 1, 2, 3, 11, 23, 31):
        slide_to(page, index)
        shown = Decimal(page.locator("#size-words b").inner_text().removesuffix(" of 255"))
        exact = 255 * (Decimal(repr(ODD_STEP)) * index) / Decimal(3 * 40 * 40).sqrt()
        assert shown <= exact < shown * Decimal("1.1") or shown == exact == 0
        seen.add(shown)
    assert len(seen) == 7


@pytest.mark.parametrize(
    ("name", "scheme"), [("labelled", "dark"), ("hostile", "light"), ("threshold", "dark"), ("unlabelled", "light")]
)
def test_quiet(pages: dict[str, Path], name: str, scheme: str, opened) -> None:
    """On no kind of page is anything fetched and does anything fail, and a phone never scrolls it sideways."""
    assert_quiet(opened(pages[name], scheme=scheme), pages[name])
    assert_all_fits(opened(pages[name], width=390).page, 390)


def test_hostile_names(hostile_study: Study, pages: dict[str, Path], opened) -> None:
    """Hostile names stay text."""
    page = opened(pages["hostile"]).page
    page.locator("#show-all").click()
    assert set(HOSTILE_IDS) <= set(shown_ids(page))
    headings = page.locator(".card h3").all_text_contents()
    assert set(HOSTILE_IDS) <= set(headings)
    bars = "\n".join(page.locator(".label-strips .name").all_text_contents())
    present = {label for true in hostile_study.main.certificates.labels for label in true}
    assert all(HOSTILE_LABELS[label] in bars for label in present)
    assert page.locator("h1").inner_text() == hostile_study.title
    assert page.title() == hostile_study.title
    assert hostile_study.commands[0] == page.locator("#provenance pre").inner_text()
    assert (
        page.evaluate("document.querySelectorAll('main img:not(.card img), main b img, [onerror], [onload]').length")
        == 0
    )
    assert page.locator("script").count() == 3


def test_hovered_names(pages: dict[str, Path], opened) -> None:
    """A hovered chart names its lines as they are."""
    page = opened(pages["hostile"]).page
    page.locator("#runs").scroll_into_view_if_needed()
    plot = page.locator("#runs .plot").first
    plot.locator(".js-line").first.wait_for(state="attached")
    plot.hover()
    plot.locator(".hoverlayer .legendtext").first.wait_for(state="attached")
    shown = "\n".join(plot.locator(".hoverlayer .legendtext").all_text_contents())
    assert all(
        name in shown for name in ("σ = 0.25 (<b>again</b>)", "σ = 0.25 (<img src=x onerror=alert(7)>)", "σ = 0.5")
    )


def test_promises(tmp_path: Path, opened) -> None:
    """The page states what holds of all images and of images like these, and what a calibration offers."""
    run = make_run(tmp_path, images=60, spread=6.0, bands=0.9)
    calibration = calibrate(CalibrateConfig(recall=0.3, radius=0.25), [read_votes(tmp_path / "votes")])
    write_page(Study(run, calibration=calibration), tmp_path / "report.html")
    visited = opened(tmp_path / "report.html")
    page, bands = visited.page, run.curves[0].bands
    for index in (0, 5, 12):
        slide_to(page, index)
        for name, floors in (("test_set", bands.test_set[1]), ("population", bands.population[1])):
            assert page.locator(f"[data-floor={name}]").inner_text() == percent_value(float(floors[index]))
    assert page.locator("#promise .words").inner_text() == calibration.sentence
    page.locator("#promise .plot").last.scroll_into_view_if_needed()
    page.locator("#promise .plot .js-line").last.wait_for(state="attached")
    radii, recalls = ({getattr(each, name) for each in calibration.offers} for name in ("radius", "recall"))
    assert page.locator("#promise .js-line").count() == len(radii) + len(recalls)
    cells = page.locator("#promise td").all_inner_texts()
    shown = {f"{round_up(each.returned, 1)}\n{round_up(each.wrong, 1)} wrong" for each in calibration.offers}
    assert {cell for cell in cells if cell != "\u2013"} == shown
    assert_quiet(visited, tmp_path / "report.html")
