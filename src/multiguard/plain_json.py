"""JSON from files that anyone may have written: one meaning or none."""

import json
import re
from collections.abc import Iterable
from typing import Any

_HALF_A_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(content: bytes | str) -> Any:
    """The value that the text stands for; a text that two readers may take differently raises `ValueError`.

    So do bytes that are no UTF-8, a key that stands twice in one object, half of a character (a lone surrogate), which
    no file or page can hold, and nesting too deep to be read.
    """
    text = content if isinstance(content, str) else content.decode("utf-8")
    try:
        found = json.loads(text, object_pairs_hook=_each_once)
        if _HALF_A_CHARACTER.search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a text in it holds half of a character") from None
    return found


def _each_once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands twice")
        found[key] = value
    return found
