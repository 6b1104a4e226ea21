"""The page in a real browser: the price of smoothing, charts of labels, images of perturbations, and the address."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.report.browsing import open_page, settle, slide_to
from tests.report.studies import NoiseImages, make_run

from multiguard.certify import certified_size
from multiguard.io.rounding import percent_value
from multiguard.report import Study, write_page
from multiguard.report.words import closing_sentence

FLOORS = ("recall", "precision", "f1")


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> Study:
    return Study(make_run(tmp_path_factory.mktemp("run"), methods=("joint", "paper")), title="Views")


@pytest.fixture(scope="module")
def path(shown: Study, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("views") / "report.html"
    write_page(shown, path, images=NoiseImages(shown.main.certificates.ids, side=40))
    return path


def hits(labels, returned, averaging: str, score: str) -> float:
    """Precision, recall or F1 of what was returned, the slow way."""
    kept = [i for i, own in enumerate(labels) if own or averaging == "pooled"]
    found = np.array([len({*labels[i]} & {*returned[i]}) for i in kept], float)
    true, given = np.array([len(labels[i]) for i in kept], float), np.full(len(kept), 5.0)  # k = 5
    parts = {"recall": (found, true), "precision": (found, given), "f1": (2 * found, true + given)}[score]
    if averaging == "pooled":
        return parts[0].sum() / parts[1].sum()
    return float(np.mean(parts[0] / parts[1]))


def test_price(shown: Study, path: Path, opened) -> None:
    """The base classifier without noise and the smoothed one without attack stand beside what is certified."""
    page, proved = opened(path).page, shown.main.certificates
    slide_to(page, 6)
    for averaging in ("pooled", "mean"):
        page.locator(f"[name=averaging][value={averaging}]").check()
        rows = page.locator("#price tbody tr").evaluate_all(
            "all => all.map((row) => [...row.querySelectorAll('td > span:last-child')].map((cell) => cell.textContent))"
        )
        for row, returned in zip(rows, (proved.bare, proved.predicted), strict=False):
            expected = [100 * hits(proved.labels, returned, averaging, score) for score in FLOORS]
            assert [float(text) for text in row] == pytest.approx(expected, abs=0.1001)
        scores = shown.main_curve("joint", averaging).scores
        assert rows[2] == [percent_value(float(getattr(scores, score)[6])) for score in FLOORS]
        assert len({tuple(row) for row in rows}) == 3


def test_unknown_price(tmp_path: Path) -> None:
    """Votes that do not say what the classifier returns without noise show the rest, and say so."""
    run = make_run(tmp_path, bare=False)
    write_page(Study(run), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert 'data-clean="smoothed"' in text
    assert 'data-clean="bare"' not in text
    assert "These votes do not say what the base classifier returns without noise" in text


def test_closing_sentence(shown: Study, path: Path, opened) -> None:
    """The page ends in counts, which follow radius and method and are never rounded."""
    page, proved = opened(path).page, shown.main.certificates
    page.locator("#method").select_option("paper")
    total = sum(map(len, proved.labels))
    for index in (0, 5, 12):
        slide_to(page, index)
        radius = float(shown.grid[index])
        stay = sum(int(certified_size(radii, radius)) for radii in proved.radii["paper"])
        words = (
            f"At R = {page.locator('#radius-shown').inner_text()} (l2-norm) at least {stay} of the {total} true labels"
        )
        assert page.locator(".closing").inner_text().startswith(words)
    assert closing_sentence(shown.main).endswith("true labels of 9 images provably stay.")


def test_strips(shown: Study, path: Path, opened) -> None:
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
    proved, end = shown.main.certificates, float(shown.grid[-1])
    assert len(strips) == len(shown.main.labels)
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


def test_looks(shown: Study, path: Path, opened) -> None:
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


def test_address(shown: Study, path: Path, opened) -> None:
    """What is chosen is in the address, and a page opened with that address shows it."""
    visited = opened(path)
    page, label = visited.page, shown.main.certificates.labels[1][0]
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
