"""Formulas become MathML while the site is built, so that a page needs no script to show them."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def on_page_content(markup: str, **_: Any) -> str:
    """The page with every formula converted."""
    markup = _INLINE.sub(lambda found: convert(html.unescape(found[1])), markup)
    return _BLOCK.sub(lambda found: convert(html.unescape(found[1]), display="block"), markup)
