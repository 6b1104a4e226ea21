"""Studies of every kind for all tests of the room, one whose every name is hostile, and a browser to open pages in."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.report.browsing import BROWSER, Opened
from tests.report.studies import (
    HOSTILE_IDS,
    HOSTILE_LABELS,
    full_study,
    make_run,
    threshold_study,
    unlabelled_study,
)

from multiguard.report import Study

HOSTILE_NAMES = {
    "label_names": HOSTILE_LABELS,
    "image_ids": (*HOSTILE_IDS, *(f"image {i}" for i in range(len(HOSTILE_IDS), 40))),
    "dataset": "<script>alert(5)</script>",
    "model": '"><svg onload=alert(6)>',
}


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return full_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def hostile_study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("hostile")
    names = HOSTILE_NAMES
    main = make_run(folder / "main", images=40, methods=("joint", "paper"), swept=True, **names)
    beside = {"<img src=x onerror=alert(7)>": make_run(folder / "low", images=40, sigma=0.25, **names)}
    beside |= {"<b>again</b>": make_run(folder / "again", images=40, sigma=0.25, **names)}
    return Study(main, beside, "</title><script>alert(8)</script>", ["multiguard run '<script>alert(9)</script>'"])


@pytest.fixture(scope="session")
def of_threshold(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return threshold_study(tmp_path_factory.mktemp("threshold"))


@pytest.fixture(scope="session")
def unlabelled(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return unlabelled_study(tmp_path_factory.mktemp("unlabelled"))


@pytest.fixture(scope="session")
def hostile_unlabelled(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return unlabelled_study(tmp_path_factory.mktemp("hostile-unlabelled"), images=40, **HOSTILE_NAMES)


@pytest.fixture(scope="module")
def browser() -> Iterator:
    if BROWSER is None:
        pytest.skip("no chromium, chromium-browser or google-chrome is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser test")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser) -> Iterator:
    contexts = []

    def visit(path: Path, *, width: int = 1440, scheme: str = "light") -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        visited = Opened(context.new_page())
        visited.page.on("request", lambda request: visited.requests.append(request.url))
        visited.page.on("console", lambda message: visited.complaints.append(message.text))
        visited.page.on("pageerror", lambda error: visited.complaints.append(str(error)))
        visited.page.on("dialog", lambda dialog: visited.complaints.append(f"dialog {dialog.message}"))
        visited.page.goto(path.as_uri())
        return visited

    yield visit
    for context in contexts:
        context.close()
