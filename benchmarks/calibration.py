"""Recall promised under attack, on votes of MS-COCO, and the calibrations that come with a built-in classifier.

python -m benchmarks.calibration ship VOTES --out FOLDER
    writes recall-80-radius-0.5.json and its like: calibrations of 120 fresh draws from votes of labelled images.
python -m benchmarks.calibration table VOTES TEST [--page docs/calibration.md]
    prints what is promised and what the test images show, and fills the page, with a figure.

VOTES and TEST are votes folders of different labelled images, ranked, with one noise and a fixed number of draws. A run
of VOTES need not be finished: the images that are there calibrate.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.results import blocks
from benchmarks.results.drawing import svg_figure
from benchmarks.results.markdown_tables import csv_link, markdown
from multiguard.certify.arguments import Bools, Ints
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CalibrateConfig, Calibration, calibrate
from multiguard.evaluate.calibration import Part
from multiguard.evaluate.risk import Risk
from multiguard.io.rounding import percent_value, plain, plain_percent, round_up
from multiguard.report import figures
from multiguard.votes import Votes, read_votes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DOCS, FIGURE = Path("docs"), "images"
RECALLS, RADII = (0.7, 0.8, 0.9), (0.0, 0.25, 0.5, 1.0)
SHOWN_RECALL = 0.8  # of the rows on the page; the others are in the file
FEW_DRAWS, CONFIDENCE = 120, 0.95
_HEIGHT = 3.0
_BATCH = 32  # images attacked or scored at once


@dataclass(frozen=True, eq=False)
class Shown:
    """The test images: what a calibration returns of them.

    Attributes:
        votes: Their votes.
        true: (images, c) their labels.
    """

    votes: Votes
    true: Bools

    def part(self, made: Calibration, noise: Any) -> Part:
        """The test images as a part of the calibration."""
        hits, first = (self.hits(made.k_prime, draws) for draws in (None, made.draws))
        risk = Risk(self.votes.provenance.draws, made.draws, noise, made.config.radius)
        return Part(hits, first, self.true, made.k_prime, risk)

    @cache  # noqa: B019 - there is one in a run
    def hits(self, k_prime: int | None, draws: int | None) -> Ints:
        """(images, c) the hits of each label in the first draws, None for all."""
        c = self.true.shape[1]
        return np.stack([np.bincount(row.ranked[:draws, :k_prime].ravel(), minlength=c) for row in self.votes])


def main() -> None:
    """Reads the arguments and does what they name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    parts = {name: commands.add_parser(name) for name in ("ship", "table")}
    for name, part in parts.items():
        part.add_argument("votes", type=Path)
        if name != "ship":
            part.add_argument("test", type=Path)
    parts["ship"].add_argument("--out", type=Path, required=True)
    parts["table"].add_argument("--page", type=Path)
    options = parser.parse_args()
    if options.command == "ship":
        ship(options.votes, options.out)
    else:
        table(options.votes, options.test, options.page)


def ship(votes: Path, out: Path) -> list[Path]:
    """Write a calibration for each recall and radius; print the promises, and what cannot be promised."""
    opened, written = read_votes(votes, partial=True), []
    out.mkdir(parents=True, exist_ok=True)
    for recall, radius in product(RECALLS, RADII):
        path = out / f"recall-{100 * recall:g}-radius-{plain(radius)}.json"
        path.unlink(missing_ok=True)
        with TemporaryDirectory() as scratch:
            made = calibrate_or_say(opened, CalibrateConfig(recall=recall, radius=radius), Path(scratch) / path.name)
            if made is not None:
                copyfile(Path(scratch) / path.name, path)
                written.append(path)
                print(f"{path.name}: {made.sentence} {made.expected}")
    return written


def calibrate_or_say(votes: Votes, config: CalibrateConfig, out: Path | None = None) -> Calibration | None:
    """The calibration; None where nothing can be promised, after it has been said."""
    try:
        return calibrate(config, [votes], out=out)
    except InvalidInputError as error:
        print(f"recall {config.recall:g}, R = {plain(config.radius)}, m = {config.draws}: {str(error).split(';')[0]}")
        return None


def table(votes: Path, test: Path, page: Path | None) -> None:
    """Print what is promised and what the test images show; fill the page and draw its figure, if it is named."""
    opened, shown = read_votes(votes, partial=True), _shown(read_votes(test))
    if (most := shown.votes.provenance.draws) < FEW_DRAWS:
        raise InvalidInputError(f"the test images have {most} draws, fewer than {FEW_DRAWS}; vote on them again")
    overlap = {*opened.image_hashes} & {*shown.votes.image_hashes} - {None}
    if overlap or {*opened.ids} & {*shown.votes.ids}:
        raise InvalidInputError("the test images are among those that calibrate; name votes of others")
    print(f"{len(opened)} images calibrate, {len(shown.votes)} others are shown\n")
    made = {key: one for key in _settings() if (one := _made(opened, *key)) is not None}
    rows = [_row(*key, one, shown) for key, one in made.items()]
    heads = ["draws m", "promised", "R", "k′", "h", "labels returned", "wrong, at most", "recall found, %"]
    short = [row for key, row in zip(made, rows, strict=True) if key[2] == SHOWN_RECALL]
    link = csv_link(DOCS if page is None else page.parent, "promises", heads, rows)
    filled = {"promises": f"{markdown(heads, short, words=2)}\n\nEvery recall promised: {link}."}
    for each in filled.values():
        print(f"{each}\n")
    if page is not None:
        path = svg_figure(lambda: _figure(made, shown), page.parent / FIGURE, "calibration")
        filled["figure"] = f"![Labels returned against the recall promised]({FIGURE}/{path.name})"
        page.write_text(blocks.filled(page.read_text(encoding="utf-8"), filled), encoding="utf-8")


def _settings() -> Iterator[tuple[int, float | None, float, float]]:
    """The draws, the confidence, the recall and the radius of each row."""
    yield from product((FEW_DRAWS,), (None, CONFIDENCE), RECALLS, RADII)


def _made(votes: Votes, draws: int, confidence: float | None, recall: float, radius: float) -> Calibration | None:
    return calibrate_or_say(votes, CalibrateConfig(recall, radius, confidence=confidence, draws=draws))


def _promise(recall: float, confidence: float | None) -> str:
    return f"{plain_percent(recall)} %, {'on average' if confidence is None else f'{100 * confidence:g} % confidence'}"


def _row(
    draws: int, confidence: float | None, recall: float, radius: float, made: Calibration, shown: Shown
) -> list[str]:
    part = shown.part(made, shown.votes.provenance.noise)
    returned, found = part.returned(made.least_hits), part.recall(made.least_hits)
    wrong = part.wrong(made.least_hits, CONFIDENCE)
    words = [str(draws), _promise(recall, confidence), plain(radius), str(made.k_prime), str(made.least_hits)]
    return [*words, round_up(returned, 2), round_up(wrong, 2), "" if found is None else percent_value(found)]


def _shown(votes: Votes) -> Shown:
    c = len(votes.provenance.label_names)
    return Shown(votes, np.array([[label in row.labels for label in range(c)] for row in votes]))


def _figure(made: dict[tuple[int, float | None, float, float], Calibration], shown: Shown) -> "Figure":
    """Labels returned, and wrong ones at most, against R: a line per recall."""
    title = f"Labels returned for a promised recall, {len(shown.votes)} test images of MS-COCO"
    how = f"On average, m = {FEW_DRAWS} fresh draws, {shown.votes.provenance.noise.words}."
    subtitle = f"{how} A missing point: nothing can be promised."
    figure, axes = figures.new_figure(title, subtitle, height=_HEIGHT, legend_rows=1, widths=[1, 1])
    panels = (("(a)  Labels returned without attack", 5), ("(b)  Wrong labels at most under attack", 6))
    for each, (name, column) in zip(axes, panels, strict=True):
        for recall, stroke in zip(RECALLS, figures.distinct_strokes(len(RECALLS)), strict=True):
            few = [(key[3], _row(*key, one, shown)) for key, one in made.items()
                   if key[:3] == (FEW_DRAWS, None, recall)]  # fmt: skip
            x, y = [radius for radius, _ in few], [float(row[column]) for _, row in few]
            figures.draw_line(each, x, y, stroke, f"{plain_percent(recall)} % recall", markevery=1)
        figures.style_axes(each, name, x="R (ℓ₂-norm of the perturbation)", y="labels")
    figures.add_legend(figure, axes[0], height=_HEIGHT, ncols=len(RECALLS))
    return figure


if __name__ == "__main__":
    main()
