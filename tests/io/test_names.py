"""Messages about unknown names."""

import pytest

from multiguard.io import names
from multiguard.io.names import shorten_names, unknown_name


@pytest.mark.parametrize(
    ("given", "hint"),
    [("trian", "did you mean 'train'?"), ("TRAIN", "did you mean 'train'?"), ("xyz", "known: train, val")],
)
def test_nearest_name(given, hint):
    """The nearest known name is suggested, in any case; else all known names."""
    assert unknown_name("split", given, ["train", "val"]) == f"unknown split '{given}': {hint}"


def test_long_list():
    """A long list of names is cut, with their number."""
    assert shorten_names(["a", "b"], most=2) == "a, b"
    assert shorten_names(["a", "b", "c"], most=2) == "a, b, ... (3 in all)"


def test_suggestion_for_long_name(monkeypatch):
    """Names are compared by their beginnings: the comparison of two texts takes the product of their lengths."""
    lengths = []
    monkeypatch.setattr(names, "get_close_matches", lambda word, known, **how: lengths.extend(map(len, [word, *known])))
    assert unknown_name("label", "a" * 10_000, ["b" * 10_000]).startswith("unknown label 'aaa")
    assert max(lengths) <= 200
