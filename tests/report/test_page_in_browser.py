"""The page in a real browser: what it shows is what curves.csv holds, and it asks nobody for anything."""

import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from tests.report.browsing import (
    COLUMNS,
    assert_all_fits,
    assert_quiet,
    headline,
    settle,
    shown_ids,
    slide_to,
    table,
)
from tests.report.studies import HOSTILE_IDS, HOSTILE_LABELS, NoiseImages, make_run

from multiguard.certify import certified_size
from multiguard.report import Study, write_page
from multiguard.report.rounding import percent_value, radius_text


@pytest.fixture(scope="module")
def path(study: Study, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("page") / "report.html"
    write_page(study, place, images=NoiseImages(study.main.certificates.ids, side=40))
    return place


@pytest.fixture(scope="module")
def hostile_path(hostile_study: Study, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("hostile") / "report.html"
    write_page(hostile_study, place)
    return place


def expected_scores(study: Study, method: str, averaging: str, index: int) -> list[str]:
    scores = study.main_curve(method, averaging).scores
    return [percent_value(float(getattr(scores, column)[index])) for column in COLUMNS]


@pytest.mark.parametrize("averaging", ["mean", "pooled"])
def test_the_slider_shows_the_numbers_of_the_curves(study: Study, path: Path, opened, averaging: str) -> None:
    page = opened(path).page
    page.locator(f"[name=averaging][value={averaging}]").check()
    names = dict(zip(table(page, "methods"), study.main.certificates.methods, strict=True))
    grid = study.main.curves[0].scores.radius
    for index in (0, 3, 10, 17, len(grid) - 1):
        slide_to(page, index)
        for name, cells in table(page, "methods").items():
            assert cells == expected_scores(study, names[name], averaging, index)
        assert list(headline(page).values()) == expected_scores(study, "joint", averaging, index)
        assert float(page.locator("#radius-shown").inner_text()) == grid[index]


ODD_STEP = 0.0471234567890127


@pytest.fixture(scope="module")
def odd_path(tmp_path_factory) -> Path:
    """A page whose radii have all the digits of a float, of images of one size."""
    folder = tmp_path_factory.mktemp("odd")
    study = Study(make_run(folder, step=ODD_STEP))
    write_page(study, folder / "report.html", images=NoiseImages(study.main.certificates.ids, side=40))
    return folder / "report.html"


def test_radii_are_shown_as_they_were_asked(odd_path: Path, opened) -> None:
    page = opened(odd_path).page
    for index in (1, 7, 20):
        slide_to(page, index)
        radius = Decimal(repr(ODD_STEP)) * index
        assert page.locator("#radius-shown").inner_text() == repr(float(radius))
        assert set(page.locator("[data-radius]").all_text_contents()) == {repr(float(radius))}


def test_a_hovered_chart_shows_the_radius_as_it_was_asked(odd_path: Path, opened) -> None:
    page = opened(odd_path).page
    plot = page.locator("#methods .plot").first
    plot.locator(".js-line").first.wait_for(state="attached")
    plot.hover()
    title = plot.locator(".hoverlayer .legendtitletext")
    title.wait_for(state="attached")
    grid = {repr(float(Decimal(repr(ODD_STEP)) * index)) for index in range(40)}
    assert title.text_content().removeprefix("R = ") in grid


def test_how_far_each_value_may_move_is_rounded_down(odd_path: Path, opened) -> None:
    page, seen = opened(odd_path).page, set()
    for index in (0, 1, 2, 3, 11, 23, 31):
        slide_to(page, index)
        shown = Decimal(page.locator("#size-words b").inner_text().removesuffix(" of 255"))
        exact = 255 * (Decimal(repr(ODD_STEP)) * index) / Decimal(3 * 40 * 40).sqrt()
        assert shown <= exact < shown * Decimal("1.1") or shown == exact == 0
        seen.add(shown)
    assert len(seen) == 7


def test_arrow_keys_move_it_by_one_step(study: Study, path: Path, opened) -> None:
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


def test_the_method_changes_headline_and_gallery(study: Study, path: Path, opened) -> None:
    page = opened(path).page
    page.locator("#method").select_option("independent")
    settle(page)
    index = int(page.locator("#radius").input_value())
    assert list(headline(page).values()) == expected_scores(study, "independent", "mean", index)
    assert_cards(study, page, "independent", 0.5)


def assert_cards(study: Study, page, method: str, radius: float) -> None:
    certificates = study.main.certificates
    for card in page.locator(".card").all():
        place = certificates.ids.index(card.get_attribute("data-id"))
        radii, true = certificates.radii[method][place], len(certificates.labels[place])
        if true:
            assert card.locator(".count strong").text_content() == f"{certified_size(radii, radius)} of {true}"
        proved = [radius_text(float(each)) for each in radii if each > -np.inf]
        rest = ["not certified"] if len(proved) < len(radii) else []
        assert card.locator(".radii .value").all_text_contents() == proved + rest
        assert card.locator(".radii .holds").count() == certified_size(radii, radius)


def test_every_card_says_what_was_proved_and_predicted(study: Study, path: Path, opened) -> None:
    page, certificates = opened(path).page, study.main.certificates
    for index in (0, 10, 25):
        slide_to(page, index)
        assert_cards(study, page, "joint", study.main.curves[0].scores.radius[index])
    for card in page.locator(".card").all():
        place = certificates.ids.index(card.get_attribute("data-id"))
        marks = card.locator(".true .mark").all_text_contents()
        assert marks == ["✓" if label in certificates.predicted[place] else "✗" for label in certificates.labels[place]]
        named = [text.split("\u00a0")[0] for text in card.locator(".prediction li").all_text_contents()]
        assert named == [certificates.label_names[label] for label in certificates.predicted[place]]
        loaded = "async (image) => { image.loading = 'eager'; await image.decode(); return image.naturalWidth; }"
        assert card.locator("img").evaluate(loaded) == 40


def test_the_gallery_sorts(study: Study, path: Path, opened) -> None:
    page, certificates = opened(path).page, study.main.certificates

    def share(image_id: str, radius: float) -> float:
        place = certificates.ids.index(image_id)
        return int(certified_size(certificates.radii["joint"][place], radius)) / len(certificates.labels[place])

    labelled = [i for i, true in zip(certificates.ids, certificates.labels, strict=True) if true]
    orders = {}
    for index in (0, 10):
        slide_to(page, index)
        radius = study.main.curves[0].scores.radius[index]
        for order in ("weakest", "strongest"):
            page.locator("#image-order").select_option(order)
            found = shown_ids(page)
            assert set(found[: len(labelled)]) == set(labelled), "images without labels stand last"
            shares = [share(image_id, radius) for image_id in found[: len(labelled)]]
            assert shares == sorted(shares, reverse=order == "strongest")
            orders[order, index] = found
    assert len({tuple(order) for order in orders.values()}) == 4
    page.locator("#image-order").select_option("id")
    assert shown_ids(page) == sorted(certificates.ids)
    page.locator("#image-order").select_option("labels")
    counts = [len(certificates.labels[certificates.ids.index(image_id)]) for image_id in shown_ids(page)]
    assert counts == sorted(counts, reverse=True)


def test_the_gallery_filters(study: Study, path: Path, opened) -> None:
    page, certificates = opened(path).page, study.main.certificates
    label = certificates.labels[4][0]
    page.locator("#image-label").select_option(str(label))
    having = {i for i, true in zip(certificates.ids, certificates.labels, strict=True) if label in true}
    assert set(shown_ids(page)) == having
    page.locator("#image-label").select_option("")
    page.locator("#image-text").fill(certificates.ids[7].upper())
    assert shown_ids(page) == [certificates.ids[7]]
    assert page.locator("#image-count").inner_text() == "1 of 1 shown, 12 in all"


def test_labels_follow_the_slider(study: Study, path: Path, opened) -> None:
    page = opened(path).page
    for index in (0, 12):
        slide_to(page, index)
        rows = page.locator(".label-bars li").all()
        names = [re.sub(r" \d+ images?$", "", row.locator(".name").text_content()) for row in rows]
        values = [row.locator(".value").text_content() for row in rows]
        expected = {label.label: f"{percent_value(float(label.certified[index]))} %" for label in study.main.labels}
        assert dict(zip(names, values, strict=True)) == expected
        assert values == sorted(values, key=lambda value: -float(value[:-2]))
        assert len(rows) == len(study.main.labels)


def test_tabs_show_each_sweep_and_run(study: Study, path: Path, opened) -> None:
    page = opened(path).page
    assert page.locator("#sweeps [role=tab]").all_inner_texts() == ["k′", "k", "n", "α"]
    page.locator("#sweeps [role=tab]").first.focus()
    page.keyboard.press("ArrowRight")
    index = int(page.locator("#radius").input_value())
    for curve in study.main.curves:
        if curve.method == "joint" and curve.averaging == "mean" and curve.setting.k != study.setting.k:
            expected = [percent_value(float(getattr(curve.scores, column)[index])) for column in COLUMNS]
            assert table(page, "sweeps")[f"k = {curve.setting.k}"] == expected
    assert "not covered" in page.locator("#sweeps .note").inner_text()
    assert page.locator("#runs [role=tab]").all_inner_texts() == ["σ", "Training noise", "Other runs"]
    low = study.beside["low noise"].certificates
    true = [len(labels) for labels in low.labels]
    sizes = [int(certified_size(radii, 0.5)) for radii in low.radii["joint"]]
    recall = sum(size / count for size, count in zip(sizes, true, strict=True) if count) / sum(map(bool, true))
    assert float(table(page, "runs")["σ = 0.25"][0]) == pytest.approx(100 * recall, abs=0.1)


def test_the_line_stands_at_the_radius_in_every_chart(path: Path, opened) -> None:
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_fetched_and_nothing_complains(path: Path, hostile_path: Path, opened, scheme: str) -> None:
    for place in (path, hostile_path):
        assert_quiet(opened(place, scheme=scheme), place)


def test_hostile_names_stay_text(hostile_study: Study, hostile_path: Path, opened) -> None:
    page = opened(hostile_path).page
    page.locator("#show-all").click()
    assert set(HOSTILE_IDS) <= set(shown_ids(page))
    headings = page.locator(".card h3").all_text_contents()
    assert set(HOSTILE_IDS) <= set(headings)
    bars = "\n".join(page.locator(".label-bars .name").all_text_contents())
    present = {label for true in hostile_study.main.certificates.labels for label in true}
    assert all(HOSTILE_LABELS[label] in bars for label in present)
    assert page.locator("h1").inner_text() == hostile_study.title
    assert page.title() == hostile_study.title
    assert hostile_study.commands[0] in page.locator("#origin pre").inner_text()
    assert (
        page.evaluate("document.querySelectorAll('main img:not(.card img), main b img, [onerror], [onload]').length")
        == 0
    )
    assert page.locator("script").count() == 3


def test_a_hovered_chart_names_its_lines_as_they_are(hostile_path: Path, opened) -> None:
    page = opened(hostile_path).page
    page.locator("#runs").scroll_into_view_if_needed()
    plot = page.locator("#runs .plot").first
    plot.locator(".js-line").first.wait_for(state="attached")
    plot.hover()
    plot.locator(".hoverlayer .legendtext").first.wait_for(state="attached")
    shown = "\n".join(plot.locator(".hoverlayer .legendtext").all_text_contents())
    assert all(
        name in shown for name in ("σ = 0.25 (<b>again</b>)", "σ = 0.25 (<img src=x onerror=alert(7)>)", "σ = 0.5")
    )


@pytest.mark.parametrize("which", ["path", "hostile_path"])
def test_a_phone_never_scrolls_sideways(which: str, opened, request) -> None:
    page = opened(request.getfixturevalue(which), width=390).page
    assert_all_fits(page, 390)


def test_the_dark_scheme_changes_page_and_charts(path: Path, opened) -> None:
    page = opened(path).page
    looks = []
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
    assert all(light != dark for light, dark in zip(*looks, strict=True))


def test_printing_is_dark_on_light_and_fits_the_paper(path: Path, opened) -> None:
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
    assert page.evaluate("getComputedStyle(document.body).color") == ink


def test_charts_follow_the_width_of_the_window(path: Path, opened) -> None:
    page = opened(path).page
    page.set_viewport_size({"width": 700, "height": 900})
    settle(page)
    widths = page.locator(".chart, .chart .main-svg").evaluate_all(
        "all => all.slice(0, 2).map((one) => one.clientWidth)"
    )
    assert widths[0] == widths[1] > 500


def test_it_can_be_used_from_the_keyboard(path: Path, opened) -> None:
    page = opened(path).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.name || ''"))
    assert {"radius", "averaging", "method", "label-order", "image-order", "image-label", "image-text"} <= reached
