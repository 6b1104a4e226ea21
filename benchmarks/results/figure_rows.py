"""The rows of the paper's figures on our votes: a figure, a table and a verdict each."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.results.drawing import IMAGES, Panel, curves_figure
from benchmarks.results.markdown_tables import RADII, RADIUS_HEADS, WORDS, cells, csv_link, radius_index
from benchmarks.results.sources import ALPHA, GRID, MAIN, Source
from multiguard.certify import Method, TopK
from multiguard.certify.arguments import Floats
from multiguard.evaluate import Scores
from multiguard.io.rounding import plain

METHOD = "joint"
Lines = Sequence[tuple[str, Scores]]
_LEAST = 5e-4  # differences below this are ties: half a tenth of a point
_MATTERS = 1.0  # points of recall at R = 0.5 below which a method is not called better
_FEW = len(GRID) // 20  # at so many radii a finding may fail and still hold


def k_prime_row(source: Source, docs: Path) -> dict[str, str]:
    """The paper: a larger k' certifies more at R = 0, and falls faster as R grows."""
    values = [k_prime for k_prime in (1, 2, 3, 5, 7, 10) if k_prime <= source.ranks]
    lines = [(str(value), source.scores(TopK(MAIN.k, value), METHOD)) for value in values]
    table = np.array([scores.recall for _, scores in lines])
    rises = _rises(table[:, 0])
    best = [values[int(table[:, radius_index(GRID, radius)].argmax())] for radius in RADII]
    ends = [_end(scores) for _, scores in lines]
    falls = ends[-1] < ends[0]
    words = (
        f"{_verdict(rises, falls)} Recall at R = 0 {'rises' if rises else 'does not always rise'} with k'. The curves "
        f"reach R = {plain(ends[0])} for k' = 1 and R = {plain(ends[-1])} for k' = {values[-1]}, on a grid up to "
        f"{plain(float(GRID[-1]))}. The best k' at "
        f"R = {', '.join(map(plain, RADII))} is {', '.join(map(str, best))}."
    )
    return _row("k_prime", "k'", lines, words, "Impact of k'", source, docs)


def k_row(source: Source, docs: Path) -> dict[str, str]:
    """The paper: a larger k lowers precision (and F1) at R = 0 and lets them fall more slowly; recall grows with k."""
    values = (1, 3, 5, 8, 10, 20)
    lines = [(str(value), source.scores(TopK(value, MAIN.k_prime), METHOD)) for value in values]
    precision, recall = (np.array([getattr(scores, name) for _, scores in lines]) for name in ("precision", "recall"))
    f1 = np.array([scores.f1[0] for _, scores in lines])
    kept = precision[:, radius_index(GRID, 0.5)] / np.maximum(precision[:, 0], 1e-9)
    falls, slower, fell = _rises(-precision[:, 0]), _rises(kept), _rises(-f1)
    less = int(np.sum(np.any(np.diff(recall, axis=0) < -_LEAST, axis=0)))
    words = (
        f"{_verdict(falls, slower, fell, less <= _FEW)} Precision at R = 0 "
        f"{'falls' if falls else 'does not always fall'} with k, and the part of it that is left at R = 0.5 "
        f"{'rises' if slower else 'does not always rise'}. F1 at R = 0 "
        f"{'falls with k' if fell else f'is best at k = {values[int(f1.argmax())]}'}. Recall grows with k at "
        f"{'all' if less == 0 else f'{len(GRID) - less} of'} {len(GRID)} radii."
    )
    return _row("k", "k", lines, words, "Impact of k", source, docs)


def sigma_row(sources: Sequence[Source], docs: Path) -> dict[str, str]:
    """The paper: a larger sigma certifies less at R = 0 and more at large R."""
    lines = [(plain(one.sigma), one.scores(MAIN, METHOD)) for one in sources]
    table = np.array([scores.recall for _, scores in lines])
    less, reach = _rises(-table[:, 0]), _rises(table[:, -1])
    best = [lines[int(table[:, radius_index(GRID, radius)].argmax())][0] for radius in RADII]
    words = (
        f"{_verdict(less, reach)} At R = 0 the recall is "
        f"{', '.join(cells(scores, 'recall')[0] for _, scores in lines)} % for sigma "
        f"{', '.join(name for name, _ in lines)}. The best sigma at R = {', '.join(map(plain, RADII))} is "
        f"{', '.join(best)}."
    )
    return _row("sigma", "sigma", lines, words, "Impact of sigma", sources[0], docs)


def n_row(source: Source, docs: Path) -> dict[str, str]:
    """The paper: more draws certify more, and beyond some n hardly any more."""
    values = [*(n for n in (100, 250, 500, 1000, 2000, 5000) if n < source.draws), source.draws]
    lines = [(f"{n:,}", source.scores(MAIN, METHOD, n)) for n in values]
    gains = 100 * np.diff([scores.recall for _, scores in lines], axis=0)
    more = bool(np.all(gains > -0.5))
    last = gains[-1, [radius_index(GRID, radius) for radius in RADII]]
    words = (
        f"{_verdict(more, bool(last.max() < 0.5))} More draws certify more{'' if more else ', but not at every R'}. "
        f"The last step adds {', '.join(f'{gain:.1f}' for gain in last)} points at R = {', '.join(map(plain, RADII))}."
    )
    return _row("n", "n", lines, words, "Impact of n", source, docs)


def alpha_row(source: Source, docs: Path) -> dict[str, str]:
    """The paper: a larger alpha certifies more, and below some alpha it hardly matters."""
    values = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    lines = [(plain(alpha), source.scores(MAIN, METHOD, alpha=alpha)) for alpha in values]
    table = np.array([scores.recall for _, scores in lines])
    more = bool(np.all(np.diff(table, axis=0) > -_LEAST))
    within = [radius_index(GRID, radius) for radius in RADII if radius <= 1]
    cost = 100 * (table[-1, within] - table[0, within])
    words = (
        f"{_verdict(more, bool(cost.max() < 1))} A larger alpha certifies more{'' if more else ', but not at every R'}."
        f" Five powers of ten cost {cost.min():.1f} to {cost.max():.1f} points up to R = 1."
    )
    return _row("alpha", "alpha", lines, words, "Impact of alpha", source, docs)


def training_row(source: Source, clean: Source, docs: Path) -> dict[str, str]:
    """The paper: noise in training raises what is certified substantially."""
    assert clean.run is not None
    same = source.subset(source.positions(clean.run.ids))
    lines = [("with noise", same.scores(MAIN, METHOD)), ("without noise", clean.scores(MAIN, METHOD))]
    at = radius_index(GRID, 0.5)
    gain = 100 * (lines[0][1].recall[at] - lines[1][1].recall[at])
    words = f"{_verdict(bool(gain > 5))} Noise in training is worth {gain:.1f} points of recall at R = 0.5."
    return _row("training", "training", lines, words, "Training with and without noise", clean, docs)


def second_terms_row(source: Source, docs: Path) -> dict[str, str]:
    """The paper: certified recall with the second terms of Theorem 1 is far larger than without them."""
    lines = [("with", source.scores(MAIN, "paper")), ("without", source.scores(MAIN, "independent"))]
    gain = 100 * (lines[0][1].recall - lines[1][1].recall)
    most = int(gain.argmax())
    words = (
        f"{_verdict(bool(gain[radius_index(GRID, 0.5)] > _MATTERS))} They add "
        f"{gain[radius_index(GRID, 0.5)]:.1f} points at R = 0.5 and {gain[radius_index(GRID, 1.0)]:.1f} at R = 1; "
        f"the most is {gain[most]:.1f} at R = {plain(GRID[most])}."
    )
    return {"row-second-terms": f"{words} {_table(docs, 'second-terms', 'second terms', lines)}"}


def jia_row(source: Source, rules: Sequence[TopK], methods: Sequence[Method], docs: Path) -> dict[str, str]:
    """The paper: certifying the labels of an image together beats certifying each alone, in all three scores."""
    rows, said, larger = [], [], []
    for rule in rules:
        jia = source.scores(rule, "jia")
        for method in methods:
            gain = 100 * (source.scores(rule, method).recall - jia.recall)
            ahead, behind = int(np.sum(gain > 100 * _LEAST / 10)), int(np.sum(gain < -100 * _LEAST / 10))
            rows.append([f"{rule.k_prime}, {rule.k}", method, *_gain(gain), str(ahead), str(behind)])
            if method == "paper":
                larger.append(bool(gain[radius_index(GRID, 0.5)] > _MATTERS))
                here = f"{gain[radius_index(GRID, 0.5)]:+.2f} at k', k = {rows[-1][0]}"
                said.append(f"{here} (ahead at {ahead} and behind at {behind} of {len(GRID)} radii)")
    gains = "Points of certified recall of `paper` over Jia et al. at R = 0.5"
    words = f"{_verdict(*larger)} {gains}: {', '.join(said)}."
    heads = ["k', k", "method", *RADIUS_HEADS, "least", "most", "ahead", "behind"]
    return {"row-jia": f"{words} Every method and radius: {csv_link(docs, 'row-jia', heads, rows)}."}


def _gain(gain: Floats) -> list[str]:
    """In points, to two decimals: a difference of certified numbers, itself not certified."""
    at = [f"{gain[radius_index(GRID, one)]:+.2f}" for one in RADII]
    return [*at, f"{gain.min():+.2f}", f"{gain.max():+.2f}"]


def _row(
    name: str,
    what: str,
    lines: Lines,
    words: str,
    title: str,
    source: Source,
    docs: Path,
) -> dict[str, str]:
    panels = [
        Panel(
            WORDS[measure],
            f"certified {WORDS[measure]}, %",
            GRID,
            [(f"{what} = {n}" if what != "training" else n, 100 * getattr(s, measure)) for n, s in lines],
        )
        for measure in WORDS
    ]
    given = f"k′ = {MAIN.k_prime}, k = {MAIN.k}, σ = {plain(source.sigma)}, n = {source.draws:,}, α = {plain(ALPHA)}"
    subtitle = f"Votes {source.name}: {len(source)} images, method {METHOD}; where they are not varied: {given}."
    path = curves_figure(docs / IMAGES, name, title, subtitle, panels)
    image = f"![{title}: certified precision, recall and F1 against the radius]({IMAGES}/{path.name})"
    return {f"row-{name}": f"{image}\n\n{words} {_table(docs, name, what, lines)}"}


def _table(docs: Path, name: str, what: str, lines: Lines) -> str:
    rows = [[line, WORDS[measure], *cells(scores, measure)] for line, scores in lines for measure in WORDS]
    return f"All scores: {csv_link(docs, f'row-{name}', [what, 'score', *RADIUS_HEADS], rows)}."


def _verdict(*parts: bool) -> str:
    """Whether a finding holds, from its parts."""
    return "**Holds.**" if all(parts) else "**Holds in part.**" if any(parts) else "**Does not hold here.**"


def _rises(values: Floats) -> bool:
    return bool(np.all(np.diff(values) > 0))


def _end(scores: Scores) -> float:
    """The largest radius of the grid at which anything is certified."""
    return float(GRID[np.flatnonzero(scores.recall > 0)[-1]])
