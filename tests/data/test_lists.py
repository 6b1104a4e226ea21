"""Lists of lines: what is read, and what could have no end."""

import os

import pytest

from multiguard.data import listed
from multiguard.data.listed import read_lines
from multiguard.errors import DataError


def test_lines_without_blank_ones(tmp_path):
    (tmp_path / "names.txt").write_text("cat\n\n dog \n")
    assert read_lines(tmp_path / "names.txt") == ["cat", "dog"]


def test_what_may_have_no_end_is_refused(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "large").write_text("12345\n")
    monkeypatch.setattr(listed, "_LARGEST_LIST", 5)
    for name in ("pipe", "link", "large"):
        with pytest.raises(DataError, match="a list must be a regular file"):
            read_lines(tmp_path / name)
