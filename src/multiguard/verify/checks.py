"""Each claim, curve and copy of a certificates folder, compared with what its votes prove when certified again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from multiguard.errors import DataError, InvalidInputError, VotesError
from multiguard.evaluate import (
    Certificates,
    CertifyConfig,
    LabelSource,
    Results,
    curves,
    make_certificates,
    read_certificates,
    read_tuned,
)
from multiguard.evaluate.certificate_files import CURVES_NAME, LABELS_NAME, curves_text, labels_text
from multiguard.evaluate.results import plain_provenance
from multiguard.io.files import read_regular
from multiguard.io.names import shorten_names
from multiguard.models.config import ModelConfig
from multiguard.verify.config import VerifyConfig
from multiguard.votes import Votes, read_votes
from multiguard.votes.shards import MANIFEST_NAME

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Check:
    """One thing that was compared."""

    passed: bool
    text: str


def verify(
    config: VerifyConfig,
    certificates: Path,
    *,
    votes: Path | None = None,
    tuned: Path | None = None,
    model: ModelConfig | None = None,
    progress: Progress | None = None,
) -> Iterator[Check]:
    """Yield each check as it is done; what cannot be checked at all raises an error.

    Every shard of votes is compared with its checksum, the votes with the checksum in the certificates, and every
    claim, curve and copy with what the votes prove when they are certified again.

    Args:
        config: Which votes are drawn again.
        certificates: A certificates folder.
        votes: Its votes folder; by default the folder `votes` beside it.
        tuned: The record of `tune` that chose the config, if there is one.
        model: The model to draw votes with again; None to draw none.
        progress: Called with what is being done, how much of it is done, and how much there is.
    """
    try:
        certified = read_certificates(certificates)
    except DataError as error:
        yield Check(False, str(error))
        return
    yield Check(True, f"{certificates}: certificates.parquet is intact, sha256 {certified.certificates_hash}")
    folder = votes or certificates.parent / "votes"
    if not (folder / MANIFEST_NAME).exists():
        raise InvalidInputError(f"{folder} holds no votes to certify again; name their folder with --votes")
    try:
        stored_votes = read_votes(folder)
    except VotesError as error:
        yield Check(False, str(error))
        return
    if stored_votes.manifest_hash != certified.votes_hash:
        yield Check(False, f"the certificates were not made from the votes in {folder}; --votes names others")
        return
    yield Check(True, f"{folder}: the votes that the certificates name; the checksum of every shard agrees")
    stored = certified.certificates
    if "tuned" in certified.source or tuned is not None:
        yield _choice(tuned, certified, stored_votes)
        stored_votes = stored_votes.subset({*stored.ids, *(failure.image_id for failure in stored.failures)})
    yield from _claims(certified, stored_votes, progress)
    yield _copies(certificates, certified)
    if model is not None:
        from multiguard.verify.redraw import redraw

        yield from redraw(config, certificates, certified, stored_votes, model, progress)


def _choice(record: Path | None, certified: Results, votes: Votes) -> Check:
    """Compare the images that are certified with those that had no part in choosing the config."""
    stored, says = certified.certificates, certified.source.get("tuned")
    part = f"{len(stored)} of {len(votes)} images"
    if record is None:
        text = f"{part}: by the record the others chose the config; which they are is not checked without --tuned FILE"
        left_out = says.get("left_out") if isinstance(says, dict) else None
        return Check(len(votes) - len(stored) == left_out, text)
    tuned = read_tuned(record)
    rule = tuned.best.config.rule
    try:
        others = tuned.others(votes)
    except InvalidInputError as error:
        return Check(False, f"{record}: {error}")
    same = list(others.ids) == list(stored.ids) and others.failures == stored.failures
    if not same or rule != stored.config.rule:
        return Check(False, f"{record} chose {rule} for {len(others)} images, but not what is certified")
    return Check(True, f"{part}: all that had no part in the choice of {rule} by {record}")


def _claims(certified: Results, votes: Votes, progress: Progress | None) -> Iterator[Check]:
    """Certify the votes again, with every config that the certificates hold."""
    stored, source = certified.certificates, _source(certified)
    counted = None if progress is None else lambda done, total: progress("certifying", done, total)
    again = make_certificates(_given(stored.config, votes), votes, labels=source, progress=counted)
    yield _same_run(certified, votes, again)
    yield _same_claims(stored, again)
    yield _same_curves(certified, votes, again)


def _source(certified: Results) -> LabelSource:
    return "truth" if certified.certificates.labelled else "pilot"


def _given(config: CertifyConfig, votes: Votes) -> CertifyConfig:
    """The config as it was given: adaptive votes decide their number of draws themselves."""
    return config.replace(draws=None) if votes.adaptive else config


def _same_run(certified: Results, votes: Votes, again: Certificates) -> Check:
    stored, recorded = certified.certificates, certified.provenance
    names = ("config", "noise", "label_names", "failures")
    wrong = [name for name in names if getattr(stored, name) != getattr(again, name)]
    wrong += [name for name, value in plain_provenance(votes.provenance).items() if recorded.get(name) != value]
    if wrong:
        return Check(False, f"the certificates record other facts than their votes: {shorten_names(wrong)}")
    return Check(True, "config, model, dataset, noise and image failures are recorded as in the votes")


def _same_claims(stored: Certificates, again: Certificates) -> Check:
    """Compare every number of every image, to the last bit."""
    if stored.ids != again.ids:
        return Check(False, "the certificates are of other images than the votes")
    wrong = [
        f"{name} ({column})"
        for column in again.table.column_names
        for name, new, old in zip(again.ids, again.table.column(column), stored.table.column(column), strict=True)
        if not new.equals(old) and repr(new.as_py()) != repr(old.as_py())
    ]
    if wrong:
        return Check(False, f"the votes prove something else: {shorten_names(wrong, 6)}")
    methods = ", ".join(stored.methods)
    return Check(True, f"{len(stored)} images, certified again ({methods}): every claim is equal, bit by bit")


def _same_curves(certified: Results, votes: Votes, again: Certificates) -> Check:
    """Compare every curve; those of sweeps are certified with their own configs."""
    ordered = sorted(certified.curves, key=lambda curve: repr(curve.config))
    wrong = []
    for name, group in groupby(ordered, key=lambda curve: repr(curve.config)):
        own = list(group)
        proved = again
        if own[0].config != again.config:
            proved = make_certificates(_given(own[0].config, votes), votes, labels=_source(certified))
        bands = None if own[0].bands is None else own[0].bands.level
        made = curves(proved, own[0].scores.radius, bands=bands)
        if {*curves_text(own).splitlines()} != {*curves_text(made).splitlines()}:
            wrong.append(name)
    if wrong:
        return Check(False, f"curves that the votes do not prove: those of {'; '.join(wrong)}")
    return Check(True, f"{len(ordered)} curves, computed again: all equal")


def _copies(folder: Path, certified: Results) -> Check:
    """Compare the CSV files, which nothing reads back, with the certificates."""
    texts = {
        CURVES_NAME: curves_text(certified.curves),
        LABELS_NAME: labels_text(certified.labels, certified.certificates.noise),
    }
    there = [name for name in texts if (folder / name).is_file()]
    wrong = [name for name in there if read_regular(folder / name) != texts[name].encode()]
    if wrong:
        return Check(False, f"not what the certificates say, though it lies beside them: {', '.join(wrong)}")
    return Check(True, f"{' and '.join(there) or 'no CSV file'} beside them: equal")
