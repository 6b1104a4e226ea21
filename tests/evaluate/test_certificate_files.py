"""Certificates are read as they were written, old or new but never mixed, or refused with the name of the file."""

import csv
import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.evaluate.stored_metadata import edit_metadata, forge, load_metadata
from tests.evaluate.votes_cases import KINDS, as_lists, config_of, random_votes, source_of, votes_of_kind

from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import CertifyConfig, SweepConfig, certify_votes, read_certificates, write_certificates
from multiguard.evaluate.results import curves_text
from multiguard.io.files import file_checksum
from multiguard.version import __version__

PARQUET = "certificates.parquet"
FILES = {PARQUET, "curves.csv", f".{PARQUET}.json"}
OLD = CertifyConfig(k=3, k_prime=2, methods=("joint", "independent"), radius_step=0.25)
NEW = OLD.replace(k=4, k_prime=1)


@pytest.fixture(scope="module")
def votes(tmp_path_factory):
    return random_votes(tmp_path_factory.mktemp("run") / "votes")


@pytest.fixture(scope="module")
def written(votes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    certify_votes(OLD, votes, out=folder)
    return folder


@pytest.fixture
def certified(written, tmp_path):
    """A certificates folder that a test may damage."""
    return shutil.copytree(written, tmp_path / "certificates")


def k_of(folder) -> int:
    return read_certificates(folder).certificates.config.k


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_round_trip(tmp_path, kind) -> None:
    """What is read is what was returned, number for number, failures and sweeps included."""
    votes = votes_of_kind(tmp_path / "votes", failed={2: "gone"}, **KINDS[kind])
    source = {"data": {"name": "digits", "sizes": [1, 2.5, None]}, "model": {}}
    more = {"sweep": SweepConfig(alpha=(0.1,)), "labels": source_of(votes), "source": source, "command": "multiguard"}
    made = certify_votes(config_of(votes), votes, **more, out=tmp_path / "a" / "c")
    found = read_certificates(str(tmp_path / "a" / "c"))
    assert as_lists(found) == as_lists(made)
    assert found.certificates.table.schema == made.certificates.table.schema
    assert (found.source, found.command, found.certified_with) == (source, "multiguard", __version__)
    assert found.votes_hash == file_checksum(tmp_path / "votes" / "manifest.json")
    assert found.certificates_hash == file_checksum(tmp_path / "a" / "c" / PARQUET)
    expected = json.loads(json.dumps(vars(votes.provenance), default=str))
    assert found.provenance == {name: value for name, value in expected.items() if name != "image_ids"}
    assert [failure.reason for failure in found.certificates.failures] == ["gone"]
    assert {path.name for path in (tmp_path / "a" / "c").iterdir()} == FILES


def test_memory(votes, tmp_path, monkeypatch) -> None:
    """Without a folder no file is written, and the results are those of one."""
    monkeypatch.chdir(tmp_path)
    results = certify_votes(OLD, votes)
    assert not list(tmp_path.iterdir())
    stored = write_certificates(results, tmp_path / "c")
    found = read_certificates(tmp_path / "c")
    assert as_lists(found) == as_lists(stored)
    assert as_lists(found) == as_lists(replace(results, certificates_hash=stored.certificates_hash))
    assert results.certificates_hash != certify_votes(NEW, votes).certificates_hash


def test_readable_rows(written, votes) -> None:
    """The table has the documented columns, which any Parquet reader shows."""
    table = pq.read_table(written / PARQUET)
    columns = ["id", "labels", "radii", "label_radii", "predicted", "predicted_hits", "draws", "image_sha256", "bare"]
    assert table.column_names == columns
    row = table.to_pylist()[3]
    assert row["id"] == votes.ids[3]
    assert tuple(row["labels"]) == votes.labels[3]
    assert list(row["radii"]) == ["joint", "independent"]
    assert len(row["radii"]["joint"]) == len(row["label_radii"]) == len(row["predicted"]) == 3


def test_csv(written) -> None:
    """Every number of the CSV file reads back as the number it is."""
    results = read_certificates(written)
    rows = list(csv.DictReader(io.StringIO((written / "curves.csv").read_text())))
    curve = results.curves[0]
    for row, radius, recall, low in zip(
        rows, curve.scores.radius, curve.scores.recall, curve.bands.recall[0], strict=False
    ):
        assert (float(row["R"]), float(row["recall"]), float(row["recall_low"])) == (radius, recall, low)
        assert (row["method"], row["k"], row["k_prime"], row["threshold"]) == ("joint", "3", "2", "")
    assert len(rows) == sum(len(one.scores.radius) for one in results.curves)
    with pytest.raises(InvalidInputError, match="two curves have the same method"):
        curves_text([curve, *results.curves])


def test_same_request(votes, certified, monkeypatch) -> None:
    """The same certificates are found complete; a missing copy is made again."""
    before = (certified / PARQUET).stat().st_mtime_ns
    assert as_lists(certify_votes(OLD, votes, out=certified)) == as_lists(read_certificates(certified))
    assert (certified / PARQUET).stat().st_mtime_ns == before
    (certified / "curves.csv").unlink()
    certify_votes(OLD, votes, out=certified)
    assert {path.name for path in certified.iterdir()} == FILES


def test_replacement_needs_force(certified, votes) -> None:
    """Certificates are replaced only with force, and other files of the folder stay."""
    (certified / "report.html").write_text("mine")
    with pytest.raises(InvalidInputError, match="holds certificates already, made with other settings; --force"):
        certify_votes(NEW, votes, out=certified)
    assert k_of(certified) == 3
    certify_votes(NEW, votes, out=certified, force=True)
    assert k_of(certified) == 4
    assert {path.name for path in certified.iterdir()} == {*FILES, "report.html"}


def edited(path) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


def truncated(path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def emptied(path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [edited, truncated, emptied, lambda path: path.unlink()])
def test_damaged_parquet(certified, harm) -> None:
    """A damaged certificates.parquet is refused with its name, in one line; the CSV file is not read."""
    (certified / "curves.csv").write_text("damaged")
    assert k_of(certified) == 3
    harm(certified / PARQUET)
    with pytest.raises(DataError, match=r"certificates\.parquet") as refusal:
        read_certificates(certified)
    assert "\n" not in str(refusal.value)


def test_flipped_bytes(certified, written) -> None:
    """Whichever byte is flipped, the file is refused, or read as it was written."""
    content, expected = (written / PARQUET).read_bytes(), read_certificates(written)
    for place in np.random.default_rng(0).choice(len(content), 150, replace=False).tolist():
        (certified / PARQUET).write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        try:
            found = read_certificates(certified)
        except DataError:
            continue
        same = replace(found, certificates_hash=expected.certificates_hash)
        assert as_lists(same) == as_lists(expected)


def test_edited_metadata(certified) -> None:
    """Metadata that was edited is refused, such as a failure that is struck out."""
    stored = load_metadata(certified / PARQUET)
    edit_metadata(certified / PARQUET, {**stored, "command": "another"})
    with pytest.raises(DataError, match="its checksum does not match"):
        read_certificates(certified)
    forge(certified / PARQUET, metadata={**stored, "version": 1})
    with pytest.raises(DataError, match=r"version 1; .* version 11"):
        read_certificates(certified)
    forge(certified / PARQUET, metadata={**stored, "config": {**stored["config"], "k": 99}})
    with pytest.raises(DataError, match="k must be"):
        read_certificates(certified)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("radii", {"joint": [0.1, 0.2, 0.3], "independent": [0.3, 0.2, 0.1]}),
        ("radii", {"joint": [0.3, 0.2], "independent": [0.3, 0.2, 0.1]}),
        ("label_radii", [0.1, -0.2, 0.3]),
        ("label_radii", [0.1, float("nan"), 0.3]),
        ("draws", 201),
        ("predicted_hits", [300, 2, 1]),
        ("predicted_hits", [2, 1, 0]),
        ("labels", [0, 1, 20]),
        ("labels", [0, 1, None]),
        ("labels", None),
        ("bare", [0, 1, 20]),
        ("id", "image-2"),
    ],
)
def test_forged_claims(certified, column, value) -> None:
    """Claims that no proof has the form of are refused, even below a checksum that fits."""
    table = pq.read_table(certified / PARQUET)
    rows = table.to_pylist()
    rows[3][column] = rows[2]["id"] if column == "id" else value
    forge(certified / PARQUET, table=pa.Table.from_pylist(rows, schema=table.schema))
    with pytest.raises(DataError, match=r"certificates\.parquet cannot be used"):
        read_certificates(certified)


def test_refusals(tmp_path, votes) -> None:
    """A folder without certificates, a source that is no JSON, and two labels of one name are refused."""
    with pytest.raises(DataError, match=r"not a certificates folder: it has no certificates\.parquet"):
        read_certificates(tmp_path)
    with pytest.raises(InvalidInputError, match="plain JSON"):
        certify_votes(OLD, votes, source={"data": float("nan")}, out=tmp_path / "c")
    names = ("cat", "cat", *(f"label {i}" for i in range(18)))
    twice = random_votes(tmp_path / "votes", label_names=names)
    with pytest.raises(InvalidInputError, match="2 labels are named 'cat'"):
        certify_votes(OLD, twice, out=tmp_path / "d")
    assert not (tmp_path / "d" / PARQUET).exists()


def test_too_many_curves(certified, votes, monkeypatch) -> None:
    """Metadata that no Parquet reader would accept is refused before anything is replaced."""
    monkeypatch.setattr("multiguard.evaluate.results._MOST_METADATA", 1000)
    with pytest.raises(InvalidInputError, match="use fewer radii"):
        certify_votes(NEW, votes, out=certified, force=True)
    assert k_of(certified) == 3
