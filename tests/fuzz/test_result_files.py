"""Votes and certificates from anyone: read intact, or refused; nothing is proved from damaged files."""

import hashlib
import json
import shutil

import pyarrow.parquet as pq
import pytest
from multiguard.results.table_file import _MARK as MARK
from tests.evaluate.attack_cases import top_k_attacks
from tests.evaluate.votes_cases import KINDS, as_lists, config_of, random_votes, source_of, votes_of_kind
from tests.fuzz.mutations import damaged, estranged, estranged_text, fuzz, read_or_refused
from tests.results.stored_metadata import forge, load_metadata

from multiguard.certify.noise import Gaussian
from multiguard.evaluate import (
    curves,
    make_certificates,
    radius_grid,
    read_attacks,
    read_certificates,
    read_curves,
    write_attacks,
    write_certificates,
)
from multiguard.io.files import file_checksum
from multiguard.io.records import checksum
from multiguard.report import Study, write_page, write_tables
from multiguard.votes import read_votes
from multiguard.votes.folder import read_source

GRID = radius_grid(Gaussian(0.5), step=0.5)
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
    certified = make_certificates(config_of(found), found, labels=source_of(found))
    source = {"data": {"name": "digits", "root": None, "seed": 0, "labelled": True}, "command": "x"}
    write_certificates(home / "c", certified, curves(certified, GRID), radius=GRID, votes=found, source=source)
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
    content, expected = (proved / PARQUET).read_bytes(), as_lists(read_certificates(proved))

    def check(data: bytes) -> None:
        (tmp_path / PARQUET).write_bytes(data)
        found = read_or_refused(lambda: read_certificates(tmp_path))
        assert found is None or as_lists(found) == expected

    fuzz(check, damaged(content).filter(lambda data: data != content), examples)


@soaked
def test_damaged_pages(proved, tmp_path, examples):
    """A file that was damaged before its checksum was made is read or refused, and does not end the process."""
    content = (proved / PARQUET).read_bytes()
    fuzz(lambda data: refuse_or_read(tmp_path, data, read_certificates), damaged(content), examples)


def refuse_or_read(folder, data: bytes, read, name: str = PARQUET):
    """What a reader makes of bytes whose checksum a forger has put right, where there still is one."""
    start = data.rfind(MARK) + len(MARK)
    blank = data[:start] + b"0" * 64 + data[start + 64 :]
    digest = hashlib.sha256(blank).hexdigest().encode()
    (folder / name).write_bytes(blank[:start] + digest + blank[start + 64 :] if data.count(MARK) == 1 else data)
    return read_or_refused(lambda: read(folder))


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
def test_forged_curves(proved, tmp_path, examples):
    """Damaged curves are read or refused, in their own file and in the metadata."""
    stored, content = load_metadata(proved / PARQUET), (proved / "curves.csv").read_bytes()

    def check(data: bytes) -> None:
        (tmp_path / "curves.csv").write_bytes(data)
        read_or_refused(lambda: read_curves(tmp_path / "curves.csv"))
        shutil.copy(proved / PARQUET, tmp_path / PARQUET)
        forge(tmp_path / PARQUET, metadata={**stored, "curves": data.decode(errors="replace")})
        read_or_refused(lambda: read_certificates(tmp_path))

    fuzz(check, damaged(content), examples)


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
    write_attacks(tmp_path / "a", top_k_attacks(), certificates_hash="0" * 64, provenance={}, command="x")
    path, name = tmp_path / "a" / "attack.parquet", "attack.parquet"
    stored, content = load_metadata(path), path.read_bytes()
    assert len(read_attacks(tmp_path / "a").attacks.images) == 2

    def check(changed) -> None:
        path.write_bytes(content)
        forge(path, metadata=changed)
        read_or_refused(lambda: read_attacks(tmp_path / "a"))

    fuzz(check, estranged(stored), examples)
    fuzz(lambda data: refuse_or_read(tmp_path, data, read_attacks, name), damaged(content), examples)


def test_intact_files(votes, proved, tmp_path):
    """Intact votes and certificates are read."""
    assert len(read_votes(votes)) == 4
    assert len(read_certificates(proved).certificates.ids) == 5
    assert len(random_votes(tmp_path / "v")) == 11
