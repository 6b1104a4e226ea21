"""Generated blocks of a page are between markers; everything outside them is written by people.

The first marker names the block, and the commit of the code that made it where that is known.
"""

import re
import textwrap
from collections.abc import Mapping

_WIDTH = 180
_BLOCK = "<!-- results: {name}{at} -->\n{text}\n<!-- end: {name} -->"
_HEADING = re.compile(r"#+ +(.*)")
_START = re.compile(r"<!-- results: (\S+)(?: at (\w+))? -->")
_ANY = re.compile(_START.pattern + r"\n(.*?)\n?<!-- end: \1 -->", re.DOTALL)


def names(page: str) -> list[str]:
    """The blocks that a page has, in order."""
    return list(texts(page))


def texts(page: str) -> dict[str, str]:
    """The text of each block of a page."""
    return {found[1]: found[3] for found in _ANY.finditer(page)}


def commits(page: str) -> dict[str, list[str]]:
    """For each commit that blocks of a page name, the headings under which they stand, in order.

    The heading of a block is the nearest above it; a line of a code example is no heading.
    """
    found: dict[str, list[str]] = {}
    heading, example = "", False
    for line in page.splitlines():
        example ^= line.startswith("```")
        if (start := _START.fullmatch(line)) and start[2]:
            found.setdefault(start[2], []).append(heading)
        elif not example and (start := _HEADING.fullmatch(line)):
            heading = start[1]
    return {commit: list(dict.fromkeys(own)) for commit, own in found.items()}


def filled(page: str, blocks: Mapping[str, str], commit: str | None = None) -> str:
    """The page with these blocks replaced, and every other character as it was.

    Args:
        page: The page's text.
        blocks: The text of each block by its name; one that the page does not have is an error.
        commit: That of the code that made them; None to name none.
    """
    known = names(page)
    for name in blocks:
        if name not in known:
            raise ValueError(f"the page has no block {name!r}; it has {', '.join(known)}")

    def block(found: re.Match[str]) -> str:
        name = found[1]
        at = "" if commit is None else f" at {commit}"
        return _BLOCK.format(name=name, at=at, text=_wrapped(blocks[name].strip())) if name in blocks else found[0]

    return _ANY.sub(block, page)


def _wrapped(text: str) -> str:
    """Prose in lines of a page's width; tables and images as they are."""
    plain = [
        line
        if line.startswith(("|", "!"))
        else textwrap.fill(line, _WIDTH, break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    ]
    return "\n".join(plain)
