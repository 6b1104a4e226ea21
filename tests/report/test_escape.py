"""Text from data stays text in every format."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiguard.io.names import as_cell, from_cell
from multiguard.report import escape

LATEX_COMMANDS = re.compile(
    r"\\(?:textbackslash|textasciicircum|textasciitilde|textless|textgreater|textbar|textquotedbl|textasciigrave)\{\}"
    r"|\\ensuremath\{(?:'|-|\\sigma|\\alpha|\\ell_2)\}|\\[{}$&#%_]|\{[][*]\}"
)


@given(st.text())
def test_latex_holds_no_command_but_ours(text: str) -> None:
    rest = LATEX_COMMANDS.sub("", escape.latex(text))
    assert not set(rest) & set('\\{}[]$&#%_^~<>|"`\n\r')
    assert not escape.latex(text).lstrip().startswith("*")


def test_latex_of_a_name() -> None:
    assert escape.latex(r"50% of_a\b & $x$") == r"50\% of\_a\textbackslash{}b \& \$x\$"


@pytest.mark.parametrize(
    ("name", "written"),
    [("[2pt] car", "{[}2pt{]} car"), ("*", "{*}"), (" \t*a*", "  {*}a*"), ("\n[", " {[}"), ("a*b", "a*b")],
)
def test_latex_of_a_name_is_no_option_of_the_end_of_a_row(name: str, written: str) -> None:
    assert escape.latex(name) == written


@given(st.text())
def test_markdown_holds_no_markup(text: str) -> None:
    written = escape.markdown(text)
    bare = re.sub(r"\\.", "", written)
    assert not set(bare) & set("|`*_[]<>\n\r")
    assert re.sub(r"&(?:amp|lt|gt);", "", bare).count("&") == 0


def test_markdown_of_a_name() -> None:
    assert escape.markdown("<b>a|b_c</b>") == r"&lt;b&gt;a\|b\_c&lt;/b&gt;"
    assert escape.markdown("F1 at R: 0.5") == "F1 at R: 0.5"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "'=1"])
def test_formulas_become_text(text: str) -> None:
    assert as_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["person", "a=b", "'quoted'", ""])
def test_other_cells_stay_as_they_are(text: str) -> None:
    assert as_cell(text) == text


@given(st.text())
def test_a_cell_gives_its_name_back(name: str) -> None:
    assert from_cell(as_cell(name)) == name
    assert not re.match(r"[=+\-@\t\r\n]", as_cell(name))


def test_a_name_is_no_link_and_turns_no_text() -> None:
    assert escape.markdown("www.a.b") == r"www\.a.b"
    assert escape.latex("a\u202eb\x9bc") == escape.markdown("a\u202eb\x9bc") == "a b c"
