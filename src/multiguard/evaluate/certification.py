"""From votes to results: what is proved of every image with one config, its curves and its sweeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multiguard.certify import Method, Radii, certified_radii_batch
from multiguard.certify.arguments import Floats
from multiguard.certify.draws import check_order
from multiguard.certify.radii import label_radii_batch
from multiguard.errors import InvalidInputError, VotesError
from multiguard.evaluate.certificates import Certificates, Labels, certificates_schema
from multiguard.evaluate.config import CertifyConfig, SweepConfig, is_one_claim, label_method, set_method
from multiguard.evaluate.curves import curves, radius_grid
from multiguard.evaluate.results import Results, kept_results, plain_provenance
from multiguard.io.config import to_tree
from multiguard.io.files import check_content
from multiguard.io.names import unknown_name
from multiguard.io.records import checksum
from multiguard.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

    from multiguard.votes import Provenance, VoteRow, Votes

LabelSource = Literal["truth", "pilot"]
Progress = Callable[[str, int, int], None]  # what is being done, how much of it is done, and how much there is

# The votes of about this many bytes are held at a time; each is read from the disk once.
_BYTES_AT_A_TIME = 1 << 26
# Images with equally many labels are solved together: more than this many gain little, and would hide progress.
_IMAGES_AT_A_TIME = 512


def certify_votes(
    config: CertifyConfig,
    votes: Votes,
    *,
    sweep: SweepConfig | None = None,
    labels: LabelSource = "truth",
    source: Mapping[str, Any] | None = None,
    command: str | None = None,
    out: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Results:
    """The claims on each image, by each method, hold with probability at least 1 - alpha over its draws.

    The votes of every image are read once. Each point of a sweep alone has that promise; the best point picked
    afterwards is not covered. Adaptive votes are certified by the method betting only.

    Args:
        config: The rule, alpha, the methods, and the radii of the curves. Methods are by default that of
            `certified_radii` for this rule, noise and number of draws, for adaptive votes "betting".
        votes: What `vote_dataset` or `read_votes` returns.
        sweep: Values of single parameters to certify the same votes with.
        labels: "truth", to certify the true labels, which must not have been chosen from these draws; or "pilot", to
            certify the labels that the pilot draws choose. Then recall is the fraction of the predicted labels that
            provably stay.
        source: Which images and which model, as plain JSON values, for the record.
        command: The command line, for the record.
        out: A folder for certificates.parquet and its tables, which `read_certificates` reads. Where the same
            certificates are there already they are read; others are replaced only with `force`.
        force: Whether to replace other certificates.
        progress: Called with what is being done, how much of it is done, and how much there is.

    >>> from multiguard import CertifyConfig, read_votes
    >>> votes = read_votes(folder)  # a folder with the votes of 5 images
    >>> results = certify_votes(CertifyConfig(k=10, k_prime=3, methods=("joint", "paper")), votes)
    >>> results.certificates.methods, results.certificates.config.draws, len(results.certificates.radii["joint"])
    (('joint', 'paper'), 7, 5)
    """
    (sweep or SweepConfig()).configs(config, votes.provenance)  # a mistake in a config comes before any in a folder
    make = partial(_results, config, votes, sweep or SweepConfig(), labels, source, command, progress)
    if out is None:
        return make()
    check_content(Path(out), "certificates")
    return kept_results(Path(out), certify_request(config, votes, sweep, labels), make, force=force)


def certify_request(
    config: CertifyConfig, votes: Votes, sweep: SweepConfig | None = None, labels: LabelSource = "truth"
) -> dict[str, Any]:
    """Everything that decides the results, by name."""
    return {
        **{f"certify.{name}": value for name, value in to_tree(config).items()},
        "certify.labels": labels,
        "certify.sweep": to_tree(sweep or SweepConfig()),
        "votes": votes.manifest_hash,
        "images": checksum({"ids": [*votes.ids]}),
        "multiguard": __version__,
    }


def make_certificates(
    config: CertifyConfig,
    votes: Votes,
    *,
    labels: LabelSource = "truth",
    progress: Callable[[int, int], None] | None = None,
) -> Certificates:
    """The promise of `certify_votes`, without curves; `progress` is called with the images done and all images.

    >>> from multiguard import CertifyConfig, read_votes
    >>> make_certificates(CertifyConfig(k=10, k_prime=3), read_votes(folder)).methods  # the votes of 5 images
    ('joint',)
    """
    return _certify([config.resolve(votes.provenance)], votes, labels, progress)[0]


def _certify(
    configs: Sequence[CertifyConfig], votes: Votes, source: LabelSource, progress: Callable[[int, int], None] | None
) -> list[Certificates]:
    """The certificates of each of these resolved configs; the votes of every image are read once.

    Of all configs but the first `label_radii` and `predicted` are left empty where they are not needed.
    """
    import pyarrow as pa

    run = votes.provenance
    certifiers = [_Certifier(run, config, source, sets_only=index > 0) for index, config in enumerate(configs)]
    tables: list[list[pa.Table]] = [[] for _ in configs]
    done, steps = 0, len(votes) * sum(1 + len(config.methods) for config in configs)

    def step(images: int) -> None:
        nonlocal done
        done += images
        if progress is not None:
            progress(len(votes) * done // steps, len(votes))

    for rows in _portions(votes):
        for certifier, made in zip(certifiers, tables, strict=True):
            made.append(certifier.table(rows, step))
    pairs = zip(configs, (pa.concat_tables(made).combine_chunks() for made in tables), strict=True)
    known = run.noise, run.label_names, source == "truth"
    return [Certificates(config, *known, table, votes.failures) for config, table in pairs]


def _results(
    config: CertifyConfig,
    votes: Votes,
    sweep: SweepConfig,
    labels: LabelSource,
    source: Mapping[str, Any] | None,
    command: str | None,
    progress: Progress | None,
) -> Results:
    run = votes.provenance
    configs = [config.resolve(run), *sweep.configs(config, run)]
    radius = radius_grid(run.noise, to=config.radius_to, step=config.radius_step)
    counted = None if progress is None else partial(progress, "certifying")
    certificates, *swept = _certify(configs, votes, labels, counted)
    made = curves(certificates, radius, bands=configs[0].bands or None)
    made += [curve for one in swept for curve in curves(one, radius)]
    return Results(
        certificates,
        made,
        provenance=plain_provenance(run),
        votes_hash=votes.manifest_hash,
        certified_with=__version__,
        source=dict(source or {}),
        command=command,
        certificates_hash=checksum(certify_request(config, votes, sweep, labels)),
    )


def _portions(votes: Votes) -> Iterator[list[VoteRow]]:
    """All images in order, in runs whose votes fit in memory together."""
    if len(votes) == 0:
        failed = f": all {len(votes.failures)} images failed" if votes.failures else ""
        raise InvalidInputError(f"these votes hold no image, so there is nothing to certify{failed}")
    from multiguard.votes.types import packed_array

    rows: list[VoteRow] = []
    held = 0
    for row in votes.rows(adaptive=votes.adaptive):
        rows.append(row)
        held += packed_array(row.votes).nbytes
        if held >= _BYTES_AT_A_TIME or len(rows) == _IMAGES_AT_A_TIME:
            yield rows
            rows, held = [], 0
    if rows:
        yield rows


class _Certifier:
    """Certifies images of one run with one resolved config.

    About the ground truth the claims on L as a set take all of alpha, and so does the claim on each label alone. About
    labels chosen from pilot draws all claims hold at once: half of alpha is for the set, half for its labels, an equal
    part each. Where the set is always one label, there is one claim only, and it has all of alpha. Of a band ablation
    every band votes: nothing is random, alpha plays no part, and the votes that certify may choose the labels, too.
    """

    def __init__(self, run: Provenance, config: CertifyConfig, source: LabelSource, *, sets_only: bool) -> None:
        if source not in get_args(LabelSource):
            raise InvalidInputError(unknown_name("source of labels", source, get_args(LabelSource)))
        if source == "truth" and not run.labelled:
            raise VotesError(
                "these votes carry no ground truth; labels='pilot' (--no-labels) certifies the labels that their pilot "
                "draws choose"
            )
        self._config, self._rule, self._pilot, self._sets_only = config, config.rule, source == "pilot", sets_only
        self._run, self._labels, self._draws = run, len(run.label_names), config.draws or run.draws
        self._options: dict[str, Any] = {"num_labels": self._labels, "noise": run.noise}
        self._label_method = label_method(run)
        self._raised = {self._label_method, set_method(self._rule, run, self._draws)}
        one_claim = self._pilot and is_one_claim(self._rule, config.methods)
        if one_claim:
            self._label_method = config.methods[0]
        self._is_split = self._pilot and not one_claim  # alpha, over the set and its labels

    def table(self, rows: Sequence[VoteRow], step: Callable[[int], None]) -> pa.Table:
        """What is proved of these images; `step` is called with their number, and with 1 for each image and method."""
        import pyarrow as pa

        from multiguard.votes.types import as_array  # pyarrow is imported where votes are read, not with this room

        labels, rule = [self._protected(row) for row in rows], self._rule
        alone: list[Floats] = [np.empty(0)] * len(rows)
        if self._pilot or not self._sets_only:
            alone = self._certify_labels(rows, labels)
        predicted = [((), ()) if self._sets_only else self._predict(votes) for votes in self._votes(rows)]
        step(len(rows))
        sets = {method: self._certify_sets(rows, labels, method, alone, step) for method in self._config.methods}
        bare = [None if self._sets_only else row.bare for row in rows]
        columns: dict[str, Any] = {
            "id": [row.image_id for row in rows],
            "labels": labels,
            "radii": [{method: radii[index].true for method, radii in sets.items()} for index in range(len(rows))],
            "false_radii": [{m: radii[index].false for m, radii in sets.items()} for index in range(len(rows))],
            "label_radii": alone,
            "predicted": [own for own, _ in predicted],
            "predicted_hits": [hits for _, hits in predicted],
            "draws": [min(self._draws, row.draws) for row in rows],
            "image_sha256": [row.image_hash for row in rows],
            "bare": [None if votes is None else rule.returned_once(as_array(votes, rule)) for votes in bare],
        }
        schema = certificates_schema(self._config.methods, rule)
        return pa.table({name: columns[name] for name in schema.names}, schema=schema)

    def _protected(self, row: VoteRow) -> Labels:
        """L: the true labels, or those that the smoothed classifier would return if the pilot draws were all."""
        from multiguard.votes.types import as_array

        if not self._pilot:
            return row.labels
        chosen = row.votes if self._run.noise.enumerated else row.pilot
        if chosen is None:
            raise VotesError(
                "these votes hold no pilot draws to choose labels from, and the draws that certify must not choose "
                "them; vote again with pilot draws (--no-labels)"
            )
        return self._rule.returned(as_array(chosen, self._rule), self._labels)

    def _predict(self, votes: NDArray[Any]) -> tuple[Labels, tuple[int, ...]]:
        labels = self._rule.returned(votes, self._labels)
        return labels, tuple(self._rule.hits(votes, self._labels)[list(labels)].tolist())

    def _certify_sets(
        self,
        rows: Sequence[VoteRow],
        labels: Sequence[Labels],
        method: Method,
        alone: Sequence[Floats],
        step: Callable[[int], None],
    ) -> list[Radii]:
        """For each image what the method proves of L as a set.

        Of labels that pilot draws chose all claims hold at once: where e of them stay up to their own radii, at least e
        of the set do, so the radii of the set are raised to that, by the default method and by that of single labels.
        The claims on the ground truth stand each alone and are left as they are, and so are the other methods.
        """
        alpha = self._config.alpha / 2 if self._is_split else self._config.alpha
        votes = self._votes(rows, in_order=method == "coupled")
        options = {**self._options, "alpha": alpha, "method": method, "progress": step}
        proved = certified_radii_batch(votes, labels, self._rule, **options)
        if not self._pilot or method not in self._raised:
            return proved
        each = zip(proved, alone, strict=True)
        return [Radii(np.maximum(radii.true, np.sort(own)[::-1]), radii.false) for radii, own in each]

    def _certify_labels(self, rows: Sequence[VoteRow], labels: Sequence[Labels]) -> list[Floats]:
        alpha = self._config.alpha
        alphas = [alpha / 2 / max(1, len(own)) if self._is_split else alpha for own in labels]
        options = {**self._options, "method": self._label_method}
        return label_radii_batch(self._votes(rows), labels, self._rule, alphas=alphas, **options)

    def _votes(self, rows: Sequence[VoteRow], *, in_order: bool = False) -> Iterator[NDArray[Any]]:
        """The votes that certify, unpacked one image at a time: the first n draws, or in an adaptive run all.

        Draws that have to be in order and were stored in one that depends on their content raise `VotesError`.
        """
        from multiguard.votes.types import as_array

        for row in rows:
            votes = as_array(row.votes, self._rule)[: self._draws]
            try:
                if in_order:
                    check_order(votes, self._rule, self._labels)
            except InvalidInputError as error:
                raise VotesError(f"image {row.image_id!r}: {error}") from error
            yield votes
