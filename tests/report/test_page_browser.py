"""The page in a real browser: it shows the numbers of the curves and fetches nothing."""

import re
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
    drawn_lines,
    headline,
    open_page,
    radius_value,
    settle,
    shown_ids,
    slide_to,
    table,
)
from tests.report.studies import HOSTILE_IDS, HOSTILE_LABELS, NoiseImages, make_run

from multiguard.certify import certified_size
from multiguard.evaluate import set_scores
from multiguard.io.rounding import percent_value
from multiguard.report import Study, write_page


@pytest.fixture
def path(pages: dict[str, Path]) -> Path:
    return pages["labelled"]


def expected_scores(study: Study, method: str, averaging: str, index: int) -> list[str]:
    scores = study.main_curve(method, averaging).scores
    return [percent_value(float(getattr(scores, column)[index])) for column in COLUMNS]


def test_slider(study: Study, path: Path, opened) -> None:
    """The slider shows the numbers of the curves."""
    page = opened(path).page
    names = dict(zip(table(page, "methods"), study.main.certificates.methods, strict=True))
    grid = study.main.curves[0].scores.radius
    for averaging, index in product(("mean", "pooled"), (0, 3, 10, 17, len(grid) - 1)):
        page.locator(f"[name=averaging][value={averaging}]").check()
        slide_to(page, index)
        for name, cells in table(page, "methods").items():
            assert cells == expected_scores(study, names[name], averaging, index)
        assert list(headline(page).values()) == expected_scores(study, "joint", averaging, index)
        assert float(page.locator("#radius-shown").inner_text()) == grid[index]


@pytest.mark.parametrize("averaging", ["mean", "pooled"])
def test_staircase(study: Study, path: Path, opened, averaging: str) -> None:
    """Along every line that a chart draws, no point is above what is proved at its radius."""
    page, certificates = opened(path).page, study.main.certificates
    page.locator(f"[name=averaging][value={averaging}]").check()
    names = dict(zip(table(page, "methods"), certificates.methods, strict=True))
    options = {"num_true": [len(labels) for labels in certificates.labels], "averaging": averaging}
    for chart in drawn_lines(page, "methods"):
        across, up = chart["pixel"]
        assert {line["name"] for line in chart["lines"]} == set(names)
        for line in chart["lines"]:
            radius, shown = np.array(line["points"]).T
            proved = set_scores(
                certificates.set_radii(names[line["name"]]),
                certificates.config.rule,
                radius=np.clip(radius - 0.02 * across, 0, None),
                **options,
            )
            assert np.all(shown <= 100 * getattr(proved, chart["score"]) + 0.02 * up)
            assert np.ptp(shown) > 10 * up


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


ODD_STEP = 0.0471234567890127


@pytest.fixture(scope="module")
def odd_path(tmp_path_factory) -> Path:
    """A page whose radii have all the digits of a float, of images of one size."""
    folder = tmp_path_factory.mktemp("odd")
    study = Study(make_run(folder, step=ODD_STEP))
    write_page(study, folder / "report.html", images=NoiseImages(study.main.certificates.ids, side=40))
    return folder / "report.html"


def test_exact_radii(odd_path: Path, opened) -> None:
    """Radii are shown with all their digits."""
    page = opened(odd_path).page
    for index in (1, 7, 20):
        slide_to(page, index)
        radius = Decimal(repr(ODD_STEP)) * index
        assert page.locator("#radius-shown").inner_text() == repr(float(radius))
        assert set(page.locator("[data-radius]").all_text_contents()) == {repr(float(radius))}


def test_hovered_radius(odd_path: Path, opened) -> None:
    """A hovered chart shows the radius with all its digits."""
    page = opened(odd_path).page
    plot = page.locator("#methods .plot").first
    plot.locator(".js-line").first.wait_for(state="attached")
    plot.hover()
    title = plot.locator(".hoverlayer .legendtitletext")
    title.wait_for(state="attached")
    grid = {repr(float(Decimal(repr(ODD_STEP)) * index)) for index in range(40)}
    assert title.text_content().removeprefix("R = ") in grid


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


def test_arrow_keys(study: Study, path: Path, opened) -> None:
    """Arrow keys move the slider by one step."""
    page = opened(path).page
    slider = page.locator("#radius")
    start = int(slider.input_value())
    slider.focus()
    for key, index in (("ArrowRight", start + 1), ("ArrowRight", start + 2), ("ArrowLeft", start + 1), ("Home", 0)):
        page.keyboard.press(key)
        settle(page)
        assert list(headline(page).values()) == expected_scores(study, "joint", "mean", index)
        radius = study.main.curves[0].scores.radius[index]
        assert slider.get_attribute("aria-valuetext") == f"R = {radius:g}"


def test_method_choice(study: Study, path: Path, opened) -> None:
    """The method changes headline and gallery."""
    page = opened(path).page
    page.locator("#method").select_option("independent")
    settle(page)
    index = int(page.locator("#radius").input_value())
    assert list(headline(page).values()) == expected_scores(study, "independent", "mean", index)
    assert_cards(study, page, "independent", 0.5)


def assert_cards(study: Study, page, method: str, radius: float) -> None:
    certificates = study.main.certificates
    for card in cards(page, count=".count strong", values=".radii .value", holding=".radii .holds"):
        index = certificates.ids.index(card["id"])
        radii, true = certificates.radii[method][index], len(certificates.labels[index])
        assert card["count"] == ([f"{certified_size(radii, radius)} of {true}"] if true else [])
        proved = [radius_value(float(each)) for each in radii if each > -np.inf]
        assert card["values"] == proved + ["not certified"] * (len(proved) < len(radii))
        assert len(card["holding"]) == certified_size(radii, radius)


def test_cards(study: Study, path: Path, opened) -> None:
    """Every card shows what was proved and predicted."""
    page, certificates = opened(path).page, study.main.certificates
    for index in (0, 10, 25):
        slide_to(page, index)
        assert_cards(study, page, "joint", study.grid[index])
    for card in cards(page, marks=".true .mark", predicted=".prediction li"):
        index = certificates.ids.index(card["id"])
        predicted, labels = certificates.predicted[index], certificates.labels[index]
        assert card["marks"] == ["✓" if label in predicted else "✗" for label in labels]
        names = [text.split("\u00a0")[0] for text in card["predicted"]]
        assert names == [certificates.label_names[label] for label in predicted]
    decode = (
        "(all) => Promise.all(all.map(async (i) => { i.loading = 'eager'; await i.decode(); return i.naturalWidth; }))"
    )
    assert page.locator(".card img").evaluate_all(decode) == [40] * 12


def test_gallery_order(study: Study, path: Path, opened) -> None:
    """The gallery sorts by strength, id and number of labels."""
    page, certificates = opened(path).page, study.main.certificates

    def fraction(image_id: str, radius: float) -> float:
        index = certificates.ids.index(image_id)
        return int(certified_size(certificates.radii["joint"][index], radius)) / len(certificates.labels[index])

    labelled = [i for i, true in zip(certificates.ids, certificates.labels, strict=True) if true]
    orders = {}
    for index in (0, 10):
        slide_to(page, index)
        radius = study.main.curves[0].scores.radius[index]
        for order in ("weakest", "strongest"):
            page.locator("#image-order").select_option(order)
            found = shown_ids(page)
            assert set(found[: len(labelled)]) == set(labelled), "images without labels come last"
            fractions = [fraction(image_id, radius) for image_id in found[: len(labelled)]]
            assert fractions == sorted(fractions, reverse=order == "strongest")
            orders[order, index] = found
    assert len({tuple(order) for order in orders.values()}) == 4
    page.locator("#image-order").select_option("id")
    assert shown_ids(page) == sorted(certificates.ids)
    page.locator("#image-order").select_option("labels")
    counts = [len(certificates.labels[certificates.ids.index(image_id)]) for image_id in shown_ids(page)]
    assert counts == sorted(counts, reverse=True)


def test_gallery_filter(study: Study, path: Path, opened) -> None:
    """The gallery filters by label and text."""
    page, certificates = opened(path).page, study.main.certificates
    label = certificates.labels[4][0]
    page.locator("#image-label").select_option(str(label))
    having = {i for i, true in zip(certificates.ids, certificates.labels, strict=True) if label in true}
    assert set(shown_ids(page)) == having
    page.locator("#image-label").select_option("")
    page.locator("#image-text").fill(certificates.ids[7].upper())
    assert shown_ids(page) == [certificates.ids[7]]
    assert page.locator("#image-count").inner_text() == "1 of 1 shown, 12 in all"


def test_label_strips(study: Study, path: Path, opened) -> None:
    """The numbers of labels follow the slider."""
    page = opened(path).page
    for index in (0, 12):
        slide_to(page, index)
        texts = page.locator(".label-strips .name").all_text_contents()
        names = [re.sub(r" \d+ images?$", "", text) for text in texts]
        values = page.locator(".label-strips .value").all_text_contents()
        expected = {label.label: f"{percent_value(float(label.certified[index]))} %" for label in study.main.labels}
        assert dict(zip(names, values, strict=True)) == expected
        assert values == sorted(values, key=lambda value: -float(value[:-2]))
        assert len(values) == len(study.main.labels)


def test_tabs(study: Study, path: Path, opened) -> None:
    """Tabs show each sweep and each run."""
    page = opened(path).page
    assert page.locator("#sweeps [role=tab]").all_inner_texts() == ["k′", "k", "n", "α"]
    page.locator("#sweeps [role=tab]").first.focus()
    page.keyboard.press("ArrowRight")
    index = int(page.locator("#radius").input_value())
    for curve in study.main.curves:
        if curve.method == "joint" and curve.averaging == "mean" and curve.config.rule.k != study.config.rule.k:
            expected = [percent_value(float(getattr(curve.scores, column)[index])) for column in COLUMNS]
            assert table(page, "sweeps")[f"k = {curve.config.rule.k}"] == expected
    assert "not covered" in page.locator("#sweeps .note").inner_text()
    assert page.locator("#runs [role=tab]").all_inner_texts() == ["Noise", "Training noise", "Other runs"]
    low = study.beside["low noise"].certificates
    true = [len(labels) for labels in low.labels]
    sizes = [int(certified_size(radii, 0.5)) for radii in low.radii["joint"]]
    recall = sum(size / count for size, count in zip(sizes, true, strict=True) if count) / sum(map(bool, true))
    assert float(table(page, "runs")["σ = 0.25"][0]) == pytest.approx(100 * recall, abs=0.1)


def test_radius_line(path: Path, opened) -> None:
    """The line is at the radius in every chart."""
    page = opened(path).page
    for section in ("methods", "sweeps", "runs"):
        page.locator(f"#{section} .plot svg.main-svg").first.wait_for(state="attached")
        page.locator(f"#{section}").scroll_into_view_if_needed()
    for index in (0, 10, 30):
        slide_to(page, index)
        distances = page.evaluate(
            """() => [...document.querySelectorAll('.chart')].map((chart) => {
                const plot = chart.querySelector('.plot'), axis = plot._fullLayout.xaxis;
                const radius = Number(document.getElementById('radius-shown').textContent);
                const there = plot.getBoundingClientRect().left + axis._offset + axis.d2p(radius);
                return Math.abs(chart.querySelector('.cursor').getBoundingClientRect().left - there);
            })"""
        )
        assert len(distances) == 9
        assert max(distances) < 1.5


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
    assert hostile_study.commands[0] in page.locator("#provenance pre").inner_text()
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


def test_dark_scheme(path: Path, opened) -> None:
    """The dark scheme changes page and charts."""
    page, looks = opened(path).page, []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        settle(page)
        page.locator("#methods .plot .js-line").first.wait_for(state="attached")
        looks.append(
            page.evaluate(
                """() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,
                    getComputedStyle(document.querySelector('#methods .plot .js-line')).stroke,
                    getComputedStyle(document.querySelector('#methods .key path')).stroke,
                    getComputedStyle(document.querySelector('#methods .xtick text')).fill]"""
            )
        )
    page.emulate_media(color_scheme="light")
    assert all(light != dark for light, dark in zip(*looks, strict=True))


def test_printing(path: Path, opened) -> None:
    """Print is dark on light and fits the paper."""
    page = opened(path, scheme="dark").page
    ink = page.evaluate("getComputedStyle(document.body).color")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 660, "height": 930})
    settle(page)
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(26, 28, 31)" != ink
    assert page.locator("#runs .plot .js-line").count() > 0, "charts that were never on the screen are printed too"
    rights = page.locator(".plot .main-svg").evaluate_all(
        "all => all.map((each) => each.getBoundingClientRect().right)"
    )
    assert max(rights) <= 660
    page.emulate_media(media="screen", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.set_viewport_size({"width": 1440, "height": 900})
    assert page.evaluate("getComputedStyle(document.body).color") == ink


def test_window_width(path: Path, opened) -> None:
    """Charts follow the width of the window."""
    page = opened(path).page
    page.set_viewport_size({"width": 700, "height": 900})
    settle(page)
    widths = page.locator(".chart, .chart .main-svg").evaluate_all(
        "all => all.slice(0, 2).map((one) => one.clientWidth)"
    )
    page.set_viewport_size({"width": 1440, "height": 900})
    assert widths[0] == widths[1] > 500


def test_keyboard(path: Path, browser) -> None:
    """Every control can be reached from the keyboard."""
    page = open_page(browser.new_context(), path).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.name || ''"))
    page.context.close()
    assert {"radius", "averaging", "method", "label-order", "image-order", "image-label", "image-text"} <= reached
