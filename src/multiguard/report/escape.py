"""Text from data, made harmless where it is written: LaTeX and Markdown."""

import re

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "[": "{[}",
    "]": "{]}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "′": r"\ensuremath{'}",
    "σ": r"\ensuremath{\sigma}",
    "α": r"\ensuremath{\alpha}",
    "−": r"\ensuremath{-}",
    "ℓ₂": r"\ensuremath{\ell_2}",
}
_LATEX_SPECIAL = re.compile("|".join(re.escape(text) for text in sorted(_LATEX, key=len, reverse=True)))
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]#!|~$]|:(?=//)|(?<=www)\.)")
# Control characters, and marks that turn the direction of text and so hide what stands beside them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")


def latex(text: str) -> str:
    """The text as LaTeX prints it: no character of it is a command, nor an option of the one before it; on one line."""
    escaped = _LATEX_SPECIAL.sub(lambda found: _LATEX[found[0]], _one_line(text))
    return re.sub(r"^(\s*)\*", r"\1{*}", escaped)


def markdown(text: str) -> str:
    """The text as Markdown shows it in a table cell: no character of it is markup or HTML."""
    entities = _one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN_SPECIAL.sub(r"\\\1", entities)


def _one_line(text: str) -> str:
    return _CONTROL.sub(" ", text)
