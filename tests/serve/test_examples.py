"""The images that the page offers."""

import pytest
from tests.serve.colours import encode

from multiguard.errors import InvalidInputError
from multiguard.serve.examples import find_examples


def test_folder(tmp_path):
    """The images of a folder by name, without those that cannot be read and without other files."""
    for name, content in {
        "b-c.png": encode(),
        "a.jpg": encode(kind="JPEG"),
        "bad.png": b"x",
        "notes.txt": b"x",
    }.items():
        (tmp_path / name).write_bytes(content)
    found = find_examples(tmp_path, 8)
    assert [example.name for example in found] == ["a", "b c"]
    assert found[1].content == encode()
    assert all(example.thumbnail.startswith("data:image/") for example in found)


def test_no_images(tmp_path):
    """A folder without images is refused."""
    with pytest.raises(InvalidInputError, match="holds no readable image"):
        find_examples(tmp_path, 8)


def test_package_photos():
    """Without a folder the package's photos are offered to models that take photos, and to no others."""
    assert find_examples(None, 32) == ()
    assert {"cat", "coffee"} <= {example.name for example in find_examples(None, 224)}
