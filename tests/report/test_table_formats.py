"""Text from data stays text in every format."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiguard.io.names import as_cell
from multiguard.report.table_formats import escape_latex, escape_markdown

LATEX_COMMANDS = re.compile(
    r"\\(?:textbackslash|textasciicircum|textasciitilde|textless|textgreater|textbar|textquotedbl|textasciigrave)\{\}"
    r"|\\ensuremath\{(?:'|-|\\sigma|\\alpha|\\ell_2)\}|\\[{}$&#%_]|\{[][*]\}"
)


@given(st.text())
def test_latex_commands(text: str) -> None:
    """LaTeX text has no command but ours."""
    rest = LATEX_COMMANDS.sub("", escape_latex(text))
    assert not set(rest) & set('\\{}[]$&#%_^~<>|"`\n\r')
    assert not escape_latex(text).lstrip().startswith("*")


def test_latex_name() -> None:
    """Special characters of a name are escaped for LaTeX."""
    assert escape_latex(r"50% of_a\b & $x$") == r"50\% of\_a\textbackslash{}b \& \$x\$"


@pytest.mark.parametrize(
    ("name", "written"),
    [("[2pt] car", "{[}2pt{]} car"), ("*", "{*}"), (" \t*a*", "  {*}a*"), ("\n[", " {[}"), ("a*b", "a*b")],
)
def test_latex_row_end(name: str, written: str) -> None:
    """A name at the start of a row is no option of the end of the row before."""
    assert escape_latex(name) == written


@given(st.text())
def test_markdown_markup(text: str) -> None:
    """Markdown text has no markup and no HTML."""
    written = escape_markdown(text)
    bare = re.sub(r"\\.", "", written)
    assert not set(bare) & set("|`*_[]<>\n\r")
    assert re.sub(r"&(?:amp|lt|gt);", "", bare).count("&") == 0


def test_markdown_name() -> None:
    """Special characters of a name are escaped for Markdown, others stay."""
    assert escape_markdown("<b>a|b_c</b>") == r"&lt;b&gt;a\|b\_c&lt;/b&gt;"
    assert escape_markdown("F1 at R: 0.5") == "F1 at R: 0.5"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "'=1"])
def test_csv_formulas(text: str) -> None:
    """A cell that a spreadsheet would run becomes text."""
    assert as_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["person", "a=b", "'quoted'", ""])
def test_csv_plain_cells(text: str) -> None:
    """Other cells stay as they are."""
    assert as_cell(text) == text


def from_cell(cell: str) -> str:
    """The name in a cell: without the apostrophe in front of what a spreadsheet would take for a formula."""
    return re.sub(r"\A'(?='*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])", "", cell)


@given(st.text())
def test_csv_round_trip(name: str) -> None:
    """A name is read back from its cell, and no cell is a formula."""
    assert from_cell(as_cell(name)) == name
    assert not re.match(r"[=+\-@\t\r\n]", as_cell(name))


def test_links_and_directions() -> None:
    """A name is no link and does not turn the direction of text."""
    assert escape_markdown("www.a.b") == r"www\.a.b"
    assert escape_latex("a\u202eb\x9bc") == escape_markdown("a\u202eb\x9bc") == "a b c"
