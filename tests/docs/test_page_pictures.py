"""Pictures and outputs that are made from the built-in model are those of the model and the code that are here."""

import pytest
from benchmarks.pictures import CODE, STAMP, path, stamp

from multiguard.models.spec import DEFAULT_MODEL

LARGEST = 2_000_000  # bytes


@pytest.mark.parametrize("name", CODE)
def test_stamp(name):
    """The file names the default model and the hashes of its weights and of the code; it is small."""
    content = path(name).read_bytes()
    found = STAMP.search(content.decode("latin-1"))
    assert found, f"{name} names no model"
    again = f"stale: run `python -m benchmarks.pictures --only {name}`"
    assert found[0] == stamp(name, DEFAULT_MODEL), again
    assert len(content) < LARGEST
