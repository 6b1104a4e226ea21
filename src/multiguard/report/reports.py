"""Reports: the page of a run with its figures and tables, or runs and methods compared on the same images."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import numpy as np

from multiguard.certify import Method
from multiguard.certify.arguments import Floats
from multiguard.data import DataConfig, IndexedDataset
from multiguard.data.sample import Progress
from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import Averaging, Curve, Results, curves, paired_differences, radius_grid
from multiguard.evaluate.calibration import Calibration
from multiguard.evaluate.curves import AVERAGINGS
from multiguard.evaluate.scores import check_radius
from multiguard.io.config import from_tree, to_tree
from multiguard.io.files import check_inside
from multiguard.io.names import as_cell, short_repr, unknown_name
from multiguard.io.rounding import plain
from multiguard.io.writer import staged
from multiguard.report.config import ReportConfig
from multiguard.report.figures import draw_figures
from multiguard.report.page import family_data, render_page, write_page, write_text
from multiguard.report.study import (
    Family,
    Line,
    Measure,
    Runs,
    Study,
    check_alike,
    half_radii,
    rule_measures,
    true_labels,
)
from multiguard.report.tables import write_tables
from multiguard.report.words import (
    METHOD_NAMES,
    commands_of,
    config_words,
    dataset_title,
    failure_words,
    model_name,
    promises,
    run_title,
)
from multiguard.version import __version__

PAGE, COMPARISON = "report.html", "comparison.html"
_SCRIPTS = ("elements.js", "charts.js", "families.js", "address.js", "comparison.js")
_BEST = "The best of several runs, picked after looking, is not covered by the probability 1 − α of a certificate."
_OTHER_PIXELS = "The runs saw the images at other sizes or with other pixels, so the same R is not the same attack."
_PAIRED = "Intervals are about mean differences on images like these, of which these are a random sample."
_NOT_DRAWS = "They do not reflect the noise draws."
Interval = tuple[Floats, Floats, Floats]  # values and their low and high ends


def report(
    config: ReportConfig,
    runs: Runs,
    *,
    others: Runs | None = None,
    calibration: Calibration | None = None,
    out: Path | None = None,
    root: Path | None = None,
    commands: Sequence[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> "Study | Leaderboard":
    """Report on one run, or compare several; no number is shown above what was proved.

    The page of one run comes with figures and tables, a comparison with its table as CSV. All files are replaced
    together, once nothing can be wrong. Another report is replaced only with `force`; the same one again finds its work
    done, or completes it. Images that cannot be opened are left out of the page, and `notes` says so.

    Args:
        config: What the page shows; with `methods`, the methods of one run are compared too.
        runs: The runs by name; of several, each is compared with the baseline on the images that all have.
        others: With one run, the runs of its recipe at other noise or with other training, for further figures.
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
    if len(runs) != 1 or config.methods:
        board = compare_runs(config, runs)
        if out is not None:
            page = out if out.suffix == ".html" else out / COMPARISON
            hashes = {name: run.certificates_hash for name, run in runs.items()}
            made = {"report": to_tree(config), "certificates": hashes, "multiguard": __version__}
            with staged(page, made, kind="a comparison", names=[page.with_suffix(".csv").name], force=force) as stage:
                if stage is not None:
                    write_comparison(board, stage / page.name)
        return board
    if config.baseline is not None or config.radii:
        name = "baseline" if config.baseline is not None else "radii"
        raise InvalidInputError(f"{name} is about a comparison: name another run, or several methods")
    (main,), others = runs.values(), others or {}
    shown = commands_of([main, *others.values()]) if commands is None else commands
    study, images = Study(main, others, config.title or run_title(main), shown, calibration), None
    if config.images:
        try:
            images = _images(main, root)
        except (DataError, InvalidInputError) as error:
            study.notes.append(f"the page shows no images: {error}")
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
        "certificates": {name: run.certificates_hash for name, run in {"": study.main, **study.others}.items()},
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
        words = "image is not shown: its" if replaced == 1 else "images are not shown: their"
        study.notes.append(f"{replaced} {words} pixels have changed since the votes")


def _images(run: Results, root: Path | None) -> IndexedDataset:
    """The images that were voted on."""
    if "data" not in run.source:
        raise DataError("the votes do not name their images")
    data = from_tree(DataConfig, run.source["data"], "data")
    data = data if root is None else data.replace(root=root)
    return data.open(label_names=run.certificates.label_names)


@dataclass(frozen=True, eq=False)
class Contender:
    """One run with one method, on the images that all runs have."""

    name: str
    run: Results  # with the certificates of the common images
    method: Method
    curves: Mapping[Averaging, Curve]  # with bands
    differences: Mapping[str, Interval] | None  # of the means to the baseline; None for the baseline itself

    __repr__ = short_repr

    @property
    def words(self) -> dict[str, str]:
        """What it is, for the columns of a table."""
        words, config, noise = config_words(self.run), self.run.certificates.config, self.run.certificates.noise
        return {
            "run": self.name,
            "model": model_name(self.run),
            "noise": noise.words,
            "rule": ", ".join(words[name] for name in config.rule.options),
            "method": METHOD_NAMES.get(self.method, self.method),
            "draws": plain(round(self.curves["mean"].mean_draws, 1)),
            "alpha": "none" if noise.enumerated else plain(config.alpha),
        }

    def difference(self, measure: Measure, index: int) -> tuple[float, float, float] | None:
        """The mean difference to the baseline at a radius of the curves, with its low and high end; None for itself."""
        if self.differences is None:
            return None
        value, low, high = self.differences[measure.key]
        return float(value[index]), float(low[index]), float(high[index])


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """Runs on the same images, the baseline among them; made by `compare_runs`.

    Example:
        >>> run = read_certificates(certificates)  # a folder written by `multiguard certify`
        >>> board = compare_runs(ReportConfig(radii=(0.0, 0.5)), {"before": run, "after": run})
        >>> board.baseline.name, len(board.images)
        ('before', 4)
        >>> board.contenders[1].difference(board.measures[0], 0)[0]  # the interval follows
        0.0
    """

    title: str
    level: float  # of the intervals
    radius: tuple[float, ...]  # the radii of the table
    images: tuple[str, ...]  # the ids of the images that all runs have
    contenders: tuple[Contender, ...]
    notes: tuple[str, ...]  # what a reader must know

    __repr__ = short_repr

    @property
    def baseline(self) -> Contender:
        """The run that the others are compared with."""
        return next(each for each in self.contenders if each.differences is None)

    @property
    def measures(self) -> list[Measure]:
        """The scores that every rule has, recall first; without true labels, how many predicted labels stay."""
        return self.family.recall_first

    @property
    def family(self) -> Family:
        """The curves of all contenders."""
        lines = [Line(each.name, each.name, each.curves, each is self.baseline) for each in self.contenders]
        measures = rule_measures("top-k", labelled=self.baseline.run.certificates.labelled)
        return Family("runs", "run", "", "\n".join(self.notes), measures, tuple(lines))

    def rows(self) -> Iterator[tuple[str, Measure, list[tuple[str, tuple[str, str, str] | None]]]]:
        """For each contender and score its name, the score, and at each radius the value and the difference."""
        positions = np.searchsorted(self.family.radius, self.radius).tolist()
        for each in self.contenders:
            for measure in self.measures:
                values = measure.values(each.curves["mean"])
                found = [each.difference(measure, i) for i in positions]
                texts = [measure.text(float(values[i])) for i in positions]
                words = [difference and difference_words(*difference) for difference in found]
                yield each.name, measure, list(zip(texts, words, strict=True))

    def records(self) -> Iterator[dict[str, Any]]:
        """One record per contender, averaging, score and radius of the table, every number without loss."""
        positions = np.searchsorted(self.family.radius, self.radius).tolist()
        for each in self.contenders:
            noise = each.run.certificates.noise
            names = {"noise": str(noise), "attacker": noise.attacker, "alpha": each.run.certificates.config.alpha}
            for averaging, curve in each.curves.items():
                known = {**each.words, **names, "draws": curve.mean_draws, "averaging": averaging}
                for measure in self.measures:
                    known |= {"score": measure.word, "images": curve.scores.images}
                    for radius, index in zip(self.radius, positions, strict=True):
                        found = each.difference(measure, index) if averaging == "mean" else None
                        difference = zip(("difference", "low", "high"), found or (None, None, None), strict=True)
                        value = float(measure.values(curve)[index])
                        yield {**known, "R": radius, "certified": value, **dict(difference)}


def compare_runs(config: ReportConfig, runs: Runs) -> Leaderboard:
    """Certified scores of several runs on the images that all have, and paired differences to one of them.

    Each certificate keeps its own promise. Runs may differ in model, noise, rule, method, draws and alpha: all are
    named. Runs of different attackers raise an error, as do runs that disagree on the true labels of an image, and runs
    without a common image.

    Args:
        config: The methods, the baseline (a run, or a run with its method), the radii of the table, the level of the
            intervals and the title.
        runs: The runs by name.

    Example:
        >>> run = read_certificates(certificates)  # a folder written by `multiguard certify`
        >>> board = compare_runs(ReportConfig(baseline="after", radii=(0.25,)), {"before": run, "after": run})
        >>> [each.name for each in board.contenders], board.baseline.name
        (['before', 'after'], 'after')
    """
    chosen = _chosen(runs, config.methods)
    wanted = config.baseline
    first = next((name for name in chosen if wanted is None or name == wanted or name.startswith(f"{wanted}, ")), None)
    if first is None:
        raise InvalidInputError(unknown_name("baseline", str(wanted), chosen))
    check_alike(runs)
    images = _common_images(runs)
    noise = chosen[first][0].certificates.noise
    table = check_radius(config.radii or np.unique(half_radii(noise, range(3))), noise)
    grids = [radius_grid(run.certificates.noise) for run, _ in chosen.values()]
    grid, level = np.unique([*max(grids, key=lambda each: float(each[-1])), *table]), config.level
    proved = {name: run.certificates.only(images) for name, (run, _) in chosen.items()}
    contenders = []
    for name, (run, method) in chosen.items():
        made = {one.averaging: one for one in curves(proved[name], grid, bands=level) if one.method == method}
        own, both, found = {averaging: made[averaging] for averaging in AVERAGINGS}, (method, chosen[first][1]), None
        if name != first:
            found = paired_differences(proved[name], proved[first], grid, methods=both, level=level)
        contenders.append(Contender(name, replace(run, certificates=proved[name]), method, own, found))
    title = f"{len(contenders)} certificates on {dataset_title(next(iter(runs.values())).provenance)}"
    kept = (f"{each.name}: {promises(each.run, each.method)}" for each in contenders)
    notes = (*_notes(runs, images), *kept)
    return Leaderboard(config.title or title, level, tuple(table.tolist()), images, tuple(contenders), notes)


def write_comparison(board: Leaderboard, page: Path) -> list[Path]:
    """Write a page that opens offline and shows no score above what was proved, and its records as CSV.

    Example:
        >>> run = read_certificates(certificates)  # a folder written by `multiguard certify`
        >>> board = compare_runs(ReportConfig(), {"one": run, "other": run})
        >>> [path.name for path in write_comparison(board, out / "comparison.html")]
        ['comparison.html', 'comparison.csv']
    """
    records, text = list(board.records()), io.StringIO(newline="")
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: as_cell(v) if isinstance(v, str) else v for key, v in each.items()} for each in records)
    write_text(page, _render(board))
    write_text(page.with_suffix(".csv"), text.getvalue())
    return [page, page.with_suffix(".csv")]


def _render(board: Leaderboard) -> str:
    family, noise = board.family, board.baseline.run.certificates.noise
    middle = board.radius[len(board.radius) // 2]
    middle = noise.typical_radius if noise.typical_radius in board.radius else middle
    start = int(np.argmin(np.abs(family.radius - middle)))
    words = [each.words for each in board.contenders]
    data, keys = family_data(family), [measure.key for measure in board.measures]
    for line, each in zip(data["lines"], board.contenders, strict=True):
        own = each.differences
        paired = None if own is None else {"mean": {key: [ends.tolist() for ends in own[key]] for key in keys}}
        line["differences"] = paired
    return render_page(
        "comparison.html",
        _SCRIPTS,
        {"grid": data["grid"], "start": start, "methods": [], "axis": noise.axis_label, "families": [data]},
        board=board,
        title=board.title,
        measures=board.measures,
        noise=noise,
        grid=family.radius,
        start=start,
        last=len(family.radius) - 1,
        radius=repr(float(family.radius[start])).removesuffix(".0"),
        ticks=[(int(np.searchsorted(family.radius, radius)), 2 * n) for n, radius in enumerate(board.radius)],
        columns=list(words[0]),
        rows=[list(each.values()) for each in words],
        table=[(name, measure.word, cells) for name, measure, cells in board.rows()],
    )


def difference_words(value: float, low: float, high: float) -> tuple[str, str, str]:
    """A difference in points, and its interval, whose ends are rounded outwards."""
    return _points(value, ROUND_HALF_EVEN), _points(low, ROUND_FLOOR), _points(high, ROUND_CEILING)


def _points(number: float, rounding: str) -> str:
    text = str((100 * Decimal(repr(number + 0.0))).quantize(Decimal("0.1"), rounding))
    return text if text.startswith("-") else f"+{text}"


def _chosen(runs: Runs, methods: Sequence[Method]) -> dict[str, tuple[Results, Method]]:
    """The runs with their methods by name; the name has the method where a run has several."""
    chosen: dict[str, tuple[Results, Method]] = {}
    for name, run in runs.items():
        known = run.certificates.methods
        own = known if "all" in methods else [method for method in dict.fromkeys(methods) if method in known]
        own = own if methods else known[:1]
        if not own:
            raise InvalidInputError(
                f"{name} has no certificates by {', '.join(methods)}; it was certified with {', '.join(known)}"
            )
        chosen |= {f"{name}, {method}" if len(own) > 1 else name: (run, method) for method in own}
    if len(chosen) < 2:
        raise InvalidInputError("one certificate cannot be compared: name another run, or several methods")
    return chosen


def _common_images(runs: Runs) -> tuple[str, ...]:
    """The images that all runs have votes of; without ground truth, those for which each predicts a label."""
    first, *_ = runs
    truths = {name: {i: own for i, own in true_labels(run).items() if own is not None} for name, run in runs.items()}
    common = [i for i in runs[first].certificates.ids if all(i in own for own in truths.values())]
    if not runs[first].certificates.labelled:
        every = [(run.certificates.ids, run.certificates.labels) for run in runs.values()]
        empty = {image_id for ids, labels in every for image_id, own in zip(ids, labels, strict=True) if not own}
        common = [image_id for image_id in common if image_id not in empty]
    if not common:
        raise InvalidInputError(f"no image is in all of {', '.join(runs)}; compare runs on the same images")
    for name, truth in truths.items():
        if (other := next((i for i in common if truth[i] != truths[first][i]), None)) is not None:
            raise InvalidInputError(f"{name} and {first} disagree on the true labels of {other}; use the same labels")
    return tuple(common)


def _notes(runs: Runs, images: Sequence[str]) -> Iterator[str]:
    certificates = {name: run.certificates for name, run in runs.items()}
    left = {name: len(own.ids) + len(own.failures) - len(images) for name, own in certificates.items()}
    words = ", ".join(f"{count} of {name}" for name, count in left.items() if count)
    yield f"Compared on the {len(images)} images that all runs have votes of{f'; left out: {words}' if words else ''}."
    if not next(iter(certificates.values())).labelled:
        yield "Each run certifies the labels that it predicts itself; whether they are right is unknown."
    exact = all(own.noise.enumerated for own in certificates.values())
    if len({own.config.alpha for own in certificates.values()}) > 1 and not exact:
        yield "The runs differ in α: a larger one proves more, and is wrong more often."
    known = [dict(zip(own.ids, own.image_hashes, strict=True)) for own in certificates.values()]
    if len({tuple(map(hashes.get, images)) for hashes in known}) > 1:
        yield _OTHER_PIXELS
    yield _PAIRED
    if not exact:
        yield f"{_NOT_DRAWS} {_BEST}"
