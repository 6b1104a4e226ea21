"""One setting asked of one run: for which labels each image is certified, and what its draws prove of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import (
    Looks,
    Method,
    adaptive_radii_batch,
    adaptive_threshold_radii_batch,
    threshold_label_radii,
)
from multiguard.certify.arguments import checked_method, checked_threshold_method
from multiguard.errors import InvalidInputError, VotesError
from multiguard.evaluate.scores import Floats
from multiguard.evaluate.setting import AnySetting, Setting, ThresholdSetting
from multiguard.io.names import unknown_name

if TYPE_CHECKING:
    from multiguard.votes import DrawVotes, Provenance, VoteRow, Votes

LabelSource = Literal["truth", "pilot"]
Labels = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Proved:
    """What one method proves of one image.

    Attributes:
        true: Up to which radius at least 1, 2, ... labels of L are returned.
        false: Up to which radius at most 0, 1, ... other labels are; None for the top-k rule, which returns k in all.
    """

    true: Floats
    false: Floats | None


class Question(ABC):
    """One setting asked of one run.

    A fixed n is one look with the whole of alpha. What is claimed of labels chosen from pilot draws holds all at once:
    half of alpha is for the set, half for its labels, an equal part each. About the ground truth the claims on the set
    stand alone, and so does the claim on each label, with all of alpha.

    Args:
        setting: What is asked; its draws are a number.
        source: Where L comes from, the ground truth or pilot draws.
        run: Where the votes come from.
    """

    def __init__(self, setting: AnySetting, source: LabelSource, run: Provenance) -> None:
        self.alpha, self.source, self.sigma = setting.alpha, source, run.sigma
        self.num_labels, self.most_draws = len(run.label_names), setting.n
        self.looks = Looks((setting.n,), (1.0,))
        if run.looks is not None and run.look_fractions is not None:
            self.looks = Looks(run.looks, run.look_fractions)

    def labels(self, row: VoteRow) -> Labels:
        """L: the true labels, or those that the smoothed classifier would return if pilot draws were all there are."""
        if self.source == "truth":
            return row.labels
        if row.pilot is None:
            raise VotesError(
                "these votes hold no pilot draws to choose labels from, and the draws that certify must not choose "
                "them; vote again with pilot draws (--no-labels)"
            )
        return self.returned(self.array(row.pilot))

    def certifying(self, row: VoteRow) -> NDArray[Any]:
        """The votes that certify: the first n draws, or in an adaptive run all."""
        return self.array(row.votes)[: self.most_draws]

    def predicted(self, row: VoteRow) -> tuple[Labels, tuple[int, ...]]:
        """What the smoothed classifier would return if the certifying draws were all, and how often each was hit."""
        votes = self.certifying(row)
        labels = self.returned(votes)
        return labels, tuple(self.hits(votes)[list(labels)].tolist())

    def set_alpha(self) -> float:
        """The error allowed for the claims about L as a set."""
        return self.alpha if self.source == "truth" else self.alpha / 2

    def label_alpha(self, labels: int) -> float:
        """The error allowed for the claim about one of so many labels."""
        return self.alpha if self.source == "truth" else self.alpha / 2 / labels

    def raised(self, proved: Sequence[Proved], label_radii: Sequence[Floats], method: Method) -> list[Proved]:
        """What is proved of the sets, raised to what their labels prove one by one.

        Of labels that pilot draws chose all claims hold at once: where e of them stay up to their own radii, at least e
        of the set do. The ground truth's claims stand each alone and are left as they are, and so is every method but
        joint, by which the labels' own radii are proved.
        """
        if self.source == "truth" or method != "joint":
            return list(proved)
        each = zip(proved, label_radii, strict=True)
        return [Proved(np.maximum(one.true, np.sort(own)[::-1]), one.false) for one, own in each]

    @abstractmethod
    def array(self, votes: DrawVotes) -> NDArray[Any]:
        """The votes as an array, a row for each draw."""

    @abstractmethod
    def hits(self, votes: NDArray[Any]) -> NDArray[np.int64]:
        """(num_labels,), in how many draws each label was hit."""

    @abstractmethod
    def returned(self, votes: NDArray[Any]) -> Labels:
        """The labels that the smoothed classifier would return if these draws were all there are, most hits first."""

    @abstractmethod
    def proved(self, rows: Sequence[VoteRow], labels: Sequence[Labels], method: Method) -> list[Proved]:
        """For each image what the method proves of its labels as a set."""

    @abstractmethod
    def label_radii(self, rows: Sequence[VoteRow], labels: Sequence[Labels]) -> list[Floats]:
        """For each image and each of its labels the radius up to which this label stays."""


class TopKQuestion(Question):
    """How many of L stay among the k labels of largest probability."""

    def __init__(self, setting: Setting, source: LabelSource, run: Provenance) -> None:
        super().__init__(setting, source, run)
        self.setting = setting

    def array(self, votes: DrawVotes) -> NDArray[Any]:
        """The ranked votes, (draws, K')."""
        from multiguard.votes.row import as_ranked

        return as_ranked(votes)

    def hits(self, votes: NDArray[Any]) -> NDArray[np.int64]:
        """In how many draws each label is among the first k'."""
        return np.bincount(votes[:, : self.setting.k_prime].ravel(), minlength=self.num_labels)

    def returned(self, votes: NDArray[Any]) -> Labels:
        """The k labels with the most hits."""
        from multiguard.votes import most_frequent

        return most_frequent(votes, k=self.setting.k, k_prime=self.setting.k_prime, num_labels=self.num_labels)

    def proved(self, rows: Sequence[VoteRow], labels: Sequence[Labels], method: Method) -> list[Proved]:
        """For each image its radii, (min(d, k),)."""
        found = self._radii(rows, labels, self.set_alpha(), method)
        return [Proved(radii, None) for radii in found]

    def label_radii(self, rows: Sequence[VoteRow], labels: Sequence[Labels]) -> list[Floats]:
        """For each image and label the radius up to which it stays among the k, against all other labels."""
        each_row = chain.from_iterable(repeat(row, len(own)) for row, own in zip(rows, labels, strict=True))
        alone = [(label,) for own in labels for label in own]
        radii = self._radii(each_row, alone, self.label_alpha(self.setting.k), "joint")
        ends = np.cumsum([len(own) for own in labels])
        return np.split(np.concatenate([np.empty(0), *radii]), ends[:-1])

    def _radii(self, rows: Iterable[VoteRow], labels: Sequence[Labels], alpha: float, method: Method) -> list[Floats]:
        return adaptive_radii_batch(
            (self.certifying(row) for row in rows),
            labels,
            looks=self.looks,
            num_labels=self.num_labels,
            k=self.setting.k,
            k_prime=self.setting.k_prime,
            sigma=self.sigma,
            alpha=alpha,
            method=method,
        )


class ThresholdQuestion(Question):
    """How many of L stay among the labels of probability t or more, and how many others come in."""

    def __init__(self, setting: ThresholdSetting, source: LabelSource, run: Provenance) -> None:
        super().__init__(setting, source, run)
        self.setting = setting

    def array(self, votes: DrawVotes) -> NDArray[Any]:
        """The sets, boolean (draws, num_labels)."""
        from multiguard.votes.row import as_hits

        return as_hits(votes)

    def hits(self, votes: NDArray[Any]) -> NDArray[np.int64]:
        """In how many draws each label is in the set."""
        return np.asarray(votes.sum(axis=0))

    def returned(self, votes: NDArray[Any]) -> Labels:
        """The labels with a share t of the hits or more; there may be none."""
        from multiguard.votes import passing

        return passing(votes, threshold=self.setting.threshold)

    def proved(self, rows: Sequence[VoteRow], labels: Sequence[Labels], method: Method) -> list[Proved]:
        """For each image its floors (d,) and ceilings (c - d,)."""
        found = adaptive_threshold_radii_batch(
            (self.certifying(row) for row in rows),
            labels,
            looks=self.looks,
            num_labels=self.num_labels,
            threshold=self.setting.threshold,
            sigma=self.sigma,
            alpha=self.set_alpha(),
            method=checked_threshold_method(method),
        )
        return [Proved(radii.true, radii.false) for radii in found]

    def label_radii(self, rows: Sequence[VoteRow], labels: Sequence[Labels]) -> list[Floats]:
        """For each image and label the radius up to which its probability stays at t or more."""
        return [self._label_radii(self.certifying(row), own) for row, own in zip(rows, labels, strict=True)]

    def _label_radii(self, hits: NDArray[np.bool_], labels: Labels) -> Floats:
        """The best of what the looks prove, each look with its share of alpha."""
        if not labels:
            return np.empty(0)
        alpha, t = self.label_alpha(len(labels)), self.setting.threshold
        found = [
            threshold_label_radii(hits[:n], labels, threshold=t, sigma=self.sigma, alpha=alpha * share)
            for n, share in self.looks.taken(len(hits))
        ]
        best: Floats = np.maximum.reduce(found)
        return best[list(labels)]


def question(votes: Votes, setting: AnySetting, source: LabelSource) -> TopKQuestion | ThresholdQuestion:
    """The setting, as `resolved` for these votes, asked about labels that they have."""
    if source not in get_args(LabelSource):
        raise InvalidInputError(unknown_name("source of labels", source, get_args(LabelSource)))
    if source == "truth" and not votes.provenance.labelled:
        raise VotesError(
            "these votes carry no ground truth; labels='pilot' (--no-labels) certifies the labels that their pilot "
            "draws choose"
        )
    if isinstance(setting, ThresholdSetting):
        return ThresholdQuestion(setting, source, votes.provenance)
    return TopKQuestion(setting, source, votes.provenance)


def checked_methods(methods: Sequence[Method], setting: AnySetting) -> tuple[Method, ...]:
    """The methods, each known to the rule and named once; at least one."""
    if isinstance(methods, str):
        raise InvalidInputError(f"methods must be a list of methods, such as [{methods!r}], got {methods!r}")
    if not methods:
        raise InvalidInputError("methods is empty: name at least one, such as 'joint'")
    check = checked_threshold_method if isinstance(setting, ThresholdSetting) else checked_method
    return tuple(dict.fromkeys(check(method) for method in methods))
