"""How far the certificates are from their limits: exact frequencies, more draws, attacks, the bare network."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.certify.cases import random_distribution
from tests.certify.limit import least_gap, limit_radius

from benchmarks.exact_law import law_radii
from benchmarks.results.markdown_tables import csv_link
from benchmarks.results.sources import Source, hits_of, kept_rows
from multiguard.certify import Gaussian, Method, TopK, certified_size, exact_radii
from multiguard.certify.arguments import Floats
from multiguard.evaluate import AttackedImage, Attacks, prediction_scores, read_attacks
from multiguard.io.rounding import percent_value
from multiguard.votes.types import as_ranked

_AT = (0.5, 1.0)
_METHOD: Method = "coupled"
_LIMIT_BINS, _LIMIT_WITHIN = 120, 1e-4
_SMALL_METHODS: tuple[Method, ...] = ("coupled", "joint", "paper", "independent", "jia")


def distance_block(
    source: Source, more: Source, clean: Source | None, attacks: Sequence[Path], rules: Sequence[TopK], docs: Path
) -> dict[str, str]:
    """Bounds of the recall that no attack can take, next to what is certified.

    Args:
        source: The first draws of each image.
        more: All draws of the same images; they have a row if they are more than the first.
        clean: The votes of a network that was trained without noise, if there are any.
        attacks: The folders of attacks.
        rules: A paragraph for each of these; the file has their numbers.
        docs: The folder of the page.
    """
    found = [read_attacks(folder) for folder in attacks]
    parts, every = [], []
    for rule in rules:
        own = [each for each in found if each.config.rule == rule]
        rows, words = _distance(source, more, clean, own, rule)
        name = f"{rule.k_prime}, {rule.k}"
        parts.append(f"* **k', k = {name}:** {words}")
        every += [[name, *row] for row in rows]
    link = csv_link(docs, "distance", ["k', k", "", "kind", "images", "R = 0.5", "R = 1"], every)
    return {"distance": "\n".join([*parts, "", f"All numbers: {link}."])}


def _distance(
    source: Source, more: Source, clean: Source | None, attacks: Sequence[Attacks], rule: TopK
) -> tuple[list[list[str]], str]:
    certified = _certified(source, rule)
    rows = []
    if clean is not None and clean.run is not None and (found := _bare_recall(clean, rule)) is not None:
        rows.append(_row("undefended network, no perturbation", "observed", [found] * 2, len(clean)))
    if (found := _bare_recall(source, rule)) is not None:
        rows.append(_row("our network without noise, no perturbation", "observed", [found] * 2, len(source)))
    bare = _smoothed_recall(more, rule)
    rows.append(_row("smoothed classifier, no perturbation", "observed", [bare] * 2, len(source)))
    if attacks:
        rows += _attacked_rows(attacks, source, certified)
    upper, lower = _limits(more, rule).mean(axis=2)
    rows.append(_row("no method can prove more from the distribution of the votes", "upper bound", upper, len(source)))
    rows.append(_row("proved from the distribution of the votes, if it were exact", "lower bound", lower, len(source)))
    proved = {one.draws: _certified(one, rule).mean(axis=1) for one in (more, source)}
    for draws, values in proved.items():
        rows.append(_row(f"certified from {draws:,} draws", "proved", values, len(source)))
    prices = [f"{draws:,} draws cost {_points(lower - values)}" for draws, values in proved.items()]
    most = " and ".join(percent_value(float(each), ROUND_CEILING) for each in upper)
    words = (
        f"With exact frequencies no method could prove more than {most} % at R = 0.5 and 1; a better theorem about "
        f"exact laws could gain at most {_points(upper - lower, at_most=True)}. Of what they prove, "
        f"{'; '.join(prices)}."
    )
    return rows, words


def _points(gaps: Floats, *, at_most: bool = False) -> str:
    near, far = np.ceil(1000 * gaps) / 10 if at_most else 100 * gaps
    return f"{near:.1f} points at R = 0.5 and {far:.1f} at R = 1"


def _row(words: str, kind: str, values: Sequence[float] | Floats, images: int) -> list[str]:
    rounding = ROUND_CEILING if kind in ("upper bound", "estimate") else ROUND_FLOOR
    return [words, kind, str(images), *(percent_value(float(value), rounding) for value in values)]


def _certified(source: Source, rule: TopK) -> Floats:
    """(radii, images) the certified recall."""
    each = zip(source.radii(rule, _METHOD), source.labels, strict=True)
    return np.array([certified_size(radii.true, _AT) / len(true) for radii, true in each]).T


def _bare_recall(source: Source, rule: TopK) -> float | None:
    """The recall of the k best labels of the images without noise; None if the votes do not have them."""
    if source.run is None:
        return None
    bare = [source.run.row(i, adaptive=source.run.adaptive).bare for i in range(len(source.run))]
    best = [as_ranked(each)[0, : rule.k].tolist() for each in bare if each is not None]
    return float(prediction_scores(source.labels, best).recall) if len(best) == len(bare) else None


def _smoothed_recall(source: Source, rule: TopK) -> float:
    """The recall of the labels that the smoothed classifier returns according to the draws; none without a hit."""
    returned = [rule.returned(votes, source.num_labels) for votes in source.votes]
    return float(prediction_scores(source.labels, returned).recall)


def _attacked_rows(attacks: Sequence[Attacks], source: Source, certified: Floats) -> list[list[str]]:
    """The mean recall that all attacks leave: what fresh draws say, and an upper bound that holds with confidence.

    In these draws a label that ties with another counts as returned, if some draw hit it, so the first row says what
    they leave of the images as they are.
    """
    images: dict[str, AttackedImage] = {}
    for image in (image for each in attacks for image in each.images):
        known = images.get(image.id, image)
        images[image.id] = replace(image, outcomes=tuple({*known.outcomes, *image.outcomes}))
    own = certified[:, source.positions(images)]
    left = [image.sizes("in", "best", (0.0, *_AT)) / len(image.labels) for image in images.values()]
    bare, *about = np.mean(left, axis=0)
    most = np.mean([_at_most(image) / len(image.labels) for image in images.values()], axis=0)
    words = f"attacked by {' and '.join(attacks[0].names)}, {attacks[0].draws:,} fresh draws"
    return [
        _row("no perturbation, evaluated like the attack", "estimate", [bare] * 2, len(left)),
        _row(words, "estimate", about, len(left)),
        _row(words, "upper bound", most, len(left)),
        _row(f"certified of these from {source.draws:,} draws", "proved", own.mean(axis=1), len(left)),
    ]


def _at_most(image: AttackedImage) -> NDArray[np.int64]:
    return np.array([min(o.at_most for o in image.outcomes if o.radius <= radius) for radius in _AT])


def _limits(source: Source, rule: TopK) -> Floats:
    """(2, radii, images) the recall that is broken at most and proved at least, if their frequencies were exact."""
    path = source.path("limits", repr(rule), _METHOD)
    rows, _ = kept_rows(path, lambda: [_limit(source, i, rule) for i in range(len(source))])
    return np.array(rows).T.reshape(2, len(_AT), len(source)) / [len(true) for true in source.labels]


def _limit(source: Source, image: int, rule: TopK) -> Floats:
    """The largest size that is not broken at each radius, then the largest that is proved."""
    hits, labels = hits_of(source, image, rule.k_prime), source.labels[image]
    sets, counts = np.unique(hits, axis=0, return_counts=True)
    proved = law_radii(sets, counts / len(hits), labels, rule, Gaussian(source.sigma)).true
    lower = certified_size(proved, _AT)
    ends = zip(lower, _AT, strict=True)
    upper = [_unbroken(hits, labels, rule.k, int(size), radius / source.sigma) for size, radius in ends]
    return np.array([*upper, *lower], dtype=np.float64)


def _unbroken(hits: NDArray[np.bool_], labels: list[int], k: int, proved: int, r: float) -> int:
    """The largest size that no classifier of this law is found to break: of all pairs the weakest is tried."""
    total, d = hits.sum(axis=0), len(labels)
    weak = sorted(labels, key=lambda label: (total[label], label))
    rivals = sorted(set(range(hits.shape[1])) - set(labels), key=lambda label: (-total[label], label))
    for size in range(proved + 1, min(d, k) + 1):
        out, into = weak[: d - size + 1], rivals[: k - size + 1]
        sets, counts = np.unique(hits[:, out + into], axis=0, return_counts=True)
        ends = tuple(range(len(out))), tuple(range(len(out), len(out) + len(into)))
        if least_gap(sets, counts / len(hits), *ends, r) <= 0:
            return size - 1
    return min(d, k)


def limit_block(cases: int, docs: Path) -> dict[str, str]:
    """The mean fraction of the limit that each method reaches with exact probabilities, by k' and k."""
    rows, every = [], []
    for labels, k_prime, k, true in ((6, 1, 2, 2), (6, 2, 2, 3), (8, 2, 3, 3), (6, 3, 3, 3)):
        reached = limit_fractions(cases, labels, k_prime, k, true)
        every.append([float(np.mean([fractions[method] for fractions in reached])) for method in _SMALL_METHODS])
        case = f"c = {labels}, k' = {k_prime}, k = {k}, d = {true}"
        rows.append([case, str(len(reached)), *map(percent_value, every[-1])])
    ends = [f"`{m}` {percent_value(min(each))} to {percent_value(max(each))}" for m, each in _columns(every)]
    link = csv_link(docs, "limit", ["case", "radii", *_SMALL_METHODS], rows)
    return {"limit": f"Means of {len(rows)} kinds of cases, in percent: {', '.join(ends)} ({link})."}


def _columns(means: list[list[float]]) -> list[tuple[Method, tuple[float, ...]]]:
    return list(zip(_SMALL_METHODS, zip(*means, strict=True), strict=True))


def limit_fractions(cases: int, labels: int, k_prime: int, k: int, true: int) -> list[dict[Method, float]]:
    """The fraction of every finite limit, neither close to 0 nor far away, that each method reaches."""
    found = []
    for seed in range(cases):
        sets, chances = random_distribution(np.random.default_rng(seed), labels=labels, k_prime=k_prime)
        chances = 0.99 * chances + 0.01 / len(sets)
        own = sorted(int(i) for i in np.argsort(-(chances @ sets))[:true])
        law, rule = (sets, chances, own), TopK(k, k_prime)
        radii = {m: exact_radii(*law, rule, sigma=1.0, method=m).true for m in _SMALL_METHODS if m != _METHOD}
        radii[_METHOD] = law_radii(*law, rule, Gaussian(1.0)).true
        for e, proved in enumerate(radii["joint"], start=1):
            if not 0.05 < proved < 5:
                continue
            limit = limit_radius(sets, chances, own, k=k, e=e, bins=_LIMIT_BINS, within=_LIMIT_WITHIN)
            if np.isfinite(limit):
                found.append({m: max(float(each[e - 1]), 0.0) / limit for m, each in radii.items()})
    return found
