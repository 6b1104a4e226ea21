"""An audit of certificates: everything that can be computed again is, and compared bit by bit with what is stored."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from multiguard.errors import DataError, InvalidInputError, VotesError
from multiguard.evaluate import Certificates, CertifyConfig, Curve, LabelSource, certify_votes, curves
from multiguard.io.files import file_checksum
from multiguard.io.names import shorten_names
from multiguard.io.records import decode_json, encode_json
from multiguard.models.config import ModelConfig
from multiguard.pipeline.verify_config import VerifyConfig
from multiguard.results import Results, read_certificates, read_tuned
from multiguard.results.certificate_files import CURVES_NAME, LABELS_NAME
from multiguard.results.certificate_table import certificates_table
from multiguard.results.curve_files import curves_text, write_curves, write_labels
from multiguard.results.signature_file import read_public_key, read_signature
from multiguard.votes import Votes, read_votes
from multiguard.votes.shards import MANIFEST_NAME

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class VerifyJob:
    """Which certificates to verify, and against what."""

    certificates: Path  # a folder, as votes
    votes: Path | None = None  # None for the folder `votes` beside the certificates
    model: ModelConfig | None = None  # the model to draw votes with again; None to draw none
    part: VerifyConfig = field(default_factory=VerifyConfig)
    public_key: Path | None = None  # whose signature is required; None for nobody's
    tuned: Path | None = None  # the record of `tune` that the certificates were made with; None if it is not at hand


@dataclass(frozen=True)
class Check:
    """One thing that was compared."""

    passed: bool
    text: str
    certificates_hash: str | None = None  # the sha256 of certificates.parquet, with the check that it can be read


def verify(job: VerifyJob, progress: Progress | None = None) -> Iterator[Check]:
    """Yield each check as it is done; what cannot be checked at all raises an error.

    The certificates and every shard of votes are compared with their checksums, the votes with the checksum in the
    certificates, and every claim, curve and copy with what the votes prove when they are certified again.
    """
    try:
        certified = read_certificates(job.certificates)
    except DataError as error:
        yield Check(False, str(error))
        return
    yield Check(True, f"{job.certificates}: the checksum of the file agrees", certified.certificates_hash)
    yield from _signature(job, certified)
    folder = job.votes or job.certificates.parent / "votes"
    if not (folder / MANIFEST_NAME).exists():
        raise InvalidInputError(f"{folder} holds no votes to certify again; name their folder with --votes")
    try:
        votes = read_votes(folder)
    except VotesError as error:
        yield Check(False, str(error))
        return
    if votes.manifest_hash != certified.votes_hash:
        yield Check(False, f"the certificates were not made from the votes in {folder}; --votes names others")
        return
    yield Check(True, f"{folder}: the votes that the certificates name; the checksum of every shard agrees")
    stored = certified.certificates
    if "tuned" in certified.source or job.tuned is not None:
        yield _choice(job.tuned, certified, votes)
        votes = votes.subset({*stored.ids, *(failure.image_id for failure in stored.failures)})
    yield from _claims(certified, votes, progress)
    yield _copies(job.certificates, certified)
    if job.model is not None:
        from multiguard.pipeline.redraw import redraw

        yield from redraw(job.certificates, certified, votes, job.model, job.part, progress)


def _signature(job: VerifyJob, certified: Results) -> Iterator[Check]:
    signature = read_signature(job.certificates)
    required = None if job.public_key is None else read_public_key(job.public_key)
    if signature is None:
        if required is not None:
            yield Check(False, "the certificates are not signed")
        return
    if signature.certificates_sha256 != certified.certificates_hash:
        yield Check(False, "the signature is of other certificates")
    elif required is not None and signature.public_key != required:
        yield Check(False, f"the certificates are signed by another key, {signature.public_key}")
    elif not signature.holds():
        yield Check(False, "the signature is forged or damaged")
    else:
        whose = f"--public-key {job.public_key}" if required else f"the key {signature.public_key}; --public-key FILE"
        yield Check(True, f"signed by {whose}" + ("" if required else " checks whose it is"))


def _choice(record: Path | None, certified: Results, votes: Votes) -> Check:
    """Compare the images that are certified with those that had no part in choosing the config."""
    stored, says = certified.certificates, certified.source.get("tuned")
    part = f"{len(stored.ids)} of {len(votes)} images"
    if record is None:
        text = f"{part}: by the record the others chose the config; which they are is not checked without --tuned FILE"
        left_out = says.get("left_out") if isinstance(says, dict) else None
        return Check(len(votes) - len(stored.ids) == left_out, text)
    tuned = read_tuned(record)
    try:
        others = tuned.others(votes)
    except InvalidInputError as error:
        return Check(False, f"{record}: {error}")
    if ([*others.ids], others.failures, tuned.best.rule) != ([*stored.ids], stored.failures, stored.config.rule):
        return Check(False, f"{record} chose {tuned.best.rule} for {len(others)} images, but not what is certified")
    return Check(True, f"{part}: all that had no part in the choice of {tuned.best.rule} by {record}")


def _claims(certified: Results, votes: Votes, progress: Progress | None) -> Iterator[Check]:
    """Certify the votes again, with every config that the certificates hold."""
    stored = certified.certificates
    source: LabelSource = "truth" if stored.labelled else "pilot"
    counted = None if progress is None else lambda done, total: progress("certifying", done, total)
    again = certify_votes(
        votes, _requested(stored.config, votes), methods=stored.methods, labels=source, progress=counted
    )
    yield _same_run(certified, votes, again)
    yield from _same_claims(stored, again)
    yield _same_curves(certified, votes, again, source)


def _requested(config: CertifyConfig, votes: Votes) -> CertifyConfig:
    """The config as it was given: adaptive votes decide their number of draws themselves."""
    return replace(config, n=None) if votes.adaptive else config


def _same_run(certified: Results, votes: Votes, again: Certificates) -> Check:
    stored, recorded = certified.certificates, certified.provenance
    run = decode_json(encode_json({**vars(votes.provenance), "image_ids": []}), dict[str, Any])
    facts = ("config", "noise", "label_names", "failures")
    wrong = [name for name in facts if getattr(stored, name) != getattr(again, name)]
    wrong += [name for name, value in run.items() if name != "image_ids" and recorded.get(name) != value]
    if wrong:
        return Check(False, f"the certificates record other facts than their votes: {shorten_names(wrong)}")
    return Check(True, "config, model, dataset, noise and image failures are recorded as in the votes")


def _same_claims(stored: Certificates, again: Certificates) -> Iterator[Check]:
    """Compare every number of every image, to the last bit."""
    if stored.ids != again.ids:
        yield Check(False, "the certificates are of other images than the votes")
        return
    wrong = [
        f"{name} ({column})"
        for part, other in zip(again.parts(), stored.parts(), strict=True)
        for ours, theirs in [(certificates_table(part), certificates_table(other))]
        for column in ours.column_names
        if not ours.column(column).equals(theirs.column(column))
        for name, new, old in zip(part.ids, ours.column(column), theirs.column(column), strict=True)
        if repr(new.as_py()) != repr(old.as_py())
    ]
    if wrong:
        yield Check(False, f"the votes prove something else: {shorten_names(wrong, 6)}")
    else:
        methods = ", ".join(stored.methods)
        yield Check(True, f"{len(stored.ids)} images, certified again ({methods}): every claim is equal, bit by bit")


def _same_curves(certified: Results, votes: Votes, again: Certificates, source: LabelSource) -> Check:
    """Compare every curve; those of sweeps are certified with their own configs."""
    ordered = sorted(certified.curves, key=lambda curve: repr(curve.config))
    wrong = []
    for name, group in groupby(ordered, key=lambda curve: repr(curve.config)):
        own = list(group)
        proved = again
        if own[0].config != certified.certificates.config:
            methods = tuple(dict.fromkeys(curve.method for curve in own))
            proved = certify_votes(votes, _requested(own[0].config, votes), methods=methods, labels=source)
        if _curve_lines(own) != _curve_lines(_curves_like(own[0], proved)):
            wrong.append(name)
    if wrong:
        return Check(False, f"curves that the votes do not prove: those of {'; '.join(wrong)}")
    return Check(True, f"{len(ordered)} curves, computed again: all equal")


def _curves_like(first: Curve, proved: Certificates) -> list[Curve]:
    bands = first.bands
    if bands is None:
        return curves(proved, first.scores.radius)
    return curves(proved, first.scores.radius, bands=bands.level)


def _curve_lines(lines: list[Curve]) -> set[str]:
    return {*curves_text(lines).splitlines()}


def _copies(folder: Path, certified: Results) -> Check:
    """Compare the CSV files, which nothing reads back, with the certificates."""
    with TemporaryDirectory() as temporary:
        made = Path(temporary)
        write_curves(made / CURVES_NAME, certified.curves)
        write_labels(made / LABELS_NAME, certified.labels, certified.certificates.noise)
        there = [name for name in (CURVES_NAME, LABELS_NAME) if (folder / name).is_file()]
        wrong = [name for name in there if file_checksum(folder / name) != file_checksum(made / name)]
    if wrong:
        return Check(False, f"not what the certificates say, though it lies beside them: {', '.join(wrong)}")
    return Check(True, f"{' and '.join(there) or 'no CSV file'} beside them: equal")
