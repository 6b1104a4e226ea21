"""Lists of names: what is read, and what is refused because it may never end."""

import os

import pytest

from multiguard.errors import DataError
from multiguard.io import files
from multiguard.io.files import read_lines


def test_read_lines(tmp_path):
    """Blank lines are left out."""
    (tmp_path / "names.txt").write_text("cat\n\n dog \n")
    assert read_lines(tmp_path / "names.txt") == ["cat", "dog"]


def test_list_without_end(tmp_path, monkeypatch):
    """A pipe, a device and a file that is too large are refused."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "large").write_text("12345\n")
    monkeypatch.setattr(files, "_MOST_LIST", 5)
    for name, reason in (
        ("pipe", "not a regular"),
        ("link", "not a regular"),
        ("large", "6 bytes are more than the 5"),
    ):
        with pytest.raises(DataError, match=reason):
            read_lines(tmp_path / name)
