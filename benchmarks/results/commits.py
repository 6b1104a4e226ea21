"""The commit of each part of docs/results.md: what is not made again keeps its text, its commit and its votes."""

import re
from collections.abc import Collection, Mapping, Sequence

from benchmarks.results import blocks
from benchmarks.results.markdown_tables import markdown, table_rows

Parts = Mapping[str, Sequence[str]]  # for each commit the headings of its parts, in the order of the page
_NO_PART = re.compile(r"made|votes|wrong-claims|limit|digits-.*")  # blocks that are not of the evidence alone
_UNKNOWN = "unknown"


def page_parts(page: str, made: Collection[str], commit: str) -> Parts:
    """The commits of the page's parts, the present one first.

    Args:
        page: The page as it is. Where its block `made` lists a heading at several commits, those parts of the heading
            that are not made now stay at all of them; a heading that it does not list is of an unknown commit.
        made: The blocks that are made now.
        commit: Their commit.
    """
    places = {name: heading for name, heading in blocks.headings(page).items() if not _NO_PART.fullmatch(name)}
    kept = {heading for name, heading in places.items() if name not in made}
    parts = {commit: {heading for name, heading in places.items() if name in made}}
    listed = {old: set(headings.split("; ")) for old, headings in _rows(page, "made")}
    for old, headings in [*listed.items(), (_UNKNOWN, kept.difference(*listed.values()))]:
        parts[old] = parts.get(old, set()) | (kept & headings)
    order = list(dict.fromkeys(places.values()))
    return {one: [each for each in order if each in headings] for one, headings in parts.items() if headings}


def made_block(parts: Parts, seconds: float) -> dict[str, str]:
    """The command, the time that this run's parts took, and the commits of all parts."""
    took = f"certifying took {seconds:,.0f} s of processor time on one core of a CPU"
    table = markdown(["commit", "parts"], [[commit, "; ".join(own)] for commit, own in parts.items()], words=2)
    return {"made": f"Made by `python -m benchmarks.results evidence`; {took}.\n\n{table}"}


def votes_rows(page: str, commits: Collection[str]) -> list[list[str]]:
    """The rows of the page's table of votes that are of these commits."""
    return [row for row in _rows(page, "votes") if row[-1] in commits]


def _rows(page: str, name: str) -> list[list[str]]:
    """The rows of the table in a block."""
    return table_rows(blocks.texts(page).get(name, ""))[1:]
