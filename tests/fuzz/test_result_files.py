"""Votes and certificates from anyone: read intact, or refused; nothing is proved from damaged files."""

import json
import shutil

import pytest
from tests.attack.attack_cases import top_k_attacks
from tests.evaluate.votes_cases import KINDS, as_lists, random_votes, setting_of, source_of, votes_of_kind
from tests.fuzz.mutations import damaged, estranged, estranged_text, fuzz, read_or_refused

from multiguard.evaluate import certify_votes, curves, radius_grid
from multiguard.io.files import file_checksum
from multiguard.io.records import checksum
from multiguard.pipeline.certify_job import read_source
from multiguard.report import Study, write_page, write_tables
from multiguard.results import read_attacks, read_certificates, write_attacks, write_certificates
from multiguard.votes import read_votes

GRID = radius_grid(0.5, step=0.5)
soaked = pytest.mark.parametrize("examples", [25, pytest.param(1500, marks=pytest.mark.soak)])


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
    certified = certify_votes(found, setting_of(found), labels=source_of(found))
    source = {"data": {"data": "digits", "root": None, "seed": 0, "options": {}, "labelled": True}, "command": "x"}
    write_certificates(home / "c", certified, curves(certified, GRID), radius=GRID, votes=found, source=source)
    return home / "c"


def certified_or_refused(folder) -> None:
    """Read the votes and certify them; either may refuse."""
    found = read_or_refused(lambda: read_votes(folder, partial=True))
    if found is not None and len(found):
        read_or_refused(lambda: certify_votes(found, setting_of(found, alpha=0.1), labels=source_of(found)))


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
        stored["shards"]["0"]["sha256"] = file_checksum(place / "votes-00000.parquet")
        (place / "manifest.json").write_text(json.dumps({**stored, "sha256": checksum(stored)}))
        certified_or_refused(place)

    fuzz(check, damaged(content), examples)


@soaked
def test_forged_entries(votes, tmp_path, examples):
    """Shard entries of an unfinished run are read or refused."""
    stored = json.loads((votes / "manifest.json").read_text())
    begun = {**stored, "shards": None}
    run = checksum({name: stored[name] for name in ("provenance", "shard_images")})
    head = {"format": "multiguard-votes-shard", "version": stored["version"], "run": run}
    entry = {**head, "shard": stored["shards"]["0"]}

    def check(data: bytes) -> None:
        place = copied(votes, tmp_path / "v")
        (place / "manifest.json").write_text(json.dumps({**begun, "sha256": checksum(begun)}))
        (place / "votes-00000.json").write_bytes(data)
        certified_or_refused(place)

    sealed = estranged(entry).map(lambda one: {**one, "sha256": checksum(one)} if isinstance(one, dict) else one)
    fuzz(lambda one: check(json.dumps(one).encode()), sealed, examples)
    fuzz(check, estranged_text({**entry, "sha256": checksum(entry)}), examples)


@soaked
@pytest.mark.parametrize("name", ["certificates.json", "certificates.parquet", "curves.csv", "labels.csv"])
def test_damaged_certificates(proved, tmp_path, name, examples):
    """A damaged certificates folder is refused, or reads as it was written."""
    content, expected = (proved / name).read_bytes(), as_lists(read_certificates(proved).certificates)

    def check(data: bytes) -> None:
        place = copied(proved, tmp_path / "c")
        (place / name).write_bytes(data)
        found = read_or_refused(lambda: read_certificates(place))
        assert found is None or as_lists(found.certificates) == expected

    fuzz(check, damaged(content).filter(lambda data: data != content), examples // 2)


@soaked
@pytest.mark.parametrize("name", ["certificates.parquet", "curves.csv", "labels.csv"])
def test_forged_certificate_files(proved, tmp_path, name, examples):
    """Forged files of certificates with a valid checksum are read or refused."""
    content, stored = (proved / name).read_bytes(), json.loads((proved / "certificates.json").read_text())

    def check(data: bytes) -> None:
        place = copied(proved, tmp_path / "c")
        (place / name).write_bytes(data)
        stored["files"][name] = file_checksum(place / name)
        (place / "certificates.json").write_text(json.dumps({**stored, "sha256": checksum(stored)}))
        read_or_refused(lambda: read_certificates(place))

    fuzz(check, damaged(content), examples)


@soaked
def test_forged_metadata(proved, tmp_path, examples):
    """Forged metadata of certificates with a valid checksum is read or refused."""
    stored = json.loads((proved / "certificates.json").read_text())

    def check(changed) -> None:
        place = copied(proved, tmp_path / "c")
        if isinstance(changed, dict):
            changed["sha256"] = checksum(changed)
        (place / "certificates.json").write_text(json.dumps(changed))
        read_or_refused(lambda: read_certificates(place))

    fuzz(check, estranged(stored), 3 * examples)


@soaked
def test_damaged_source(tmp_path, examples):
    """A damaged source is read or left out."""
    said = {"data": {"data": "digits", "options": {}}, "model": {"spec": "os:getcwd"}, "command": "x"}

    def check(data: bytes) -> None:
        (tmp_path / "source.json").write_bytes(data)
        assert isinstance(read_source(tmp_path), dict)

    fuzz(check, estranged_text(said), examples)


@pytest.mark.soak
def test_forged_report(proved, tmp_path):
    """A report on forged certificates is made or refused."""
    stored = json.loads((proved / "certificates.json").read_text())

    def check(changed) -> None:
        place = copied(proved, tmp_path / "c")
        if isinstance(changed, dict):
            changed["sha256"] = checksum(changed)
        (place / "certificates.json").write_text(json.dumps(changed))
        found = read_or_refused(lambda: read_certificates(place))
        if found is not None:
            read_or_refused(lambda: write_tables(Study(found), tmp_path / "t"))
            read_or_refused(lambda: write_page(Study(found), tmp_path / "r.html"))

    fuzz(check, estranged(stored), 400)


@soaked
@pytest.mark.parametrize("name", ["attack.json", "attack.parquet"])
def test_damaged_attacks(tmp_path, name, examples):
    """Damaged or forged attacks are read or refused."""
    write_attacks(tmp_path / "a", top_k_attacks(), certificates_hash="0" * 64, provenance={}, command="x")
    stored, content = json.loads((tmp_path / "a" / "attack.json").read_text()), (tmp_path / "a" / name).read_bytes()
    assert len(read_attacks(tmp_path / "a").attacks.images) == 2

    def check(data) -> None:
        place, said = copied(tmp_path / "a", tmp_path / "b"), data
        if name == "attack.parquet":
            (place / name).write_bytes(data)
            said = {**stored, "files": {name: file_checksum(place / name)}}
        sealed = {**said, "sha256": checksum(said)} if isinstance(said, dict) else said
        (place / "attack.json").write_text(json.dumps(sealed))
        read_or_refused(lambda: read_attacks(place))

    fuzz(check, damaged(content) if name == "attack.parquet" else estranged(stored), examples)


def test_intact_files(votes, proved, tmp_path):
    """Intact votes and certificates are read."""
    assert len(read_votes(votes)) == 4
    assert len(read_certificates(proved).certificates.ids) == 5
    assert len(random_votes(tmp_path / "v")) == 11
