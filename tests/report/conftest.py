"""One full study for all tests of the room, and one whose every name is hostile."""

import pytest
from tests.report.studies import HOSTILE_IDS, HOSTILE_LABELS, full_study, make_run

from multiguard.report import Study


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return full_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def hostile_study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("hostile")
    names = {
        "label_names": HOSTILE_LABELS,
        "image_ids": (*HOSTILE_IDS, *(f"picture {i}" for i in range(len(HOSTILE_IDS), 40))),
        "dataset": "<script>alert(5)</script>",
        "model": '"><svg onload=alert(6)>',
    }
    main = make_run(folder / "main", images=40, methods=("joint", "paper"), swept=True, **names)
    beside = {"<img src=x onerror=alert(7)>": make_run(folder / "low", images=40, sigma=0.25, **names)}
    beside |= {"<b>again</b>": make_run(folder / "again", images=40, sigma=0.25, **names)}
    return Study(main, beside, "</title><script>alert(8)</script>", ["multiguard run '<script>alert(9)</script>'"])
