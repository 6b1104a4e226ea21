"""Docstrings on the API page: examples are code blocks, and the comment behind a field documents it."""

import ast
import re
from typing import Any

from griffe import Attribute, Docstring, Extension, Object, ObjectNode

_COMMENT = re.compile(r"\s{2}# (?P<text>.+)$")
_EXAMPLE = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*|\n(?P=indent) +\S.*)*", re.MULTILINE)


class Docstrings(Extension):
    """Prepares the docstrings of the package for Markdown."""

    def on_instance(self, *, node: ast.AST | ObjectNode, obj: Object, **_: Any) -> None:
        """Fence the examples of a docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(_fence, obj.docstring.value)

    def on_attribute_instance(self, *, node: ast.AST | ObjectNode, attr: Attribute, **_: Any) -> None:
        """Give a field without a docstring the comment on its last line."""
        if attr.docstring is not None or attr.endlineno is None or not attr.parent or not attr.parent.is_class:
            return
        comment = _COMMENT.search(attr.lines_collection[attr.filepath][attr.endlineno - 1])
        if comment is not None:
            first, space, rest = comment["text"].partition(" ")
            word = first if len(first.rstrip(",;:")) == 1 else first[0].upper() + first[1:]  # "e, how many" stays
            attr.docstring = Docstring(f"{word}{space}{rest}.", parent=attr)


def _fence(example: re.Match[str]) -> str:
    indent = example["indent"]
    return f"{indent}```pycon\n{example[0]}\n{indent}```"
