"""Each claim, curve and copy of a certificates folder, compared with what its votes prove when certified again."""

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from multiguard.errors import DataError, InvalidInputError, VotesError
from multiguard.evaluate import (
    Certificates,
    CertifyConfig,
    LabelSource,
    Results,
    calibrate,
    curves,
    make_certificates,
    read_calibration,
    read_certificates,
)
from multiguard.evaluate.calibration import CALIBRATION_NAME, Calibration, calibration_of_run
from multiguard.evaluate.results import CURVES_NAME, curves_text, plain_provenance
from multiguard.io.files import read_regular
from multiguard.io.names import shorten_names
from multiguard.models.config import ModelConfig
from multiguard.report import Study, report_files, write_tables
from multiguard.report.page import page_again
from multiguard.verify.config import Check, Progress, VerifyConfig
from multiguard.version import __version__
from multiguard.votes import Votes, read_votes
from multiguard.votes.shards import MANIFEST_NAME


def verify(
    config: VerifyConfig,
    certificates: Path | Mapping[str, Path],
    *,
    votes: Path | None = None,
    calibration: Path | None = None,
    model: ModelConfig | None = None,
    page: Path | None = None,
    progress: Progress | None = None,
) -> Iterator[Check]:
    """Yield each check as it is done, and what is not checked; what cannot be checked at all raises an error.

    Every shard of votes is compared with its checksum, the votes with the checksum in the certificates, and every
    claim, curve and copy with what the votes prove when they are certified again. With a dataset or a model the images
    and the names are compared too, and with a model a sample of the votes is drawn again.

    Args:
        config: The dataset, and which votes are drawn again.
        certificates: A certificates folder, or the folders of a run by the names of its arms, the main one first.
        votes: The votes folder; by default the folder `votes` next to each of them.
        calibration: The calibration that chose the rule, if there is one.
        model: The model to draw votes of the main arm with again; None to draw none.
        page: The page that `report` made of the certificates, its tables next to it; None to compare none.
        progress: Called with what is being done, how much of it is done, and how much there is.
    """
    folders = {"": certificates} if isinstance(certificates, Path) else certificates
    read: dict[str, Results] = {}
    for name, folder in folders.items():
        try:
            read[name] = read_certificates(folder)
        except DataError as error:
            yield Check(False, str(error))
    for name, certified in read.items():
        folder, main = folders[name], name == next(iter(folders))
        yield Check(True, f"{folder}: certificates.parquet is intact, sha256 {certified.certificates_hash}")
        stored = yield from _votes(votes or folder.parent / "votes", certified)
        if stored is not None:
            nearby = folder.parent / CALIBRATION_NAME
            record = calibration or (nearby if main and calibration_of_run(folder, certified) is not None else None)
            if record is not None:
                yield _calibrated(record, stored)
            if "calibration" in certified.source or calibration is not None:  # only a part of the images is certified
                yield _choice(calibration, certified, stored)
                part = certified.certificates
                stored = stored.subset({*part.ids, *(failure.image_id for failure in part.failures)})
            yield from _claims(certified, stored, progress)
            yield _csv(folder, certified)
            yield from _origin(config, folder, certified, stored, model if main else None, progress)
    if page is not None and len(read) == len(folders):
        (name, first), *others = read.items()
        yield from _page_files(page, first, dict(others), calibration_of_run(folders[name], first))
    yield Check(None, "that the config and the sample of images were chosen before the votes were seen")


def _votes(folder: Path, certified: Results) -> Generator[Check, None, Votes | None]:
    """The votes that the certificates were made from; None where they are not in the folder."""
    if not (folder / MANIFEST_NAME).exists():
        raise InvalidInputError(f"{folder} holds no votes to certify again; name their folder with --votes")
    try:
        votes = read_votes(folder)
    except VotesError as error:
        yield Check(False, str(error))
        return None
    if votes.manifest_hash != certified.votes_hash:
        yield Check(False, f"the certificates were not made from the votes in {folder}; --votes names others")
        return None
    yield Check(True, f"{folder}: the votes that the certificates name; the checksum of every shard agrees")
    return votes


def _origin(
    config: VerifyConfig,
    folder: Path,
    certified: Results,
    votes: Votes,
    model: ModelConfig | None,
    progress: Progress | None,
) -> Iterator[Check]:
    """Whether the named model cast the votes on the named images."""
    if config.opens_data or model is not None:
        from multiguard.verify.redraw import Redraw

        again = Redraw(config, folder, certified, votes)
        found = [*again.same_data()]
        yield from found
        if model is not None and not any(check.passed is False for check in found):
            yield from again.same_votes(model, progress)
    run = votes.provenance
    if config.data is None:
        yield Check(None, f"{folder}: whether the images are from {run.dataset}; --data NAME compares with yours")
    if model is None:
        yield Check(None, f"{folder}: whether the model {run.model} casts these votes; --model MODEL draws some again")


def _choice(record: Path | None, certified: Results, votes: Votes) -> Check:
    """Compare the images that are certified with those that had no part in choosing the config."""
    stored, says = certified.certificates, certified.source.get("calibration")
    part = f"{len(stored)} of {len(votes)} images"
    if record is None:
        text = f"{part}: by the record the others calibrated; which they are is not checked without --calibration FILE"
        left_out = says.get("left_out") if isinstance(says, dict) else None
        return Check(len(votes) - len(stored) == left_out, text)
    calibration = read_calibration(record)
    try:
        others = calibration.others(votes)
    except InvalidInputError as error:
        return Check(False, f"{record}: {error}")
    same = list(others.ids) == list(stored.ids) and others.failures == stored.failures
    if not same or calibration.rule != stored.config.rule:
        return Check(False, f"{record} has {calibration.rule} for {len(others)} images, but not what is certified")
    return Check(True, f"{part}: all that had no part in {record}, whose rule is {calibration.rule}")


def _calibrated(record: Path, votes: Votes) -> Check:
    """Calibrate again, if these votes did; the page and the rule come from there."""
    stored = read_calibration(record)
    if stored.votes != (votes.manifest_hash,):
        return Check(None, f"{record}: that it is what its votes, others than these, calibrate")
    votes.image_size = votes.image_size or stored.image_size
    try:
        same = calibrate(stored.config, [votes]) == stored
    except InvalidInputError:
        same = False
    words = "the votes calibrate this, computed again" if same else "not what these votes calibrate"
    return Check(same, f"{record}: {words}")


def _claims(certified: Results, votes: Votes, progress: Progress | None) -> Iterator[Check]:
    """Certify the votes again, with every config that the certificates hold."""
    stored, counted = certified.certificates, None if progress is None else partial(progress, "certifying")
    again = _again(certified, stored.config, votes, counted)
    yield _same_run(certified, votes, again)
    yield _same_claims(stored, again)
    yield _same_curves(certified, votes, again)


def _again(
    certified: Results, config: CertifyConfig, votes: Votes, progress: Callable[[int, int], None] | None = None
) -> Certificates:
    """What the votes prove with a config; adaptive votes decide their number of draws themselves."""
    given = config.replace(draws=None) if votes.adaptive else config
    labels: LabelSource = "truth" if certified.certificates.labelled else "pilot"
    return make_certificates(given, votes, labels=labels, progress=progress)


def _found(wrong: object, said: str, equal: str) -> Check:
    return Check(False, said) if wrong else Check(True, equal)


def _same_run(certified: Results, votes: Votes, again: Certificates) -> Check:
    stored, recorded = certified.certificates, certified.provenance
    names = ("config", "noise", "label_names", "failures")
    wrong = [name for name in names if getattr(stored, name) != getattr(again, name)]
    wrong += [name for name, value in plain_provenance(votes.provenance).items() if recorded.get(name) != value]
    said = f"the certificates record other facts than their votes: {shorten_names(wrong)}"
    return _found(wrong, said, "config, model, dataset, noise and image failures are recorded as in the votes")


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
    equal = f"{len(stored)} images, certified again ({', '.join(stored.methods)}): every claim is equal, bit by bit"
    return _found(wrong, f"the votes prove something else: {shorten_names(wrong, 6)}", equal)


def _same_curves(certified: Results, votes: Votes, again: Certificates) -> Check:
    """Compare every curve; curves of sweeps are certified with their own configs."""
    ordered = sorted(certified.curves, key=lambda curve: repr(curve.config))
    wrong = []
    for name, group in groupby(ordered, key=lambda curve: repr(curve.config)):
        own = list(group)
        proved = again if own[0].config == again.config else _again(certified, own[0].config, votes)
        bands = None if own[0].bands is None else own[0].bands.level
        made = curves(proved, own[0].scores.radius, bands=bands)
        if {*curves_text(own).splitlines()} != {*curves_text(made).splitlines()}:
            wrong.append(name)
    said = f"curves that the votes do not prove: {'; '.join(wrong)}"
    return _found(wrong, said, f"{len(ordered)} curves, computed again: all equal")


def _csv(folder: Path, certified: Results) -> Check:
    """Compare the CSV file, which nothing reads back, with the certificates."""
    path = folder / CURVES_NAME
    if not path.is_file():
        return Check(True, f"there is no {CURVES_NAME} to compare")
    wrong = read_regular(path) != curves_text(certified.curves).encode()
    return _found(wrong, f"{path} is not what the certificates say", f"{CURVES_NAME}: equal to the certificates")


def _page_files(
    page: Path, main: Results, others: Mapping[str, Results], calibration: Calibration | None
) -> Iterator[Check]:
    """Make the page and its tables again from the certificates, and compare every byte; nothing without a page."""
    if not page.is_file():
        return
    page, figures, tables = report_files(page)
    yield _page(page, main, others, calibration)
    yield Check(None, f"{page.name}: its title, its commands and its thumbnails")
    if tables.is_dir():
        yield from _tables(tables, Study(main, others))
    if figures.is_dir():
        yield Check(None, f"{figures.name}: `multiguard report` draws them again")


def _page(page: Path, main: Results, others: Mapping[str, Results], calibration: Calibration | None) -> Check:
    try:
        text = read_regular(page).decode()
        same = text == page_again(text, main, others, calibration)
    except (OSError, ValueError, InvalidInputError) as error:
        return Check(False, f"{page}: {error}")
    made_by = f"or it was made by another version than {__version__}, or by another version of plotly"
    said = f"{page} is not the page of these certificates, {made_by}; `multiguard report` makes it"
    return _found(not same, said, f"{page}: every number and sentence is made from the certificates")


def _tables(folder: Path, study: Study) -> Iterator[Check]:
    with TemporaryDirectory() as scratch:
        made = {path.name: path.read_bytes() for path in write_tables(study, Path(scratch))}
    there = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    wrong = [name for name in there if name in made and read_regular(folder / name) != made[name]]
    said = f"{folder}: not what the certificates say: {', '.join(wrong)}"
    yield _found(wrong, said, f"{folder}: {len(made.keys() & {*there})} tables, made again: equal")
    if others := [name for name in there if name not in made]:
        yield Check(None, f"{folder}: {', '.join(others)}")
