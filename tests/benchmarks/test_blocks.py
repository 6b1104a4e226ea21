"""Generated blocks of a page are replaced, and nothing else is."""

import pytest
from benchmarks.results import blocks


def test_blocks():
    """A block is replaced and every other character stays."""
    page = "a\n<!-- results: x -->\nold\n<!-- end: x -->\nb\n<!-- results: y -->\nkept\n<!-- end: y -->\n"
    assert blocks.names(page) == ["x", "y"]
    assert blocks.filled(page, {"x": "new | \\1\n"}) == page.replace("old", "new | \\1")
    assert blocks.filled(page, {}) == page
    with pytest.raises(ValueError, match="no block 'z'; it has x, y"):
        blocks.filled(page, {"z": ""})
