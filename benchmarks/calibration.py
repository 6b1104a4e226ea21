"""Recall promised under attack, on votes of MS-COCO, and the calibrations that come with a built-in classifier.

python -m benchmarks.calibration ship VOTES --out FOLDER
    writes recall-80-radius-0.5.json and its like: calibrations of 120 fresh draws from votes of labelled images.
python -m benchmarks.calibration attack VOTES TEST --model MODEL --calibration FILE --out attacked.npz
    attacks test images within the radius of the calibration: the calibrated classifier through its noise, with fresh
    draws that evaluate it, and the bare network. It also has the scores of the bare network without attack.
python -m benchmarks.calibration table VOTES TEST [--attacked attacked.npz] [--page docs/calibration.md]
    prints what is promised and what the test images show, and fills the page, with a figure.

VOTES and TEST are votes folders of different labelled images, ranked, with one noise and a fixed number of draws.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from benchmarks.results import blocks
from benchmarks.results.drawing import svg_figure
from benchmarks.results.markdown_tables import csv_link, markdown
from multiguard.certify import Threshold
from multiguard.certify.arguments import Bools, Floats, Ints
from multiguard.errors import InvalidInputError
from multiguard.evaluate import CalibrateConfig, Calibration, calibrate, read_calibration
from multiguard.evaluate.calibration import Part
from multiguard.evaluate.risk import Risk
from multiguard.io.rounding import percent_value, plain, plain_percent, round_up
from multiguard.report import figures
from multiguard.votes import Votes, read_votes
from multiguard.votes.folder import read_source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from multiguard.data import IndexedDataset

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


@dataclass(frozen=True, eq=False)
class Attacked:
    """What `attack` has found: scores of the bare network and hits of fresh draws, in the order of the ids.

    Attributes:
        radius: The largest perturbation.
        scores: By image id, (c,) the scores of the bare network without attack.
        bare: By image id of some test images, (c,) its scores under attack.
        hits: By image id of the same images, (c,) the hits of the calibrated classifier under attack.
        file: The calibration that was attacked.
    """

    radius: float
    scores: dict[str, Floats]
    bare: dict[str, Floats]
    hits: dict[str, Ints]
    file: Calibration


def main() -> None:
    """Reads the arguments and does what they name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    parts = {name: commands.add_parser(name) for name in ("ship", "attack", "table")}
    for name, part in parts.items():
        part.add_argument("votes", type=Path)
        if name != "ship":
            part.add_argument("test", type=Path)
    parts["ship"].add_argument("--out", type=Path, required=True)
    parts["attack"].add_argument("--model", required=True)
    parts["attack"].add_argument("--calibration", type=Path, required=True)
    parts["attack"].add_argument("--root", type=Path, help="where the images are, if not where they were voted on")
    parts["attack"].add_argument("--steps", type=int, default=20)
    parts["attack"].add_argument("--images", type=int, default=500, help="the first test images with labels")
    parts["attack"].add_argument("--device")
    parts["attack"].add_argument("--out", type=Path, required=True)
    parts["table"].add_argument("--attacked", type=Path)
    parts["table"].add_argument("--page", type=Path)
    options = parser.parse_args()
    if options.command == "ship":
        ship(options.votes, options.out)
    elif options.command == "attack":
        attack(options)
    else:
        table(options.votes, options.test, options.attacked, options.page)


def ship(votes: Path, out: Path) -> list[Path]:
    """Write a calibration for each recall and radius; print the promises, and what cannot be promised."""
    opened, written = read_votes(votes), []
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


def attack(options: argparse.Namespace) -> None:
    """Attack test images within the radius of a calibration, and write what `table` shows of it."""
    import torch

    from multiguard.attack import AttackConfig, Hide, pgd
    from multiguard.models import load
    from multiguard.smooth import Smoother

    made = read_calibration(options.calibration)
    votes, device = read_votes(options.test), options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    images: dict[str, Any] = {}
    clean: dict[str, Floats] = {}
    for folder in (options.votes, options.test):
        data = _open(folder, options.root)
        ids = set(read_votes(folder).ids)
        classifier = load(options.model)
        if classifier.label_names != made.label_names:
            raise InvalidInputError(f"{options.model} has other labels than the calibration")
        network = classifier.module().eval().to(device)
        kept = [index for index, name in enumerate(data.ids) if name in ids]
        for start in range(0, len(kept), _BATCH):
            samples = [data[index] for index in kept[start : start + _BATCH]]
            with torch.no_grad():
                found = network(torch.from_numpy(_pixels(samples)).to(device)).float().cpu().numpy()
            clean |= {sample.id: scores for sample, scores in zip(samples, found, strict=True)}
            if folder == options.test:
                images |= {sample.id: sample for sample in samples}
    chosen = [row.image_id for row in votes if row.labels][: options.images]
    config = AttackConfig(steps=options.steps, starts=1, draws=made.draws, seed=1)
    smoother = Smoother(options.model, noise=votes.provenance.noise, k_max=made.k_prime,
                        clamp=votes.provenance.clamp, device=device)  # fmt: skip
    limit = _plain_limit(clean, read_votes(options.votes), made)
    border = Threshold(float(np.clip(scipy.special.expit(limit) if network.output == "logits" else limit, 1e-6, 0.999)))
    bare, hits = [], []
    for start in range(0, len(chosen), _BATCH):
        samples = [images[name] for name in chosen[start : start + _BATCH]]
        labels = np.array([[label in each.labels for label in range(made.num_labels)] for each in samples])
        given = _pixels(samples)
        how: dict[str, Any] = {"radius": made.config.radius, "config": config}
        plain_attack = pgd(options.model, given, Hide(labels), border, device=device, **how)
        bare.append(plain_attack.scores_after)
        noisy = pgd(smoother, given, Hide(labels), made.rule, **how)
        hits.append(np.rint(noisy.scores_after * made.draws).astype(np.int64))
        print(f"{start + len(samples)} of {len(chosen)} images attacked", flush=True)
    np.savez_compressed(
        options.out,
        radius=made.config.radius,
        clean_ids=[*clean],
        clean=np.stack([*clean.values()]),
        ids=chosen,
        bare=np.concatenate(bare),
        hits=np.concatenate(hits),
        calibration=options.calibration.read_text(encoding="utf-8"),
    )


def _open(folder: Path, root: Path | None) -> "IndexedDataset":
    """The images that a votes folder names."""
    from multiguard.data import DataConfig
    from multiguard.io.config import from_tree

    data = from_tree(DataConfig, read_source(folder)["data"], "data")
    return (data if root is None else data.replace(root=root)).open(
        label_names=read_votes(folder).provenance.label_names
    )


def _pixels(samples: Sequence[Any]) -> Any:
    images = np.stack([each.image for each in samples])
    return images.astype(np.float32) / 255 if images.dtype == np.uint8 else images.astype(np.float32)


def table(votes: Path, test: Path, attacked: Path | None, page: Path | None) -> None:
    """Print what is promised and what the test images show; fill the page and draw its figure, if it is named."""
    opened, shown = read_votes(votes), _shown(read_votes(test))
    if (most := shown.votes.provenance.draws) < FEW_DRAWS:
        raise InvalidInputError(f"the test images have {most} draws, fewer than {FEW_DRAWS}; vote on them again")
    overlap = {*opened.image_hashes} & {*shown.votes.image_hashes} - {None}
    if overlap or {*opened.ids} & {*shown.votes.ids}:
        raise InvalidInputError("the test images are among those that calibrate; name votes of others")
    print(f"{len(opened)} images calibrate, {len(shown.votes)} others are shown\n")
    made = {key: one for key in _settings(opened, most) if (one := _made(opened, *key)) is not None}
    rows = [_row(*key, one, shown) for key, one in made.items()]
    heads = ["draws m", "promised", "R", "k′", "h", "labels returned", "wrong, at most", "recall found, %"]
    short = [row for key, row in zip(made, rows, strict=True) if key[2] == SHOWN_RECALL]
    link = csv_link(DOCS if page is None else page.parent, "promises", heads, rows)
    filled = {"promises": f"{markdown(heads, short, words=2)}\n\nEvery recall promised: {link}."}
    if attacked is not None:
        found = _attacked(attacked)
        filled["attacked"] = markdown(["classifier", "promise", "returned", "recall, %", "under attack, %"],
                                      _attacked_rows(found, opened, shown), words=2)  # fmt: skip
    for each in filled.values():
        print(f"{each}\n")
    if page is not None:
        path = svg_figure(lambda: _figure(made, shown), page.parent / FIGURE, "calibration")
        filled["figure"] = f"![Labels returned against the recall promised]({FIGURE}/{path.name})"
        page.write_text(blocks.filled(page.read_text(encoding="utf-8"), filled), encoding="utf-8")


def _settings(votes: Votes, most: int) -> Iterator[tuple[int, float | None, float, float]]:
    """The draws, at most so many, the confidence, the recall and the radius of each row."""
    each = dict.fromkeys((votes.provenance.draws, min(FEW_DRAWS, votes.provenance.draws)))
    yield from product((draws for draws in each if draws <= most), (None, CONFIDENCE), RECALLS, RADII)


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


def _attacked(path: Path) -> Attacked:
    with np.load(path) as stored:
        names = [str(each) for each in stored["ids"]]
        own = path.with_suffix(".json")
        own.write_text(str(stored["calibration"]), encoding="utf-8")
        return Attacked(
            float(stored["radius"]),
            dict(zip(map(str, stored["clean_ids"]), stored["clean"], strict=True)),
            dict(zip(names, stored["bare"], strict=True)),
            dict(zip(names, stored["hits"], strict=True)),
            read_calibration(own),
        )


def _attacked_rows(found: Attacked, opened: Votes, shown: Shown) -> Iterator[list[str]]:
    """The calibrated classifier, and plain conformal risk control of the scores of the bare network."""
    made, rows = found.file, {row.image_id: number for number, row in enumerate(shown.votes)}
    own = [rows[name] for name in found.hits]
    true, part = shown.true[own], shown.part(made, shown.votes.provenance.noise)
    limit = _plain_limit(found.scores, opened, made)
    clean = np.stack([found.scores[name] for name in found.bare]) >= limit
    pairs = {
        "calibrated, smoothed": (
            part.first[own] >= made.least_hits,
            np.stack([*found.hits.values()]) >= made.least_hits,
        ),
        "plain conformal, bare network": (clean, np.stack([*found.bare.values()]) >= limit),
    }
    for name, (before, after) in pairs.items():
        promise = f"{plain_percent(made.config.recall)} % at R = {plain(found.radius if 'smoothed' in name else 0.0)}"
        recalls = [percent_value(float(np.mean((sets & true).sum(1) / true.sum(1)))) for sets in (before, after)]
        yield [name, promise, round_up(float(before.sum(1).mean()), 2), *recalls]


def _plain_limit(scores: dict[str, Floats], votes: Votes, made: Calibration) -> float:
    """The score threshold of plain conformal risk control, from the images that calibrate."""
    rows = [row for row in votes if row.labels]
    true = np.array([[label in row.labels for label in range(made.num_labels)] for row in rows])
    return score_limit(np.stack([scores[row.image_id] for row in rows]), true, 1 - made.config.recall)


def score_limit(scores: Floats, true: Bools, loss: float) -> float:
    """The largest score threshold with (sum of the fractions missed + 1) / (N + 1) <= loss; -inf if there is none.

    >>> score_limit(np.array([[3.0, 1.0]] * 9), np.array([[True, False]] * 9), 0.1)
    3.0
    """
    low, limits = -1, np.unique(scores[true])
    high = len(limits)
    while high - low > 1:
        middle = (low + high) // 2
        missed = np.sum((scores < limits[middle]) & true, axis=1) / true.sum(axis=1)
        kept = (missed.sum() + 1) / (len(missed) + 1) <= loss
        low, high = (middle, high) if kept else (low, middle)
    return float(limits[low]) if low >= 0 else -np.inf


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
