"""One config on the votes of one run: for which labels each image is certified, and what its draws prove."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import Method, Radii, Rule, TopK, certified_radii_batch, rules
from multiguard.certify.arrays import Floats
from multiguard.certify.noise import BandAblation, Noise
from multiguard.certify.radii import LABEL_METHODS, label_radii_batch
from multiguard.certify.rules import check_method
from multiguard.errors import InvalidInputError, VotesError
from multiguard.evaluate.config import CertifyConfig
from multiguard.io.names import unknown_name
from multiguard.io.ragged import RaggedBuilder

if TYPE_CHECKING:
    from multiguard.votes import DrawVotes, Provenance, VoteRow, Votes

LabelSource = Literal["truth", "pilot"]
Labels = tuple[int, ...]


class Certifier:
    """Certifies the images of one run with one config, some at a time, and collects what is proved.

    About the ground truth the claims on L as a set take all of alpha, and so does the claim on each label alone. About
    labels chosen from pilot draws all claims hold at once: half of alpha is for the set, half for its labels, an equal
    part each. Where the set is always one label, there is one claim only, and it has all of alpha. Of a band ablation
    every band votes: nothing is random, alpha plays no part, and the votes that certify may choose the labels, too.

    Args:
        votes: The run.
        config: What is certified, resolved for these votes.
        methods: The methods to prove with, as `resolve_methods` gives them.
        source: Where L comes from, the ground truth or pilot draws; raises unless the votes have it.

    Attributes:
        labels: For each image taken its L.
        radii: For each method and image up to which radius how many labels of L are returned.
        false_radii: For each method and image up to which radius how few others are; empty for the top-k rule.
        label_radii: For each image and label of L the radius up to which this label alone is returned.
        predicted: For each image what the smoothed classifier would return if the certifying draws were all.
        predicted_hits: In how many draws each of these labels was hit.
        bare: For each image what the base classifier returns without noise; None where the votes do not say.
    """

    def __init__(self, votes: Votes, config: CertifyConfig, methods: Sequence[Method], source: LabelSource) -> None:
        if source not in get_args(LabelSource):
            raise InvalidInputError(unknown_name("source of labels", source, get_args(LabelSource)))
        run = votes.provenance
        if source == "truth" and not run.labelled:
            raise VotesError(
                "these votes carry no ground truth; labels='pilot' (--no-labels) certifies the labels that their pilot "
                "draws choose"
            )
        self.config, self._source, self._rule = config, source, config.rule
        self._options: dict[str, Any] = {"num_labels": len(run.label_names), "noise": run.noise}
        self._label_method, self._enumerated = default_method(run), isinstance(run.noise, BandAblation)
        self._raised = {self._label_method, set_method(config.rule, run, config.draws)}
        self._is_one_claim = source == "pilot" and is_one_claim(config.rule, methods)
        if self._is_one_claim:
            self._label_method = methods[0]
        kind = np.min_scalar_type(len(run.label_names))
        self.labels, self.label_radii = RaggedBuilder(kind), RaggedBuilder(np.float64)
        self.predicted, self.predicted_hits = RaggedBuilder(kind), RaggedBuilder(np.int32)
        self.bare = RaggedBuilder(kind)
        self.radii = {method: RaggedBuilder(np.float64) for method in methods}
        self.false_radii = {method: RaggedBuilder(np.float64) for method in methods}

    def take(self, rows: Sequence[VoteRow], *, sets_only: bool = False) -> Iterator[None]:
        """Certify some more images; yields after each method, and once before them.

        With `sets_only`, what is claimed of single labels and predicted is left out unless the sets need it.
        """
        labels = [self._protected(row) for row in rows]
        alone = [np.empty(0)] * len(rows)
        if not sets_only or self._source == "pilot":
            alone = self._certify_labels(rows, labels)
        self.labels.extend(labels)
        self.label_radii.extend(alone)
        if not sets_only:
            predicted = [self._predict(votes) for votes in self._votes(rows)]
            self.predicted.extend(own for own, _ in predicted)
            self.predicted_hits.extend(hits for _, hits in predicted)
            self.bare.extend(self._without_noise(row) for row in rows)
        yield
        for method in self.radii:
            proved = self._certify_sets(rows, labels, method, alone)
            self.radii[method].extend(each.true for each in proved)
            self.false_radii[method].extend(each.false for each in proved if each.false is not None)
            yield

    def _protected(self, row: VoteRow) -> Labels:
        """L: the true labels, or those that the smoothed classifier would return if the pilot draws were all."""
        if self._source == "truth":
            return row.labels
        if self._enumerated:
            return self._rule.returned(self._array(row.votes), self._options["num_labels"])
        if row.pilot is None:
            raise VotesError(
                "these votes hold no pilot draws to choose labels from, and the draws that certify must not choose "
                "them; vote again with pilot draws (--no-labels)"
            )
        return self._rule.returned(self._array(row.pilot), self._options["num_labels"])

    def _predict(self, votes: NDArray[Any]) -> tuple[Labels, tuple[int, ...]]:
        num_labels = self._options["num_labels"]
        labels = self._rule.returned(votes, num_labels)
        return labels, tuple(self._rule.hits(votes, num_labels)[list(labels)].tolist())

    def _without_noise(self, row: VoteRow) -> Labels | None:
        """As many labels as the smoothed classifier returns, if the votes hold as many; for sets those that pass."""
        if row.bare is None:
            return None
        votes = self._array(row.bare)
        if not isinstance(self._rule, TopK):
            return tuple(np.flatnonzero(votes[0]).tolist())
        return tuple(votes[0, : self._rule.k].tolist()) if votes.shape[1] >= self._rule.k else None

    def _certify_sets(
        self, rows: Sequence[VoteRow], labels: Sequence[Labels], method: Method, alone: Sequence[Floats]
    ) -> list[Radii]:
        """For each image what the method proves of L as a set.

        Of labels that pilot draws chose all claims hold at once: where e of them stay up to their own radii, at least e
        of the set do, so the radii of the set are raised to that, by the default method and by that of single labels.
        The claims on the ground truth stand each alone and are left as they are, and so are the other methods.
        """
        whole = self._source == "truth" or self._is_one_claim
        alpha = self.config.alpha if whole else self.config.alpha / 2
        votes = self._votes(rows)
        proved = certified_radii_batch(votes, labels, self._rule, alpha=alpha, method=method, **self._options)
        if self._source == "truth" or method not in self._raised:
            return proved
        each = zip(proved, alone, strict=True)
        return [Radii(np.maximum(radii.true, np.sort(own)[::-1]), radii.false) for radii, own in each]

    def _certify_labels(self, rows: Sequence[VoteRow], labels: Sequence[Labels]) -> list[Floats]:
        alpha, whole = self.config.alpha, self._source == "truth" or self._is_one_claim
        alphas = [alpha if whole else alpha / 2 / max(1, len(own)) for own in labels]
        options = {**self._options, "method": self._label_method}
        return label_radii_batch(self._votes(rows), labels, self._rule, alphas=alphas, **options)

    def _votes(self, rows: Sequence[VoteRow]) -> Iterator[NDArray[Any]]:
        """The votes that certify, unpacked one image at a time: the first n draws, or in an adaptive run all."""
        return (self._array(row.votes)[: self.config.draws] for row in rows)

    def _array(self, votes: DrawVotes) -> NDArray[Any]:
        from multiguard.votes.types import as_array  # pyarrow is imported where votes are read, not with this room

        return as_array(votes, self._rule.name)


def check_methods(methods: Sequence[Method], rule: Rule, noise: Noise | str | None = None) -> tuple[Method, ...]:
    """The methods, if there is at least one and each is known to the rule and to the noise; repeated ones once."""
    if isinstance(methods, str):
        raise InvalidInputError(f"methods must be a list of methods, such as [{methods!r}], got {methods!r}")
    if not methods:
        raise InvalidInputError("methods is empty: name at least one, such as 'coupled'")
    return tuple(dict.fromkeys(check_method(method, rule, noise) for method in methods))


def is_one_claim(rule: Rule, methods: Sequence[Method]) -> bool:
    """Whether a set of labels that pilot draws chose is one label, and one method proves what is claimed of both."""
    return isinstance(rule, TopK) and rule.k == 1 and len(methods) == 1 and methods[0] in LABEL_METHODS


def set_method(rule: Rule, run: Provenance, draws: int) -> Method:
    """The method that proves what is claimed of sets by so many draws if none is named."""
    return "betting" if _why_not_fixed(run) else rules.default_method(rule, run.noise, draws)


def every_method(rule: Rule, run: Provenance, draws: int) -> tuple[Method, ...]:
    """The methods that may certify these votes, the default first."""
    first = set_method(rule, run, draws)
    if first == "enumerated" or _why_not_fixed(run):
        return (first,)
    return tuple(dict.fromkeys((first, *(each for each in rule.methods if each != "enumerated"))))


def default_method(run: Provenance) -> Method:
    """The method that proves what is claimed of single labels: for a fixed number of draws the fastest."""
    return "betting" if _why_not_fixed(run) else rules.default_label_method(run.noise)


def _why_not_fixed(run: Provenance) -> str | None:
    """Why the number of draws may depend on the votes; None if it was fixed beforehand."""
    if run.stops is not None:
        return "these votes are adaptive: they decided themselves how many draws each image has"
    if run.earlier_draws:
        return f"these votes were extended from {run.earlier_draws[0]} draws, perhaps because of what those proved"
    return None


def resolve_methods(methods: Sequence[Method] | None, config: CertifyConfig, run: Provenance) -> tuple[Method, ...]:
    """The methods, the default one if none is given; raises unless each may certify the votes of this run."""
    rule, draws = config.rule, run.draws if config.n is None else config.n
    checked = check_methods((set_method(rule, run, draws),) if methods is None else methods, rule, run.noise)
    others = [method for method in checked if method != "betting"]
    why = _why_not_fixed(run)
    if why is not None and others:
        raise InvalidInputError(
            f"method {others[0]!r} needs a number of draws fixed beforehand, and {why}; "
            "certify them by --method betting (methods=['betting'])"
        )
    return checked
