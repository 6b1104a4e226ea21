"""A file is there whole or not at all."""

import hashlib

import pytest

from multiguard.io.files import file_checksum, write_atomically


def test_a_reader_of_the_old_file_never_sees_a_part_of_the_new_one(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, lambda file: file.write(b"old"))
    with path.open("rb") as reader:
        write_atomically(path, lambda file: file.write(b"new and longer"))
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new and longer"


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, lambda file: file.write(b"old"))

    def fails(file):
        file.write(b"half of the n")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fails)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_hash_is_sha256(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"some bytes")
    assert file_checksum(path) == hashlib.sha256(b"some bytes").hexdigest()
