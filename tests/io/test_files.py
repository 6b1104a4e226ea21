"""Files are there completely or not at all."""

import hashlib

import pytest

from multiguard.errors import InvalidInputError
from multiguard.io.files import (
    file_checksum,
    files_checksum,
    open_parquet,
    remove_partial_files,
    require_folder,
    write_atomically,
)


def test_atomic_replacement(tmp_path):
    """A reader of the old file never sees a part of the new one."""
    path = tmp_path / "file"
    write_atomically(path, lambda file: file.write(b"old"))
    with path.open("rb") as reader:
        write_atomically(path, lambda file: file.write(b"new and longer"))
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new and longer"


def test_failed_write(tmp_path):
    """A failure leaves the old file and nothing else, and names the file."""
    path = tmp_path / "file"
    write_atomically(path, lambda file: file.write(b"old"))

    def fails(file):
        file.write(b"half of the n")
        raise OSError(28, "disk full")

    with pytest.raises(OSError, match="disk full") as error:
        write_atomically(path, fails)
    assert error.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_partial_files(tmp_path):
    """Only the partial files of our own names are removed."""
    ours, other, plain = tmp_path / ".a.json.x1.part", tmp_path / ".b.json.x1.part", tmp_path / "a.json"
    for path in (ours, other, plain):
        path.touch()
    remove_partial_files(tmp_path, lambda name: name == "a.json")
    assert sorted(tmp_path.iterdir()) == [other, plain]
    remove_partial_files(tmp_path / "missing", lambda name: True)


def test_checksums(tmp_path):
    """A checksum is the sha256; that of several files changes with their names, contents and order."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"some bytes")
    two.write_bytes(b"some bytes")
    assert file_checksum(one) == hashlib.sha256(b"some bytes").hexdigest()
    sums = {files_checksum([one, two]), files_checksum([two, one]), files_checksum([one])}
    two.write_bytes(b"other bytes")
    assert len(sums | {files_checksum([one, two])}) == 4


def test_folder_that_cannot_be_written(tmp_path):
    """A file where the folder should be is refused."""
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="no folder that can be written to"):
        require_folder(tmp_path / "file" / "below")


def test_parquet_that_claims_too_much(tmp_path):
    """A footer cannot claim more rows than the file has bytes."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"null": pa.nulls(100_000)}), path)
    with pytest.raises(ValueError, match="it claims 100,000 rows"):
        open_parquet(path.read_bytes())
