"""What is written for people from certificates: CSV files, the page and its tables, made again and compared."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from multiguard.errors import InvalidInputError
from multiguard.evaluate import Results
from multiguard.evaluate.calibration import Calibration
from multiguard.evaluate.results import CURVES_NAME, curves_text
from multiguard.io.files import read_regular
from multiguard.report import Study, report_files, write_tables
from multiguard.report.page import page_again
from multiguard.verify.config import Check
from multiguard.version import __version__


def csv_files(folder: Path, certified: Results) -> Check:
    """Compare the CSV file, which nothing reads back, with the certificates."""
    path = folder / CURVES_NAME
    if not path.is_file():
        return Check(True, f"there is no {CURVES_NAME} to compare")
    if read_regular(path) != curves_text(certified.curves).encode():
        return Check(False, f"{path} is not what the certificates say")
    return Check(True, f"{CURVES_NAME}: equal to the certificates")


def page_files(
    page: Path, main: Results, others: Mapping[str, Results], calibration: Calibration | None
) -> Iterator[Check]:
    """Make the page and its tables again from the certificates, and compare every byte; nothing without a page."""
    if not page.is_file():
        return
    page, figures, tables = report_files(page)
    yield _page(page, main, others, calibration)
    yield Check(None, f"{page.name}: its title, its commands and its thumbnails")
    if tables.is_dir():
        yield from _tables(tables, Study(main, others))
    if figures.is_dir():
        yield Check(None, f"{figures.name}: `multiguard report` draws them again")


def _page(page: Path, main: Results, others: Mapping[str, Results], calibration: Calibration | None) -> Check:
    try:
        text = read_regular(page).decode()
        same = text == page_again(text, main, others, calibration)
    except (OSError, ValueError, InvalidInputError) as error:
        return Check(False, f"{page}: {error}")
    if not same:
        made_by = f"or it was made by another version than {__version__}, or by another version of plotly"
        return Check(False, f"{page} is not the page of these certificates, {made_by}; `multiguard report` makes it")
    return Check(True, f"{page}: every number and sentence is made from the certificates")


def _tables(folder: Path, study: Study) -> Iterator[Check]:
    with TemporaryDirectory() as scratch:
        made = {path.name: path.read_bytes() for path in write_tables(study, Path(scratch))}
    there = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    wrong = [name for name in there if name in made and read_regular(folder / name) != made[name]]
    if wrong:
        yield Check(False, f"{folder}: not what the certificates say: {', '.join(wrong)}")
    else:
        yield Check(True, f"{folder}: {len(made.keys() & {*there})} tables, made again: equal")
    if others := [name for name in there if name not in made]:
        yield Check(None, f"{folder}: {', '.join(others)}")
