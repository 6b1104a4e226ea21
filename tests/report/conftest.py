"""Studies of every kind for all tests of the room, one with hostile names throughout, and a browser."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.report.browsing import Opened, launched, open_page, reset
from tests.report.studies import (
    HOSTILE_IDS,
    HOSTILE_LABELS,
    NoiseImages,
    full_study,
    make_run,
    threshold_study,
    unlabelled_study,
)

from multiguard.report import Study, write_page

HOSTILE_NAMES = {
    "images": 26,  # more than a page shows at first
    "label_names": HOSTILE_LABELS,
    "image_ids": (*HOSTILE_IDS, *(f"image {i}" for i in range(len(HOSTILE_IDS), 26))),
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
    main = make_run(folder / "main", methods=("joint", "paper"), swept=True, **names)
    others = {"<img src=x onerror=alert(7)>": make_run(folder / "low", sigma=0.25, **names)}
    others |= {"<b>again</b>": make_run(folder / "again", sigma=0.25, **names)}
    return Study(main, others, "</title><script>alert(8)</script>", ["multiguard run '<script>alert(9)</script>'"])


@pytest.fixture(scope="session")
def threshold(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return threshold_study(tmp_path_factory.mktemp("threshold"))


@pytest.fixture(scope="session")
def unlabelled(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return unlabelled_study(tmp_path_factory.mktemp("unlabelled"))


@pytest.fixture(scope="session")
def pages(study, hostile_study, threshold, unlabelled, tmp_path_factory) -> dict[str, Path]:
    """The page of every kind of study, two of them with images, by its name."""
    folder = tmp_path_factory.mktemp("pages")
    studies = {"labelled": study, "hostile": hostile_study, "threshold": threshold, "unlabelled": unlabelled}
    for name, each in studies.items():
        images = NoiseImages(each.main.certificates.ids, side=40) if name in ("labelled", "threshold") else None
        write_page(each, folder / f"{name}.html", images=images)
    return {name: folder / f"{name}.html" for name in studies}


@pytest.fixture(scope="module")
def browser() -> Iterator:
    yield from launched()


@pytest.fixture(scope="module")
def contexts() -> dict[Path, Opened]:
    """The open pages by path."""
    return {}


@pytest.fixture
def opened(browser, contexts) -> Callable[..., Opened]:
    """A page as if it had just been opened; it is loaded once."""

    def visit(path: Path, *, width: int = 1440, scheme: str = "light") -> Opened:
        size = {"width": width, "height": 900}
        if path not in contexts:
            contexts[path] = open_page(browser.new_context(viewport=size, color_scheme=scheme), path)
        else:
            contexts[path].page.set_viewport_size(size)
            contexts[path].page.emulate_media(color_scheme=scheme)
            reset(contexts[path].page)
        return contexts[path]

    return visit
