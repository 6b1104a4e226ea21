"""Using a page as a reader does, and what holds for every page."""

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from multiguard.io.rounding import radius_text

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
COLUMNS = ("recall", "precision", "f1")


def launched(*arguments: str) -> Iterator:
    """A browser, for as long as the tests of a module run: its event loop would be in the way of others."""
    if BROWSER is None:
        pytest.skip("no chromium, chromium-browser or google-chrome is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser test")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", *arguments])
        yield found
        found.close()


@dataclass
class Opened:
    """An open page, with all of its requests and all of its errors."""

    page: object
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def open_page(context, path: Path, hash_: str = "") -> Opened:
    visited = Opened(context.new_page())
    visited.page.on("request", lambda request: visited.requests.append(request.url))
    visited.page.on("console", lambda message: visited.errors.append(message.text))
    visited.page.on("pageerror", lambda error: visited.errors.append(str(error)))
    visited.page.on("dialog", lambda dialog: visited.errors.append(f"dialog {dialog.message}"))
    visited.page.goto(path.as_uri() + hash_)
    return visited


def reset(page) -> None:
    """Every control as it was when the page was opened."""
    page.evaluate(
        """() => {
            const kinds = ["input", "change"].map((kind) => new Event(kind, { bubbles: true }));
            const tell = (each) => kinds.forEach((event) => each.dispatchEvent(event));
            for (const each of document.querySelectorAll("input")) {
                if (each.type === "radio") each.checked = each.defaultChecked;
                else each.value = each.defaultValue;
                if (each.type !== "radio" || each.checked) tell(each);
            }
            for (const each of document.querySelectorAll("select")) {
                each.selectedIndex = Math.max(0, [...each.options].findIndex((option) => option.defaultSelected));
                tell(each);
            }
            document.querySelectorAll("[role=tab]:first-child").forEach((tab) => tab.click());
            document.activeElement?.blur();
            scrollTo(0, 0);
        }"""
    )
    settle(page)


def radius_value(radius: float) -> str:
    """A radius as the page writes it."""
    words = {math.inf: "cannot fail", -math.inf: "not certified"}
    return words.get(radius) or radius_text(radius)


def slide_to(page, index: int) -> None:
    """Move the slider as a pointer does: set the value, then dispatch the event."""
    page.locator("#radius").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', { bubbles: true })); }",
        index,
    )
    settle(page)


def settle(page) -> None:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def table(page, section: str) -> dict[str, list[str]]:
    """The cells of each row by its name."""
    rows = page.locator(f"#{section} .values tbody tr").evaluate_all(
        """rows => rows.map((row) => [row.querySelector("th").innerText,
            [...row.querySelectorAll("td")].map((cell) => cell.innerText)])"""
    )
    return dict(rows)


def drawn_lines(page, section: str) -> list[dict]:
    """Of each chart its score, and of each line in it the name and points along what is drawn, in units of the axes.

    `pixel` is the size of one in the same units.
    """
    page.locator(f"#{section} .plot .js-line").first.wait_for(state="attached")
    return page.locator(f"#{section} .chart").evaluate_all(
        """charts => charts.map((chart) => {
            const plot = chart.querySelector(".plot"), { xaxis, yaxis } = plot._fullLayout;
            const lines = [...plot.querySelectorAll(".scatterlayer .trace")].map((trace, index) => {
                const path = trace.querySelector(".js-line"), points = [];
                for (let at = 0; at < path.getTotalLength(); at += 0.5) {
                    const { x, y } = path.getPointAtLength(at);
                    points.push([xaxis.p2d(x), yaxis.p2d(y)]);
                }
                return { name: plot._fullData[index].name, points };
            });
            const pixel = [xaxis.p2d(1) - xaxis.p2d(0), yaxis.p2d(0) - yaxis.p2d(1)];
            return { score: chart.dataset.chart, lines, pixel };
        })"""
    )


def cards(page, **selectors: str) -> list[dict]:
    """The id of each card, and the texts of all that each selector finds in it."""
    return page.locator(".card").evaluate_all(
        """(cards, selectors) => cards.map((card) => ({ id: card.dataset.id, ...Object.fromEntries(
            Object.entries(selectors).map(([name, selector]) =>
                [name, [...card.querySelectorAll(selector)].map((each) => each.textContent)])) }))""",
        selectors,
    )


def headline(page, columns=COLUMNS) -> dict[str, str]:
    return {score: page.locator(f".headline [data-score={score}]").first.inner_text() for score in columns}


def shown_ids(page) -> list[str]:
    return page.locator(".card").evaluate_all("cards => cards.map((card) => card.dataset.id)")


def assert_quiet(visited: Opened, path: Path) -> None:
    """Whatever is done on the page, nothing is fetched and nothing fails."""
    page = visited.page
    for section in page.locator("main > section").all():
        section.scroll_into_view_if_needed()
        settle(page)
    for tab in page.locator("[role=tab]").all():
        tab.click()
    page.locator("#methods .plot").first.hover()
    page.locator("[name=averaging][value=pooled]").check()
    slide_to(page, 5)
    assert [url for url in visited.requests if url != path.as_uri() and not url.startswith("data:")] == []
    assert visited.errors == []


def assert_all_fits(page, width: int) -> None:
    """Nothing reaches beyond the right edge, so a phone never scrolls sideways."""
    page.locator("#images").scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = page.evaluate(
        """() => [...document.querySelectorAll('body *:not(.unseen):not(.skip):not(svg *)')]
            .filter((each) => each.getBoundingClientRect().right > innerWidth + 0.5 && each.getClientRects().length)
            .map((each) => each.className || each.tagName)"""
    )
    assert beyond == []
