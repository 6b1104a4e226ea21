"""One config on the votes of one run: for which labels each image is certified, and what its draws prove."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import Method, Radii, certified_radii_batch
from multiguard.certify.arrays import Floats
from multiguard.certify.radii import label_radii_batch
from multiguard.errors import InvalidInputError, VotesError
from multiguard.evaluate.certificates import Certificates, Labels, certificates_schema
from multiguard.evaluate.config import CertifyConfig
from multiguard.evaluate.methods import is_one_claim, label_method, set_method
from multiguard.io.names import unknown_name

if TYPE_CHECKING:
    from multiguard.votes import DrawVotes, VoteRow, Votes

LabelSource = Literal["truth", "pilot"]


class Certifier:
    """Certifies the images of one run with one config, some at a time, and collects what is proved.

    About the ground truth the claims on L as a set take all of alpha, and so does the claim on each label alone. About
    labels chosen from pilot draws all claims hold at once: half of alpha is for the set, half for its labels, an equal
    part each. Where the set is always one label, there is one claim only, and it has all of alpha. Of a band ablation
    every band votes: nothing is random, alpha plays no part, and the votes that certify may choose the labels, too.

    Args:
        votes: The run.
        config: What is certified, resolved for these votes.
        source: Where L comes from, the ground truth or pilot draws; raises unless the votes have it.
    """

    def __init__(self, votes: Votes, config: CertifyConfig, source: LabelSource) -> None:
        if source not in get_args(LabelSource):
            raise InvalidInputError(unknown_name("source of labels", source, get_args(LabelSource)))
        run = votes.provenance
        if source == "truth" and not run.labelled:
            raise VotesError(
                "these votes carry no ground truth; labels='pilot' (--no-labels) certifies the labels that their pilot "
                "draws choose"
            )
        self.config, self._votes_of, self._source, self._rule = config, votes, source, config.rule
        self._draws = run.draws if config.draws is None else config.draws
        self._options: dict[str, Any] = {"num_labels": len(run.label_names), "noise": run.noise}
        self._label_method, self._enumerated = label_method(run), run.noise.enumerated
        self._raised = {self._label_method, set_method(self._rule, run, self._draws)}
        self._is_one_claim = source == "pilot" and is_one_claim(self._rule, config.methods)
        if self._is_one_claim:
            self._label_method = config.methods[0]
        self._schema, self._tables = certificates_schema(config.methods, self._rule), list[Any]()

    def take(self, rows: Sequence[VoteRow], *, sets_only: bool = False) -> Iterator[None]:
        """Certify some more images; yields after each method, and once before them.

        With `sets_only`, what is claimed of single labels and predicted is left out unless the sets need it.
        """
        import pyarrow as pa

        labels = [self._protected(row) for row in rows]
        alone: list[Floats] = [np.empty(0)] * len(rows)
        if not sets_only or self._source == "pilot":
            alone = self._certify_labels(rows, labels)
        predicted = [((), ()) if sets_only else self._predict(votes) for votes in self._votes(rows)]
        yield
        proved: dict[Method, list[Radii]] = {}
        for method in self.config.methods:
            proved[method] = self._certify_sets(rows, labels, method, alone)
            yield
        columns: dict[str, Any] = {
            "id": [row.image_id for row in rows],
            "labels": labels,
            "radii": [{method: radii[index].true for method, radii in proved.items()} for index in range(len(rows))],
            "label_radii": alone,
            "predicted": [own for own, _ in predicted],
            "predicted_hits": [hits for _, hits in predicted],
            "draws": [min(self._draws, row.draws) for row in rows],
            "image_sha256": [row.image_hash for row in rows],
            "bare": [None if sets_only else self._without_noise(row) for row in rows],
        }
        if self._rule.has_ceilings:
            columns["false_radii"] = [{m: radii[i].false for m, radii in proved.items()} for i in range(len(rows))]
        self._tables.append(pa.table({name: columns[name] for name in self._schema.names}, schema=self._schema))

    def certificates(self) -> Certificates:
        """What is proved of the images that were taken."""
        import pyarrow as pa

        votes, run = self._votes_of, self._votes_of.provenance
        table = pa.concat_tables(self._tables).combine_chunks()
        labelled = self._source == "truth"
        return Certificates(self.config, run.noise, run.label_names, labelled, table, votes.failures)

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
        """What the rule returns of the draw without noise; None if the votes do not hold as much."""
        if row.bare is None:
            return None
        return self._rule.returned_once(self._array(row.bare))

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
        return (self._array(row.votes)[: self._draws] for row in rows)

    def _array(self, votes: DrawVotes) -> NDArray[Any]:
        from multiguard.votes.types import as_array  # pyarrow is imported where votes are read, not with this room

        return as_array(votes, self._rule.name)
