"""A config on the votes of one run: for which labels each image is certified, and what its draws prove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import Looks, Method, Radii, Rule, Threshold, certified_radii_batch
from multiguard.certify.arrays import Floats
from multiguard.certify.radii import label_radii_batch
from multiguard.certify.rules import check_method
from multiguard.errors import InvalidInputError, VotesError
from multiguard.io.names import unknown_name

if TYPE_CHECKING:
    from multiguard.evaluate.config import CertifyConfig
    from multiguard.votes import DrawVotes, VoteRow, Votes

LabelSource = Literal["truth", "pilot"]
Labels = tuple[int, ...]


class Certifier:
    """A config on the votes of one run.

    About the ground truth the claims on L as a set take all of alpha, and so does the claim on each label alone. About
    labels chosen from pilot draws all claims hold at once: half of alpha is for the set, half for its labels, an equal
    part each.

    Args:
        votes: The run.
        config: What is certified; raises unless the votes can provide it.
        source: Where L comes from, the ground truth or pilot draws; raises unless the votes have it.
    """

    def __init__(self, votes: Votes, config: CertifyConfig, source: LabelSource) -> None:
        if source not in get_args(LabelSource):
            raise InvalidInputError(unknown_name("source of labels", source, get_args(LabelSource)))
        run = votes.provenance
        self.config, self.source = config.resolve(run), source
        if source == "truth" and not run.labelled:
            raise VotesError(
                "these votes carry no ground truth; labels='pilot' (--no-labels) certifies the labels that their pilot "
                "draws choose"
            )
        self._rule, self._alpha = self.config.rule, self.config.alpha
        self._sigma, self._num_labels = run.sigma, len(run.label_names)
        self._looks: Looks | None = None
        if run.looks is not None and run.look_fractions is not None:
            self._looks = Looks(run.looks, run.look_fractions)

    def labels(self, row: VoteRow) -> Labels:
        """L: the true labels, or those that the smoothed classifier would return if the pilot draws were all."""
        if self.source == "truth":
            return row.labels
        if row.pilot is None:
            raise VotesError(
                "these votes hold no pilot draws to choose labels from, and the draws that certify must not choose "
                "them; vote again with pilot draws (--no-labels)"
            )
        return self._rule.returned(_as_array(row.pilot, self._rule), self._num_labels)

    def predicted(self, row: VoteRow) -> tuple[Labels, tuple[int, ...]]:
        """What the smoothed classifier would return if the certifying draws were all, and how often each was hit."""
        votes = self._votes(row)
        labels = self._rule.returned(votes, self._num_labels)
        return labels, tuple(self._rule.hits(votes, self._num_labels)[list(labels)].tolist())

    def radii(
        self, rows: Sequence[VoteRow], labels: Sequence[Labels], method: Method, label_radii: Sequence[Floats]
    ) -> list[Radii]:
        """For each image what the method proves of L as a set.

        Of labels that pilot draws chose all claims hold at once: where e of them stay up to their own radii, at least e
        of the set do, so the radii of the set are raised to that. The claims on the ground truth stand each alone and
        are left as they are, and so is every method but joint, by which `label_radii` are proved.
        """
        proved = certified_radii_batch(
            (self._votes(row) for row in rows),
            labels,
            self._rule,
            num_labels=self._num_labels,
            sigma=self._sigma,
            alpha=self._alpha if self.source == "truth" else self._alpha / 2,
            method=method,
            looks=self._looks,
        )
        if self.source == "truth" or method != "joint":
            return proved
        each = zip(proved, label_radii, strict=True)
        return [Radii(np.maximum(radii.true, np.sort(alone)[::-1]), radii.false) for radii, alone in each]

    def label_radii(self, rows: Sequence[VoteRow], labels: Sequence[Labels]) -> list[Floats]:
        """For each image and each of its labels the radius up to which this label alone is returned."""
        return label_radii_batch(
            (self._votes(row) for row in rows),
            labels,
            self._rule,
            num_labels=self._num_labels,
            sigma=self._sigma,
            alphas=[self._alpha if self.source == "truth" else self._alpha / 2 / max(1, len(own)) for own in labels],
            looks=self._looks,
        )

    def _votes(self, row: VoteRow) -> NDArray[Any]:
        """The votes that certify: the first n draws, or in an adaptive run all."""
        return _as_array(row.votes, self._rule)[: self.config.draws]


def _as_array(votes: DrawVotes, rule: Rule) -> NDArray[Any]:
    """The votes as the rule takes them: the set of each draw, or its ranked labels."""
    from multiguard.votes.row import as_hits, as_ranked

    return as_hits(votes) if isinstance(rule, Threshold) else as_ranked(votes)


def check_methods(methods: Sequence[Method], rule: Rule) -> tuple[Method, ...]:
    """The methods, each known to the rule and named once; at least one."""
    if isinstance(methods, str):
        raise InvalidInputError(f"methods must be a list of methods, such as [{methods!r}], got {methods!r}")
    if not methods:
        raise InvalidInputError("methods is empty: name at least one, such as 'joint'")
    return tuple(dict.fromkeys(check_method(method, rule) for method in methods))
