"""Generated blocks of a page are between markers; everything outside them is written by people."""

import re
from collections.abc import Mapping

_BLOCK = "<!-- results: {name} -->\n{text}\n<!-- end: {name} -->"
_HEADING = re.compile(r"#+ +(.*)")
_START = re.compile(r"<!-- results: (\S+) -->")
_ANY = re.compile(r"<!-- results: (\S+) -->\n(.*?)\n?<!-- end: \1 -->", re.DOTALL)


def names(page: str) -> list[str]:
    """The blocks that a page has, in order."""
    return list(texts(page))


def texts(page: str) -> dict[str, str]:
    """The text of each block of a page."""
    return {found[1]: found[2] for found in _ANY.finditer(page)}


def headings(page: str) -> dict[str, str]:
    """The nearest heading above each block of a page; a line of a code example is no heading."""
    found: dict[str, str] = {}
    heading, example = "", False
    for line in page.splitlines():
        example ^= line.startswith("```")
        if start := _START.fullmatch(line):
            found[start[1]] = heading
        elif not example and (start := _HEADING.fullmatch(line)):
            heading = start[1]
    return found


def filled(page: str, blocks: Mapping[str, str]) -> str:
    """The page with these blocks replaced, and every other character as it was.

    Args:
        page: The page's text.
        blocks: The text of each block by its name; one that the page does not have is an error.
    """
    known = names(page)
    for name in blocks:
        if name not in known:
            raise ValueError(f"the page has no block {name!r}; it has {', '.join(known)}")

    def block(found: re.Match[str]) -> str:
        name = found[1]
        return _BLOCK.format(name=name, text=blocks[name].strip()) if name in blocks else found[0]

    return _ANY.sub(block, page)
