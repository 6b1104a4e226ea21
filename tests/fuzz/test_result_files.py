"""Votes and certificates from anyone: read intact, or refused; nothing is proved from damaged files."""

import json
import shutil
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from tests.evaluate.attack_cases import top_k_attacks, write_attacks
from tests.evaluate.stored_metadata import forge, load_metadata
from tests.evaluate.votes_cases import KINDS, as_lists, config_of, random_votes, source_of, votes_of_kind
from tests.fuzz.mutations import damaged, estranged, estranged_text, fuzz, read_or_refused

from multiguard.evaluate import (
    CalibrateConfig,
    calibrate,
    certify_votes,
    make_certificates,
    read_attacks,
    read_calibration,
    read_certificates,
)
from multiguard.io.files import file_checksum
from multiguard.io.records import checksum
from multiguard.report import Study, write_page, write_tables
from multiguard.votes import read_votes
from multiguard.votes.folder import read_source

PARQUET = "certificates.parquet"
soaked = pytest.mark.parametrize("examples", [15, pytest.param(1500, marks=pytest.mark.soak)])


@pytest.fixture(scope="module")
def votes(tmp_path_factory):
    """A finished run, its last image failed."""
    folder = tmp_path_factory.mktemp("run") / "votes"
    votes_of_kind(folder, images=5, labels=6, failed={4: "cut short"})
    return folder


@pytest.fixture(scope="module", params=["top-k", "adaptive unlabelled threshold"])
def proved(request, tmp_path_factory):
    """A certificates folder of either rule."""
    home = tmp_path_factory.mktemp("proved")
    found = votes_of_kind(home / "votes", images=5, labels=6, **KINDS[request.param])
    source = {"data": {"name": "digits", "root": None, "seed": 0, "labelled": True}, "command": "x"}
    config = config_of(found, radius_step=0.5)
    certify_votes(config, found, labels=source_of(found), source=source, out=home / "c")
    return home / "c"


def certified_or_refused(folder) -> None:
    """Read the votes and certify them; either may refuse."""
    found = read_or_refused(lambda: read_votes(folder, partial=True))
    if found is not None and len(found):
        read_or_refused(lambda: make_certificates(config_of(found, alpha=0.1), found, labels=source_of(found)))


def copied(folder, target):
    shutil.rmtree(target, ignore_errors=True)
    return shutil.copytree(folder, target)


@soaked
@pytest.mark.parametrize("name", ["manifest.json", "votes-00000.parquet", "votes-00001.parquet"])
def test_damaged_votes(votes, tmp_path, name, examples):
    """A damaged votes folder is refused, or reads as it was written."""
    content, expected = (votes / name).read_bytes(), as_lists(read_votes(votes).provenance)

    def check(data: bytes) -> None:
        place = copied(votes, tmp_path / "v")
        (place / name).write_bytes(data)
        found = read_or_refused(lambda: read_votes(place))
        assert found is None or as_lists(found.provenance) == expected

    fuzz(check, damaged(content).filter(lambda data: data != content), examples)


@soaked
def test_forged_votes(votes, tmp_path, examples):
    """Forged metadata of votes with a valid checksum is read or refused."""
    stored = json.loads((votes / "manifest.json").read_text())

    def check(changed) -> None:
        place = copied(votes, tmp_path / "v")
        if isinstance(changed, dict):
            changed["sha256"] = checksum(changed)
        (place / "manifest.json").write_text(json.dumps(changed))
        certified_or_refused(place)

    fuzz(check, estranged(stored), examples)


@soaked
def test_forged_shards(votes, tmp_path, examples):
    """Forged shards with a valid checksum are read or refused."""
    stored, content = json.loads((votes / "manifest.json").read_text()), (votes / "votes-00000.parquet").read_bytes()

    def check(data: bytes) -> None:
        place = copied(votes, tmp_path / "v")
        (place / "votes-00000.parquet").write_bytes(data)
        stored["shards"][0]["sha256"] = file_checksum(place / "votes-00000.parquet")
        (place / "manifest.json").write_text(json.dumps({**stored, "sha256": checksum(stored)}))
        certified_or_refused(place)

    fuzz(check, damaged(content), examples)


@soaked
def test_forged_shard_metadata(votes, tmp_path, examples):
    """The metadata of shards of an unfinished run are read or refused."""
    begun = {**json.loads((votes / "manifest.json").read_text()), "shards": None}
    folder, table = copied(votes, tmp_path / "v"), pq.read_table(votes / "votes-00000.parquet")
    (folder / "manifest.json").write_text(json.dumps({**begun, "sha256": checksum(begun)}))
    stored = json.loads(table.schema.metadata[b"multiguard"])

    def check(data: bytes) -> None:
        forged = table.replace_schema_metadata({b"multiguard": data})
        pq.write_table(forged, folder / "votes-00000.parquet", row_group_size=1)
        certified_or_refused(folder)

    check(json.dumps(stored).encode())
    assert len(read_votes(folder, partial=True)) == 4, "an unfinished run, and its metadata are intact"
    signed = estranged(stored).map(lambda one: {**one, "sha256": checksum(one)} if isinstance(one, dict) else one)
    fuzz(lambda one: check(json.dumps(one).encode()), signed, examples)
    fuzz(check, estranged_text(stored), examples)


@soaked
def test_damaged_certificates(proved, tmp_path, examples):
    """Damaged certificates are refused: whatever is read is what was written."""
    content, expected = (proved / PARQUET).read_bytes(), read_certificates(proved)

    def check(data: bytes) -> None:
        (tmp_path / PARQUET).write_bytes(data)
        found = read_or_refused(lambda: read_certificates(tmp_path))
        assert found is None or as_lists(replace(found, certificates_hash=expected.certificates_hash)) == as_lists(
            expected
        )

    fuzz(check, damaged(content).filter(lambda data: data != content), examples)


@soaked
def test_forged_metadata(proved, tmp_path, examples):
    """Strange metadata below a checksum that fits is read or refused."""
    stored = load_metadata(proved / PARQUET)

    def check(changed) -> None:
        shutil.copy(proved / PARQUET, tmp_path / PARQUET)
        forge(tmp_path / PARQUET, metadata=changed)
        read_or_refused(lambda: read_certificates(tmp_path))

    fuzz(check, estranged(stored), 2 * examples)


@soaked
def test_damaged_source(tmp_path, examples):
    """A damaged source is read or left out."""
    source = {"data": {"name": "digits"}, "model": {"spec": "os:getcwd"}, "command": "x"}

    def check(data: bytes) -> None:
        (tmp_path / "source.json").write_bytes(data)
        assert isinstance(read_source(tmp_path), dict)

    fuzz(check, estranged_text(source), examples)


@pytest.mark.soak
def test_forged_report(proved, tmp_path):
    """A report on forged certificates is made or refused."""
    stored = load_metadata(proved / PARQUET)

    def check(changed) -> None:
        shutil.copy(proved / PARQUET, tmp_path / PARQUET)
        forge(tmp_path / PARQUET, metadata=changed)
        found = read_or_refused(lambda: read_certificates(tmp_path))
        if found is not None:
            read_or_refused(lambda: write_tables(Study(found), tmp_path / "t"))
            read_or_refused(lambda: write_page(Study(found), tmp_path / "r.html"))

    fuzz(check, estranged(stored), 400)


@soaked
def test_damaged_attacks(tmp_path, examples):
    """A damaged or forged attack is read or refused."""
    write_attacks(tmp_path / "a", top_k_attacks(), certificates_hash="0" * 64, command="x")
    path = tmp_path / "a" / "attack.parquet"
    stored, content = load_metadata(path), path.read_bytes()
    assert len(read_attacks(tmp_path / "a").images) == 2

    def check(changed) -> None:
        path.write_bytes(content)
        forge(path, metadata=changed)
        read_or_refused(lambda: read_attacks(tmp_path / "a"))

    fuzz(check, estranged(stored), examples)

    def check_damage(data: bytes) -> None:
        path.write_bytes(data)
        read_or_refused(lambda: read_attacks(tmp_path / "a"))

    fuzz(check_damage, damaged(content), examples)


@soaked
def test_damaged_calibration(tmp_path, examples):
    """A damaged calibration is refused, and a forged one below a checksum that fits is read or refused."""
    path, votes = tmp_path / "calibration.json", random_votes(tmp_path / "v", images=30, draws=50)
    calibrate(CalibrateConfig(recall=0.1, radius=0, draws=50), [votes], out=path)
    content, found = path.read_bytes(), read_calibration(path)
    stored = json.loads(content)

    def check(data: bytes) -> None:
        path.write_bytes(data)
        assert read_or_refused(lambda: read_calibration(path)) in (None, found)

    def check_forged(changed) -> None:
        if isinstance(changed, dict):
            changed["sha256"] = checksum(changed)
        path.write_text(json.dumps(changed))
        read_or_refused(lambda: read_calibration(path))

    fuzz(check, damaged(content), examples)
    fuzz(check_forged, estranged(stored), 2 * examples)


def test_intact_files(votes, proved, tmp_path):
    """Intact votes and certificates are read."""
    assert len(read_votes(votes)) == 4
    assert len(read_certificates(proved).certificates.ids) == 5
    assert len(random_votes(tmp_path / "v")) == 11
