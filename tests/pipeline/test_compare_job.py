"""Runs get the names that tell them apart."""

import pytest

from multiguard.errors import InvalidInputError
from multiguard.pipeline.compare_job import CompareJob


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        (["runs/a", "runs/b"], ["a", "b"]),
        (["runs/a/certificates", "runs/b/certificates"], ["a", "b"]),
        (["x/a", "y/a"], ["x/a", "y/a"]),
        (["old=x/a", "y/a"], ["old", "a"]),
        (["runs/a/certificates", "runs/a/certificates-k-4"], ["a", "certificates-k-4"]),
    ],
)
def test_names(runs, names) -> None:
    """A run is named by its folder, by the folder around its certificates, or as it is told."""
    assert list(CompareJob(runs).folders) == names


@pytest.mark.parametrize("runs", [["a", "a"], ["x=a", "x=b"], ["=a", "b"], ["a=", "b"]])
def test_bad_names(runs) -> None:
    """Two runs need two names, and a name needs a folder."""
    with pytest.raises(InvalidInputError):
        _ = CompareJob(runs).folders


def test_folder_with_an_equals_sign(tmp_path, monkeypatch) -> None:
    """A folder that exists is itself, whatever its name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k=4").mkdir()
    assert list(CompareJob(["k=4", "b"]).folders) == ["k=4", "b"]
