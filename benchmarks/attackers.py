"""Fills the generated tables of docs/attackers.md: what is certified against patches, pixels and l1-norms.

python -m benchmarks.attackers EVIDENCE --digits RUNS

EVIDENCE is a folder of votes folders on MS-COCO, as `multiguard vote` writes them:
  coco-patch/votes             ranked votes of bands
  coco-patch/votes-threshold*  sets of bands, a folder for each score threshold
  coco-l1/votes                ranked votes under uniform noise
RUNS holds the run folders of the recipes digits-l1, digits-pixels and digits-patch, each after `multiguard attack`.
What is missing is left as it is on the page.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.results import blocks
from benchmarks.results.drawing import svg_figure
from benchmarks.results.markdown_tables import csv_link, markdown
from multiguard.certify import (
    BandAblation,
    Method,
    Noise,
    PixelAblation,
    Rule,
    Threshold,
    TopK,
    Uniform,
    certified_radii_batch,
    hits_from_ranked,
)
from multiguard.evaluate import (
    Attacks,
    Scores,
    attack_curves,
    method_curve,
    read_attacks,
    read_certificates,
    set_scores,
)
from multiguard.evaluate.scores import Averaging
from multiguard.io.rounding import down_to_digits, percent_value, plain
from multiguard.report import figures
from multiguard.report.words import verdict
from multiguard.votes import Votes, read_votes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = Path("docs/attackers.md")
RECIPES = ("digits-patch", "digits-pixels", "digits-l1")
SIDES = (0, 16, 32, 48)  # of patches on MS-COCO; 32 x 32 is 2 % of the image
SIDE = 32
_WHITE = 3  # the l1-norm of a pixel of three channels from black to white
_HEIGHT = 3.2  # of the figure, in inches
TOP_K = ((1, 3), (3, 3), (3, 5), (5, 5), (3, 10), (5, 10), (8, 10))  # k', k
SHARES = (0.33, 0.36, 0.4, 0.45, 0.5, 0.6)  # t; the patch owns 0.317 of the bands
RANKS = (1, 3, 5, 8, 10)  # k' of the sets that ranked votes give
SHOWN = (0.4, 0.5)  # the t in the table of rules
DIGITS_SHOWN = 2  # radii of each attacker on the page
_NONE_BROKEN = "No certificate was broken"  # the beginning of such a verdict
# Certified precision at certified recall, both over all labels, for a patch of 2 % of an MS-COCO image: Jacob, Xiang
# and Mittal, PatchDEMUX, CVPR 2025.
PATCHDEMUX = {0.5: 0.50, 0.75: 0.22}
NORMS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
NORMS_SHOWN = (0.0, 0.5, 1.0)
L1_RULE, L1_METHODS = TopK(k=10, k_prime=3), ("joint", "coupled", "paper", "independent", "jia")


def main() -> None:
    """Reads the arguments, makes the blocks that the folders allow and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evidence", type=Path, nargs="?", help="the folder of votes folders")
    parser.add_argument("--digits", type=Path, metavar="RUNS", help="the folder of the run folders on digits")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    made: dict[str, str] = {}
    if options.evidence is not None:
        made |= coco_blocks(options.evidence, options.page.parent)
    if options.digits is not None:
        made["digits"] = digits_block([options.digits / name for name in RECIPES], options.page.parent)
    options.page.write_text(blocks.filled(options.page.read_text(encoding="utf-8"), made), encoding="utf-8")
    print(f"{options.page}: {', '.join(made) or 'nothing'}")


@dataclass(frozen=True, eq=False)
class Candidate:
    """A smoothed classifier and what is certified of it against patches of each side of `SIDES`."""

    name: str
    scores: dict[Averaging, Scores]

    def cells(self, averaging: Averaging, side: int) -> list[str]:
        """Certified recall and precision in percent, rounded down."""
        scores, at = self.scores[averaging], SIDES.index(side)
        return [percent_value(float(values[at])) for values in (scores.recall, scores.precision)]


def coco_blocks(evidence: Path, docs: Path) -> dict[str, str]:
    """The tables of MS-COCO whose votes are there, and the figure."""
    made: dict[str, str] = {}
    patch = evidence / "coco-patch"
    if (patch / "votes").is_dir():
        run = read_votes(patch / "votes")
        sets = [read_votes(folder) for folder in sorted(patch.glob("votes-threshold*"))]
        every = [*top_k_candidates(run), *set_candidates(run, sets)]
        made["patch-votes"] = votes_words(run)
        made["patch-rules"] = f"Every rule: {csv_link(docs, 'patch-rules', *rules_table(every))}."
        made["patch-pairs"] = pairs_table(every)
        svg_figure(lambda: pairs_figure(every), docs / "images", "patch-pairs")
    if (evidence / "coco-l1" / "votes").is_dir():
        run = read_votes(evidence / "coco-l1" / "votes")
        made |= {"l1-votes": votes_words(run), "l1-methods": l1_table(run, docs)}
    return made


def top_k_candidates(run: Votes) -> Iterator[Candidate]:
    """The k labels that most bands return."""
    for k_prime, k in TOP_K:
        yield candidate(f"k' = {k_prime}, k = {k}", run, [row.ranked for row in run], TopK(k, k_prime))


def set_candidates(ranked: Votes, sets: Sequence[Votes]) -> Iterator[Candidate]:
    """Every label that a fraction t of the bands return: their k' best labels, or those above a score."""
    for k_prime in RANKS:
        votes = [_hits(row.ranked, k_prime, ranked) for row in ranked]
        for t in SHARES:
            yield candidate(f"k' = {k_prime}, t = {t}", ranked, votes, Threshold(t))
    for run in sets:
        votes = [row.hits for row in run]
        for t in SHARES:
            yield candidate(f"score {plain(_score(run))}, t = {t}", run, votes, Threshold(t))


def candidate(name: str, run: Votes, votes: Sequence[NDArray[Any]], rule: Rule) -> Candidate:
    """The certified scores of a rule on these votes."""
    return Candidate(name, certified_scores(run, votes, rule, None, SIDES))


def certified_scores(
    run: Votes, votes: Sequence[NDArray[Any]], rule: Rule, method: Method | None, radius: Sequence[float]
) -> dict[Averaging, Scores]:
    """What is certified at each radius, as means over images and over all labels."""
    noise, labels = run.provenance.noise, run.labels
    options: dict[str, Any] = {"num_labels": len(run.provenance.label_names), "noise": noise, "method": method}
    radii = certified_radii_batch(votes, labels, rule, **options)
    counts = [len(own) for own in labels]
    both: tuple[Averaging, ...] = ("mean", "pooled")
    return {each: set_scores(radii, rule, num_true=counts, radius=radius, averaging=each) for each in both}


def _hits(ranked: NDArray[Any], k_prime: int, run: Votes) -> NDArray[np.bool_]:
    return hits_from_ranked(ranked, k_prime=k_prime, num_labels=len(run.provenance.label_names))


def _score(run: Votes) -> float:
    score = run.provenance.score_threshold
    assert score is not None
    return score


def rules_table(every: Sequence[Candidate]) -> tuple[list[str], list[list[str]]]:
    """Certified recall and precision of some rules, without a patch and with one: heads and rows."""
    shown = [each for each in every if "k = " in each.name or each.name.endswith(tuple(f"t = {t}" for t in SHOWN))]
    heads = ["rule", "recall", "precision", *(f"recall, {side} px" for side in SIDES[1:]), f"precision, {SIDE} px"]
    heads += [f"all labels: recall, {SIDE} px", "precision"]
    rows = []
    for each in shown:
        clean, sides = each.cells("mean", 0), [each.cells("mean", side)[0] for side in SIDES[1:]]
        rows.append([each.name, *clean, *sides, each.cells("mean", SIDE)[1], *each.cells("pooled", SIDE)])
    return heads, rows


def pairs_table(every: Sequence[Candidate]) -> str:
    """The best certified precision at a certified recall, beside that of PatchDEMUX."""
    rows, at = [], SIDES.index(SIDE)
    for wanted, theirs in PATCHDEMUX.items():
        enough = [each for each in every if each.scores["pooled"].recall[at] >= wanted]
        best = max(enough, key=lambda each: float(each.scores["pooled"].precision[at]), default=None)
        ours = ["none", "", ""] if best is None else [best.name, *best.cells("pooled", SIDE)]
        rows.append([f"{wanted:.0%}", *ours, f"about {theirs:.0%}"])
    heads = ["certified recall, at least", "rule", "recall", "precision", "PatchDEMUX's precision"]
    return markdown(heads, rows, words=2)


def frontier(every: Sequence[Candidate], side: int) -> list[tuple[float, float]]:
    """The certified (recall, precision) in percent of the rules that no other beats in both, by rising recall."""
    at = SIDES.index(side)
    pairs = [(float(each.scores["pooled"].recall[at]), float(each.scores["pooled"].precision[at])) for each in every]
    best, kept = 0.0, []
    for recall, precision in sorted(pairs, reverse=True):
        if precision > best:
            best = precision
            kept.append((100 * recall, 100 * precision))
    return kept[::-1]


def pairs_figure(every: Sequence[Candidate]) -> "Figure":
    """The frontier of each side, and the points of PatchDEMUX."""
    title, subtitle = "Certified precision and recall against a patch", "Over all labels; the best of all rules tried."
    figure, (axes,) = figures.new_figure(title, subtitle, height=_HEIGHT, legend_rows=1)
    for side, stroke in zip(SIDES, figures.distinct_strokes(len(SIDES)), strict=True):
        recall, precision = zip(*frontier(every, side), strict=True)
        name = f"any {side} x {side} patch" if side else "no patch"
        figures.draw_line(axes, recall, precision, stroke, name, markevery=1, **figures.PROVED)
    recalls, precisions = ([100 * each for each in half] for half in (PATCHDEMUX, PATCHDEMUX.values()))
    axes.scatter(recalls, precisions, marker="*", s=70, color=figures.INK, label="PatchDEMUX, about 2 %")
    figures.style_axes(axes, "", x="certified recall, %", y="certified precision, %")
    axes.set_xlim(0, 100)
    figures.add_legend(figure, axes, height=_HEIGHT, ncols=len(SIDES) + 1)
    return figure


def l1_table(run: Votes, docs: Path) -> str:
    """Certified recall of every method against l1-norms: a few here, all in a file, and there what the norms are."""
    noise = run.provenance.noise
    assert isinstance(noise, Uniform)
    votes = [row.ranked for row in run]
    rows = [["that is", *(share_words(noise, radius) for radius in NORMS)]]
    for method in L1_METHODS:
        scores = certified_scores(run, votes, L1_RULE, method, NORMS)["mean"]
        rows.append([method, *(percent_value(float(value)) for value in scores.recall)])
    heads = ["method", *(f"l1-norm {plain(radius)}" for radius in NORMS)]
    shown = [0, *(1 + NORMS.index(radius) for radius in NORMS_SHOWN)]
    few = [[line[column] for column in shown] for line in [heads, *rows[1:]]]
    return f"{markdown(few[0], few[1:])}\n\nEvery norm: {csv_link(docs, 'attackers-l1', heads, rows)}."


def votes_words(run: Votes) -> str:
    """Which votes these are."""
    known = run.provenance
    each = "bands" if isinstance(known.noise, BandAblation) else "draws"
    labels = sum(map(len, run.labels)) / len(run)
    return (
        f"{len(run)} images of {known.dataset}, {labels:.1f} labels on average; {known.model}, `{known.noise}`, "
        f"{known.draws:,} {each} per image."
    )


def digits_block(folders: Sequence[Path], docs: Path) -> str:
    """Certified and attacked recall of runs on digits: the smallest radii of each here, all in a file."""
    shown: list[list[str]] = []
    every: list[list[str]] = []
    broken = []
    for folder in folders:
        attacks = read_attacks(folder / "attack")
        rows, words = digits_rows(attacks, folder), verdict(attacks)
        run = f"{attacks.noise}, {rule_words(attacks.config.rule)}, {attacks.methods[0]}"
        shown += [[row[0], *row[3:]] for row in rows[1 : 1 + DIGITS_SHOWN]]
        every += [[run, *row, words] for row in rows]
        broken += [] if words.startswith(_NONE_BROKEN.lower()) else [words]
    what, left = "the attacker may change", "after the attack"
    heads = ["run", what, "that is", "certified recall", "certified recall, attacked images", left, "verdict"]
    link = csv_link(docs, "attackers-digits", heads, every)
    table = markdown([what, "certified recall", left], shown)
    return f"{table}\n\n{'; '.join(broken) or _NONE_BROKEN}. Every radius: {link}."


def digits_rows(attacks: Attacks, folder: Path) -> list[list[str]]:
    """A row for each radius that was attacked: of all images, and of those that were attacked."""
    certificates = read_certificates(folder / "certificates").certificates
    curve, noise, method = attack_curves(attacks)[0], attacks.noise, attacks.methods[0]
    every = method_curve(certificates, method, curve.radius).scores
    columns = (every.recall, curve.certified[method], list(curve.reached.values())[-1])
    rows = []
    for radius, proved, same, left in zip(curve.radius, *columns, strict=True):
        size = [noise.describe(radius), share_words(noise, radius)] if radius else ["nothing", ""]
        rows.append([*size, percent_value(proved), percent_value(same), percent_value(left, ROUND_CEILING)])
    return rows


def rule_words(rule: Rule) -> str:
    """The rule in a few letters."""
    return f"k' = {rule.k_prime}, k = {rule.k}" if isinstance(rule, TopK) else f"t = {plain(rule.t)}"


def share_words(noise: Noise, radius: float) -> str:
    """How large a radius is, in a few words."""
    if not radius:
        return ""
    match noise:
        case PixelAblation():
            return f"{_two_digits(100 * radius / noise.pixels)} % of the pixels"
        case BandAblation():  # of square images
            return f"{_two_digits(100 * radius**2 / noise.columns**2)} % of the image"
        case Uniform() if radius < _WHITE:
            return f"one pixel by {_two_digits(100 * radius / _WHITE)} % of its range"
        case Uniform():
            return f"{_two_digits(radius / _WHITE)} pixels from black to white"
    raise ValueError(f"{noise} has no table")


def _two_digits(value: float) -> str:
    return down_to_digits(value, 2)


if __name__ == "__main__":
    main()
