"""From votes to certificates: what is proved of every picture in one setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING

import numpy as np

from multiguard.certify import Method, certified_radii_batch
from multiguard.certify.arguments import checked_method
from multiguard.errors import InvalidInputError
from multiguard.evaluate.scores import Floats
from multiguard.evaluate.setting import Setting, resolved

if TYPE_CHECKING:
    from multiguard.votes import Ranked, VoteRow, Votes

Progress = Callable[[int, int], None]

# The votes of about this many bytes are held at a time; each is read from the disk once.
_BYTES_AT_A_TIME = 1 << 26
# Pictures with equally many labels are solved together: more than this many gain little, and would hide progress.
_PICTURES_AT_A_TIME = 512


@dataclass(frozen=True, eq=False)
class Certificates:
    """What is proved of a set of pictures in one setting: each picture's claims hold with probability 1 - alpha.

    The probability is over the draws, for each picture and method alone. `certified_radii` says what a method's radii
    promise; `label_radii` promise less together than alone, as each of them spends the whole of alpha.

    Attributes:
        setting: What was asked; its draws are a number.
        sigma: The noise.
        label_names: The c label names, in index order.
        ids: The ids of the pictures.
        labels: For each picture the indices of its true labels, L.
        radii: For each method and picture the radii, (min(d, k),): size e survives up to radii[e - 1].
        label_radii: For each picture and each label of L, in the order of `labels`, the radius up to which that label
            alone stays among the k returned, against all other labels (method joint). Each radius on its own is right
            with probability at least 1 - alpha.
        predicted: For each picture the k labels with the most hits, most first and of equals the smaller index: an
            estimate of what the smoothed classifier returns, not a claim.
        predicted_hits: In how many draws each of them was hit.
    """

    setting: Setting
    sigma: float
    label_names: tuple[str, ...]
    ids: tuple[str, ...]
    labels: tuple[tuple[int, ...], ...]
    radii: Mapping[Method, tuple[Floats, ...]]
    label_radii: tuple[Floats, ...]
    predicted: tuple[tuple[int, ...], ...]
    predicted_hits: tuple[tuple[int, ...], ...]

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that the radii were proved with."""
        return tuple(self.radii)


def certify_votes(
    votes: Votes, setting: Setting, *, methods: Sequence[Method] = ("joint",), progress: Progress | None = None
) -> Certificates:
    """Each picture's claims, of each method, hold with probability at least 1 - alpha over its draws.

    Every picture's votes are read once. The true labels come from the votes folder and must not have been chosen
    from its draws.

    Args:
        votes: What `read_votes` returns.
        setting: k, k', alpha and the number of draws.
        methods: The methods to prove with, on the same votes.
        progress: Called with the number of pictures done and of all pictures.
    """
    setting, methods = resolved(setting, votes.provenance), checked_methods(methods)
    radii: dict[Method, list[Floats]] = {method: [] for method in methods}
    label_radii: list[Floats] = []
    predicted: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    steps = Steps(len(votes), len(votes) * (len(methods) + 1), progress)
    for rows in portions(votes):
        for method in methods:
            radii[method] += portion_radii(rows, votes, setting, method)
            steps.take(len(rows))
        label_radii += _label_radii(rows, votes, setting)
        predicted += [_most_hit(row.ranked, setting, len(votes.provenance.label_names)) for row in rows]
        steps.take(len(rows))
    return Certificates(
        setting=setting,
        sigma=votes.provenance.sigma,
        label_names=votes.provenance.label_names,
        ids=votes.ids,
        labels=votes.labels,
        radii={method: tuple(found) for method, found in radii.items()},
        label_radii=tuple(label_radii),
        predicted=tuple(labels for labels, _ in predicted),
        predicted_hits=tuple(hits for _, hits in predicted),
    )


class Steps:
    """Work of many small steps, told as `total` larger ones; never backwards, and `total` only when all is done."""

    def __init__(self, total: int, steps: int, progress: Progress | None) -> None:
        self._total, self._steps, self._taken = total, steps, 0
        self._progress = progress

    def take(self, steps: int = 1) -> None:
        """Count steps that have been done."""
        self._taken += steps
        if self._progress is not None:
            self._progress(self._total * self._taken // self._steps, self._total)


def checked_methods(methods: Sequence[Method]) -> tuple[Method, ...]:
    """The methods, each known and named once; at least one."""
    if isinstance(methods, str):
        raise InvalidInputError(f"methods must be a list of methods, such as [{methods!r}], got {methods!r}")
    if not methods:
        raise InvalidInputError("methods is empty: name at least one, such as 'joint'")
    return tuple(dict.fromkeys(checked_method(method) for method in methods))


def portions(votes: Votes) -> Iterator[list[VoteRow]]:
    """All pictures in order, in runs whose votes fit in memory together."""
    if len(votes) == 0:
        raise InvalidInputError("these votes hold no picture, so there is nothing to certify")
    rows: list[VoteRow] = []
    for row in votes:
        rows.append(row)
        held = sum(each.ranked.nbytes for each in rows)
        if held >= _BYTES_AT_A_TIME or len(rows) == _PICTURES_AT_A_TIME:
            yield rows
            rows = []
    if rows:
        yield rows


def portion_radii(rows: Sequence[VoteRow], votes: Votes, setting: Setting, method: Method) -> list[Floats]:
    """For each picture the promise of `certified_radii` about all its true labels."""
    return _radii((row.ranked for row in rows), (row.labels for row in rows), votes, setting, method)


def _label_radii(rows: Sequence[VoteRow], votes: Votes, setting: Setting) -> list[Floats]:
    """For each picture and true label the promise of `certified_radii` about this label alone, each at full alpha."""
    ranked = chain.from_iterable(repeat(row.ranked, len(row.labels)) for row in rows)
    labels = ([label] for row in rows for label in row.labels)
    each = _radii(ranked, labels, votes, setting, "joint")
    ends = np.cumsum([len(row.labels) for row in rows])
    return np.split(np.concatenate([np.empty(0), *each]), ends[:-1])


def _radii(
    ranked: Iterator[Ranked],
    labels: Iterator[Sequence[int]],
    votes: Votes,
    setting: Setting,
    method: Method,
) -> list[Floats]:
    return certified_radii_batch(
        (each[: setting.n] for each in ranked),
        labels,
        num_labels=len(votes.provenance.label_names),
        k=setting.k,
        k_prime=setting.k_prime,
        sigma=votes.provenance.sigma,
        alpha=setting.alpha,
        method=method,
    )


def _most_hit(ranked: Ranked, setting: Setting, num_labels: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The k labels with the most hits, of equals the smaller index first, and their hits."""
    counts = np.bincount(ranked[: setting.n, : setting.k_prime].ravel(), minlength=num_labels)
    labels = np.argsort(-counts, kind="stable")[: setting.k]
    return tuple(labels.tolist()), tuple(counts[labels].tolist())
