"""Attacks are read as they were written, or refused with the name of the file."""

from dataclasses import fields, replace

import pytest
from tests.evaluate.attack_cases import threshold_attacks, top_k_attacks, write_attacks
from tests.evaluate.stored_metadata import edit_metadata, forge, load_metadata
from tests.evaluate.votes_cases import as_lists

from multiguard.errors import DataError, InvalidInputError
from multiguard.evaluate import read_attacks

PARQUET = "attack.parquet"


@pytest.mark.parametrize("case", [top_k_attacks, threshold_attacks])
def test_round_trip(case, tmp_path):
    """Everything reads back exactly, and is replaced only with force."""
    attacks = case()
    write_attacks(tmp_path, attacks, certificates_hash="abc", command="multiguard attack x")
    found = read_attacks(tmp_path)
    assert (found.certificates_hash, found.command) == ("abc", "multiguard attack x")
    same = replace(found, certificates_hash="", command=None)
    for field in fields(attacks):
        assert as_lists(getattr(same, field.name)) == as_lists(getattr(attacks, field.name)), field.name
    assert found.config == attacks.config
    assert {path.name for path in tmp_path.iterdir()} == {PARQUET, f".{PARQUET}.json"}
    with pytest.raises(InvalidInputError, match="holds an attack already"):
        write_attacks(tmp_path, attacks, certificates_hash="abc")
    write_attacks(tmp_path, attacks, certificates_hash="new", force=True)
    assert read_attacks(tmp_path).certificates_hash == "new"


@pytest.fixture
def folder(tmp_path):
    write_attacks(tmp_path, top_k_attacks(), certificates_hash="abc")
    return tmp_path


def refused(folder, message):
    with pytest.raises(DataError, match=message) as refusal:
        read_attacks(folder)
    assert PARQUET in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_damaged_file(folder):
    """A file that is cut, edited, swapped or gone is refused with its name."""
    path = folder / PARQUET
    content, metadata = path.read_bytes(), load_metadata(path)
    path.write_bytes(content[:-9])
    refused(folder, "cannot be used.*attack again")
    path.write_bytes(content)
    edit_metadata(path, {**metadata, "beta": 0.5})
    refused(folder, "its checksum does not match")
    path.unlink()
    refused(folder, r"not an attack folder: it has no attack\.parquet")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version 99; .* version 5"),
        ({"beta": "0.5"}, "beta"),
        ({"methods": ["cohen's"]}, "unknown method"),
        ({"config": {"alpha": 0.001, "draws": 100, "k": 9, "k_prime": 1}}, "k must"),
        ({"label_names": ["cat", "dog"]}, "another label"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_forged_metadata(folder, change, message):
    """Metadata that does not fit is refused, even below a checksum that fits."""
    forge(folder / PARQUET, metadata={**load_metadata(folder / PARQUET), **change})
    refused(folder, message)
