"""The gains that decide on a default method: coupled over joint, and over paper with twice the draws."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.results.ceiling import claim_chance
from benchmarks.results.markdown_tables import csv_link
from benchmarks.results.sources import ALPHA, Source, hits_of, kept_rows
from multiguard.certify import Method, TopK
from multiguard.certify.arguments import Floats
from multiguard.io.rounding import plain

RATIOS = (0.5, 1.0, 1.5, 2.0, 2.5)  # R / sigma
CONFIGS = tuple(TopK(k, k_prime) for k_prime, k in ((3, 10), (1, 10), (1, 3), (3, 3), (5, 10), (5, 5)))
DRAWS = (500, 1000, 2000, 10_000)
_MISSED = 0.5  # points behind paper with twice the draws


@dataclass(frozen=True)
class Cell:
    """One config, network and number of draws: points of certified recall at each R / sigma."""

    rule: TopK
    name: str
    source: Source
    draws: int

    def recall(self, method: Method, factor: int = 1) -> Floats:
        """In percent, from `factor` times the draws."""
        radii = [ratio * self.source.sigma for ratio in RATIOS]
        return 100 * self.source.scores(self.rule, method, factor * self.draws, radius=radii).recall

    def behind(self) -> Floats:
        """Coupled less paper with twice the draws; NaN without so many."""
        if 2 * self.draws > self.source.draws:
            return np.full(len(RATIOS), np.nan)
        return self.recall("coupled") - self.recall("paper", 2)

    def ceiling(self, ratio: float) -> Floats:
        """The most that any certificate can expect on draws from the frequencies of all: with a coin, without one."""
        path = self.source.path("ceiling", repr(self.rule), str(self.draws), plain(ratio), "both")
        rows, _ = kept_rows(path, lambda: [self._ceiling(i, ratio) for i in range(len(self.source))])
        means: Floats = 100 * np.mean(rows, axis=0)
        return means

    def _ceiling(self, image: int, ratio: float) -> Floats:
        own, hits = self.source.labels[image], hits_of(self.source, image, self.rule.k_prime)
        sizes = range(1, min(len(own), self.rule.k) + 1)
        chances = [
            [claim_chance(hits, own, self.rule, size, ratio, self.draws, ALPHA, coin=coin) for size in sizes]
            for coin in (True, False)
        ]
        return np.array(chances).sum(axis=1) / len(own)


def comparison_block(networks: Mapping[str, Source], docs: Path) -> dict[str, str]:
    """Files of every config, network and number of draws, and of what is missed; how many are of each kind."""
    cells = [
        Cell(rule, name, one, n) for rule in CONFIGS for name, one in networks.items() for n in DRAWS if n <= one.draws
    ]
    rows, missed, every = [], [], list[float]()
    for cell in cells:
        gains, behind = cell.recall("coupled") - cell.recall("joint"), cell.behind()
        numbers = [
            _points(gain) + ("" if np.isnan(b) else f" ({_points(b)})") for gain, b in zip(gains, behind, strict=True)
        ]
        rows.append([f"{cell.rule.k_prime}, {cell.rule.k}", cell.name, f"{cell.draws:,}", *numbers])
        every += gains.tolist()
        missed += [_missed(cell, place) for place in np.flatnonzero(behind < -_MISSED)]
        print(*rows[-1], flush=True)
    heads = ["k', k", "votes", "n", *(f"R = {plain(ratio)} σ" for ratio in RATIOS)]
    other = ["k', k", "votes", "n", "R / σ", "coupled", "paper, 2n", "any certificate", "without a coin", ""]
    behind, cannot = sum(gain < 0 for gain in every), sum(row[-1].startswith("impossible") for row in missed)
    worst, best = _points(max(0.0, -min(every))), _points(max(every))
    words = (
        f"`coupled` is behind `joint` in {behind} of {len(every)} cells, by at most {worst} points, and ahead by up to "
        f"{best}: {csv_link(docs, 'comparison', heads, rows)}. It is more than {_MISSED} points behind `paper` with "
        f"twice the draws in {len(missed)} cells; in {cannot} of these no certificate without a coin could do better: "
        f"{csv_link(docs, 'missed', other, missed)}."
    )
    return {"comparison": words}


def _missed(cell: Cell, place: int) -> list[str]:
    """A cell that is behind, and whether any certificate could be better."""
    ours, theirs = cell.recall("coupled")[place], cell.recall("paper", 2)[place]
    most, without = cell.ceiling(RATIOS[place])
    needed = theirs - _MISSED
    verdict = f"missed by {needed - ours:.1f}"
    if without < needed:
        verdict = "impossible" if most < needed else "impossible without a coin"
    numbers = [f"{cell.draws:,}", plain(RATIOS[place]), *(f"{value:.1f}" for value in (ours, theirs, most, without))]
    return [f"{cell.rule.k_prime}, {cell.rule.k}", cell.name, *numbers, verdict]


def _points(gain: float) -> str:
    return f"{round(gain, 1) + 0.0:.1f}"
