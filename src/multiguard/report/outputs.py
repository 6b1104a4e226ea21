"""One report: the page of a run with its figures and tables, or the page and the table of a comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from multiguard.data import DataConfig, IndexedDataset
from multiguard.data.sample import Progress
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import Results
from multiguard.evaluate.calibration import Calibration
from multiguard.io.config import from_tree, to_tree
from multiguard.io.files import check_inside
from multiguard.io.writer import staged
from multiguard.report.compare import Leaderboard, compare_runs, write_comparison
from multiguard.report.config import ReportConfig
from multiguard.report.figures import draw_figures
from multiguard.report.page import write_page
from multiguard.report.study import Study
from multiguard.report.tables import write_tables
from multiguard.report.words import commands_of, failure_words, run_title
from multiguard.version import __version__

PAGE, COMPARISON = "report.html", "comparison.html"
Runs = Mapping[str, Results]


def report(
    config: ReportConfig,
    runs: Runs,
    *,
    beside: Runs | None = None,
    calibration: Calibration | None = None,
    out: Path | None = None,
    root: Path | None = None,
    commands: Sequence[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Study | Leaderboard:
    """Report on one run, or compare several; no number is shown above what was proved.

    The page of one run comes with figures and tables, a comparison with its table as CSV. All files are replaced
    together, once nothing can be wrong. Another report is replaced only with `force`; the same one again finds its work
    done, or completes it. Images that cannot be opened are left out of the page, and `notes` says so.

    Args:
        config: What the page shows; with `methods`, the methods of one run are compared too.
        runs: The runs by name; of several, each is compared with the baseline on the images that all have.
        beside: With one run, those of its recipe at other noise or with other training, for further figures.
        calibration: With one run, one of its classifier and noise: what can be promised.
        out: The page, if the name ends in .html, or the folder for it; nothing is written without.
        root: Where the images are, if not where they were voted on.
        commands: The commands that the page of a run shows; by default those that its certificates name.
        force: Whether to replace another report that is there.
        progress: Called with the number of images done and of all images.

    Example:
        >>> runs = {"mine": read_certificates(certificates)}  # a folder written by `multiguard certify`
        >>> study = report(ReportConfig(title="Mine", images=False), runs, out=out)
        >>> study.title, sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
        ('Mine', ['figures', 'report.html', 'tables'])
        >>> report(ReportConfig(), {**runs, "again": runs["mine"]}).baseline.name
        'mine'
    """
    if not runs:
        raise InvalidInputError("runs is empty; a report needs at least one")
    if len(runs) > 1 or config.methods:
        return _compare(config, runs, out, force)
    if config.baseline is not None or config.radii:
        name = "baseline" if config.baseline is not None else "radii"
        raise InvalidInputError(f"{name} is about a comparison: name another run, or several methods")
    (main,), others = runs.values(), beside or {}
    shown = commands_of([main, *others.values()]) if commands is None else commands
    study = Study(main, others, config.title or run_title(main), shown, calibration)
    images, missing = _images(main, root) if config.images else (None, None)
    study.notes.extend([f"the page shows no images: {missing}"] if missing else [])
    if out is not None:
        _write(study, config, report_files(out), images, force, progress)
    if failed := failure_words(main):
        study.notes.append(failed.removesuffix("."))
    return study


def report_files(out: Path) -> tuple[Path, Path, Path]:
    """The page of one run, and the folders of its figures and tables: two pages in a folder do not share them.

    >>> [path.as_posix() for path in report_files(Path("runs/mine.html"))]
    ['runs/mine.html', 'runs/mine-figures', 'runs/mine-tables']
    """
    page = out if out.suffix == ".html" else out / PAGE
    prefix = "" if page.name == PAGE else f"{page.stem}-"
    return page, page.with_name(f"{prefix}figures"), page.with_name(f"{prefix}tables")


def _write(
    study: Study,
    config: ReportConfig,
    files: tuple[Path, Path, Path],
    images: IndexedDataset | None,
    force: bool,
    progress: Progress | None,
) -> None:
    page, *folders = files
    check_inside(page.parent, *folders)
    names = [folder.name for folder in folders]
    request = {
        "title": study.title,
        "report": to_tree(config),
        "certificates": _hashes({"": study.main, **study.beside}),
        "calibration": study.calibration and to_tree(study.calibration),
        "images": study.notes if images is None else [*images.origins],
        "folders": names,
        "multiguard": __version__,
    }
    with staged(page, request, kind="a report", folders=names, force=force) as stage:
        if stage is None:
            return
        for name, make in zip(names, (draw_figures, write_tables), strict=True):
            make(study, stage / name)
        replaced = write_page(study, stage / page.name, images=images, gallery=config.gallery, progress=progress)
    if replaced:
        words = "image is not shown: it is not the one" if replaced == 1 else "images are not shown: they are not those"
        study.notes.append(f"{replaced} {words} voted on")


def _compare(config: ReportConfig, runs: Runs, out: Path | None, force: bool) -> Leaderboard:
    board = compare_runs(config, runs)
    if out is not None:
        page = out if out.suffix == ".html" else out / COMPARISON
        request = {"report": to_tree(config), "certificates": _hashes(runs), "multiguard": __version__}
        with staged(page, request, kind="a comparison", names=[page.with_suffix(".csv").name], force=force) as stage:
            if stage is not None:
                write_comparison(board, stage / page.name)
    return board


def _hashes(runs: Runs) -> dict[str, str]:
    return {name: run.certificates_hash for name, run in runs.items()}


def _images(run: Results, root: Path | None) -> tuple[IndexedDataset | None, str | None]:
    """The images that were voted on, or why they cannot be shown."""
    if "data" not in run.source:
        return None, "the votes do not name their images"
    try:
        data = from_tree(DataConfig, run.source["data"], "data")
        data = data if root is None else data.replace(root=root)
        return data.open(label_names=run.certificates.label_names), None
    except (DataError, InvalidInputError) as error:
        return None, str(error)
