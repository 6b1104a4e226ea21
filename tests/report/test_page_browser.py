"""The page in a real browser: it shows the numbers of the curves and fetches nothing."""

import base64
import io
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.evaluate.votes_cases import set_radii
from tests.report.browsing import (
    COLUMNS,
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

from multiguard.certify import certified_size
from multiguard.evaluate import set_scores
from multiguard.evaluate.curves import most_false
from multiguard.io.rounding import percent_value
from multiguard.report import Study
from multiguard.report.words import closing_sentence


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
                set_radii(certificates, names[line["name"]]),
                certificates.config.rule,
                radius=np.clip(radius - 0.02 * across, 0, None),
                **options,
            )
            assert np.all(shown <= 100 * getattr(proved, chart["score"]) + 0.02 * up)
            assert np.ptp(shown) > 10 * up


def assert_cards(study: Study, page, method: str, radius: float) -> None:
    certificates = study.main.certificates
    """Every card shows what was proved; a label has its own radius, but no more than as many labels have together."""
    selectors = {"count": ".count strong", "values": ".radii .value", "holding": ".radii .holds"}
    for card in cards(page, **selectors, own=".true small"):
        index = certificates.ids.index(card["id"])
        radii, true = certificates.radii[method][index], len(certificates.labels[index])
        assert card["count"] == ([f"{certified_size(radii, radius)} of {true}"] if true else [])
        proved = [radius_value(float(each)) for each in radii if each > -np.inf]
        assert card["values"] == proved + ["not certified"] * (len(proved) < len(radii))
        assert len(card["holding"]) == certified_size(radii, radius)
        own = np.sort(certificates.label_radii[index])[::-1][: len(radii)]
        together = np.minimum(own, radii[: len(own)])
        found = [text for text in card["own"] if re.search(r"\d", text)]
        assert sorted(text.removeprefix(", stays up to ") for text in found) == sorted(
            radius_value(float(each)) for each in together if each > -np.inf
        )


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
    assert page.locator("#runs [role=tab]").all_inner_texts() == ["Noise", "Training noise"]
    low = study.others["low noise"].certificates
    true = [len(labels) for labels in low.labels]
    sizes = [int(certified_size(radii, 0.5)) for radii in low.radii["joint"]]
    recall = sum(size / count for size, count in zip(sizes, true, strict=True) if count) / sum(map(bool, true))
    assert float(table(page, "runs")["σ = 0.25"][0]) == pytest.approx(100 * recall, abs=0.1)


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


def test_keyboard(path: Path, browser) -> None:
    """Every control can be reached from the keyboard."""
    page = open_page(browser.new_context(), path).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.name || ''"))
    slider = page.locator("#radius")
    slider.focus()
    for key, radius in (("ArrowRight", "0.55"), ("ArrowLeft", "0.5"), ("Home", "0")):
        page.keyboard.press(key)
        settle(page)
        assert slider.get_attribute("aria-valuetext") == f"R = {radius}"
    page.context.close()
    assert {"radius", "averaging", "method", "label-order", "image-order", "image-label", "image-text"} <= reached


def hits(labels, returned, averaging: str, score: str) -> float:
    """Precision, recall or F1 of what was returned, the slow way."""
    kept = [i for i, own in enumerate(labels) if own or averaging == "pooled"]
    found = np.array([len({*labels[i]} & {*returned[i]}) for i in kept], float)
    true, given = np.array([len(labels[i]) for i in kept], float), np.full(len(kept), 5.0)  # k = 5
    parts = {"recall": (found, true), "precision": (found, given), "f1": (2 * found, true + given)}[score]
    if averaging == "pooled":
        return parts[0].sum() / parts[1].sum()
    return float(np.mean(parts[0] / parts[1]))


def test_price(study: Study, path: Path, opened) -> None:
    """The base classifier without noise and the smoothed one without attack are shown with what is certified."""
    page, proved = opened(path).page, study.main.certificates
    slide_to(page, 6)
    for averaging in ("pooled", "mean"):
        page.locator(f"[name=averaging][value={averaging}]").check()
        rows = page.locator("#price tbody tr").evaluate_all(
            "all => all.map((row) => [...row.querySelectorAll('td > span:last-child')].map((cell) => cell.textContent))"
        )
        for row, returned in zip(rows, (proved.bare, proved.predicted), strict=False):
            expected = [100 * hits(proved.labels, returned, averaging, score) for score in COLUMNS]
            assert [float(text) for text in row] == pytest.approx(expected, abs=0.1001)
        scores = study.main_curve("joint", averaging).scores
        assert rows[2] == [percent_value(float(getattr(scores, score)[6])) for score in COLUMNS]
        assert len({tuple(row) for row in rows}) == 3


def test_closing_sentence(study: Study, path: Path, opened) -> None:
    """The page ends in counts, which follow radius and method and are never rounded."""
    page, proved = opened(path).page, study.main.certificates
    page.locator("#method").select_option("paper")
    total = sum(map(len, proved.labels))
    for index in (0, 5, 12):
        slide_to(page, index)
        radius = float(study.grid[index])
        sizes = sorted(int(certified_size(radii, radius)) for radii in proved.radii["paper"])
        stay = sum(sizes[: len(sizes) - most_false(9, proved.alpha)])
        words = (
            f"At R = {page.locator('#radius-shown').inner_text()} (l2-norm) at least {stay} of the {total} true labels"
        )
        assert page.locator(".closing").inner_text().startswith(words)
    assert closing_sentence(study.main).endswith(
        "true labels of these 9 images stay, with probability 0.998 (test set)."
    )


def test_strips(study: Study, path: Path, opened) -> None:
    """No point of a label's chart is above what is certified at its radius."""
    page = opened(path).page
    strips = page.locator(".label-strips li").evaluate_all(
        """rows => rows.map((row) => {
            const path = row.querySelector("path"), points = [];
            for (let at = 0; at < path.getTotalLength(); at += 0.25) {
                const { x, y } = path.getPointAtLength(at);
                points.push([x / 200, 1 - y / 30]);
            }
            return [row.querySelector(".name").firstChild.textContent, points];
        })"""
    )
    proved, end = study.main.certificates, float(study.grid[-1])
    assert len(strips) == len(study.label_scores)
    for name, points in strips:
        label = proved.label_names.index(name)
        pairs = zip(proved.labels, proved.label_radii, strict=True)
        own = np.array([radii[labels.index(label)] for labels, radii in pairs if label in labels])
        for across, up in points:
            assert up <= np.mean(own >= end * across - 0.005) + 0.01
        assert max(up for _, up in points) == pytest.approx(np.mean(own >= 0), abs=0.02)


def pixels(uri: str) -> np.ndarray:
    content = base64.b64decode(uri.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), dtype=float) / 255


def test_looks(study: Study, path: Path, opened) -> None:
    """The gallery shows each image as it is, with a small perturbation, or with the noise."""
    page = opened(path).page
    sources = {}
    for look in ("", "perturbed", "noisy"):
        page.locator("#image-look").select_option(look)
        settle(page)
        sources[look] = page.locator(".card img").first.get_attribute("src")
        visible = page.locator(".note.look:visible").evaluate_all("all => all.map((one) => one.dataset.look)")
        assert visible == ([look] if look else [])
    plain, perturbed, noisy = (pixels(sources[look]) for look in ("", "perturbed", "noisy"))
    assert 0 < np.abs(perturbed - plain).mean() < 0.1 < np.abs(noisy - plain).mean()


def test_address(study: Study, path: Path, opened) -> None:
    """What is chosen is in the address, and a page opened with that address shows it."""
    visited = opened(path)
    page, label = visited.page, study.main.certificates.labels[1][0]
    slide_to(page, 7)
    page.locator("#method").select_option("paper")
    page.locator("[name=averaging][value=pooled]").check()
    page.locator("#image-label").select_option(str(label))
    page.locator("#image-text").fill("é-1")
    page.wait_for_url(lambda url: "find=" in url)
    ids = page.locator(".card").evaluate_all("cards => cards.map((card) => card.dataset.id)")
    headline = page.locator(".headline .statement").inner_text()
    other = open_page(page.context, path, page.url.removeprefix(path.as_uri()))
    settle(other.page)
    assert other.page.locator("#radius").input_value() == "7"
    assert other.page.locator("#method").input_value() == "paper"
    assert other.page.locator(".headline .statement").inner_text() == headline
    assert other.page.locator(".card").evaluate_all("cards => cards.map((card) => card.dataset.id)") == ids != []
    other.page.evaluate("location.hash = '#R=0.5'")
    other.page.locator("#radius-shown", has_text="0.5").wait_for()
    assert other.errors == []
    other.page.close()


@pytest.mark.parametrize("hash_", ["#R=7&method=nobody&label=99&sort=x&average=y&=&%", "#images"])
def test_foreign_address(path: Path, opened, hash_: str) -> None:
    """Unknown values in the address are ignored; the name of a section stays a link to it."""
    visited = open_page(opened(path).page.context, path, hash_)
    settle(visited.page)
    assert visited.page.locator("#radius-shown").inner_text() == "0.5"
    assert visited.page.locator("#method").input_value() == "joint"
    assert visited.errors == []
    visited.page.close()
