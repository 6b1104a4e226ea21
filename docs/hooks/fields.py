"""The comment behind a field of a dataclass is its documentation on the API page."""

import ast
import re
from typing import Any

from griffe import Attribute, Docstring, Extension, ObjectNode

_COMMENT = re.compile(r"\s{2}# (?P<text>.+)$")


class FieldComments(Extension):
    """Reads the comments behind fields."""

    def on_attribute_instance(self, *, node: ast.AST | ObjectNode, attr: Attribute, **_: Any) -> None:
        """Give a field without a docstring the comment on its last line."""
        if attr.docstring is not None or attr.endlineno is None or not attr.parent or not attr.parent.is_class:
            return
        comment = _COMMENT.search(attr.lines_collection[attr.filepath][attr.endlineno - 1])
        if comment is not None:
            text = comment["text"]
            attr.docstring = Docstring(f"{text[0].upper()}{text[1:]}.", parent=attr)
