"""Using a page as a reader does, and what every page must keep to."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
COLUMNS = ("recall", "precision", "f1")


@dataclass
class Opened:
    """An open page, with all that it asked for and all that it complained of."""

    page: object
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def slide_to(page, index: int) -> None:
    """Move the slider as a pointer does: set, then tell."""
    page.locator("#radius").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', { bubbles: true })); }",
        index,
    )
    settle(page)


def settle(page) -> None:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def table(page, section: str) -> dict[str, list[str]]:
    rows = page.locator(f"#{section} .values tbody tr").all()
    return {row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in rows}


def headline(page, columns=COLUMNS) -> dict[str, str]:
    return {score: page.locator(f".headline [data-score={score}]").first.inner_text() for score in columns}


def shown_ids(page) -> list[str]:
    return page.locator(".card").evaluate_all("cards => cards.map((card) => card.dataset.id)")


def assert_quiet(visited: Opened, path: Path) -> None:
    """Whatever is done on the page, nothing is fetched and nothing complains."""
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
    assert visited.complaints == []


def assert_all_fits(page, width: int) -> None:
    """Nothing reaches beyond the right edge, so that a phone never scrolls sideways."""
    page.locator("#images").scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = page.evaluate(
        """() => [...document.querySelectorAll('body *:not(.unseen):not(.skip):not(svg *)')]
            .filter((each) => each.getBoundingClientRect().right > innerWidth + 0.5 && each.getClientRects().length)
            .map((each) => each.className || each.tagName)"""
    )
    assert beyond == []
