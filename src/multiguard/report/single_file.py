"""A page that is one file: a template, a style sheet, scripts and data, and nothing that is fetched."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiguard.io.files import require_folder, write_atomically
from multiguard.io.rounding import plain, plain_percent
from multiguard.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

_ASSETS = Path(__file__).parent / "assets"
_HTML_SPECIAL = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def render_page(template: str, scripts: Sequence[str], data: Mapping[str, Any], **values: Any) -> str:
    """The page with its style, these scripts, the chart library and the data that they read."""
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    parts = "\n".join((_ASSETS / name).read_text(encoding="utf-8") for name in scripts)
    plotly = get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")  # as a browser reads it
    programs = [f'(() => {{\n"use strict";\n{parts}}})();\n', plotly]
    return (
        page_environment(_ASSETS)
        .get_template(template)
        .render(
            version=__version__,
            policy=_policy(programs),
            style=Markup((_ASSETS / "report.css").read_text(encoding="utf-8")),
            scripts=[Markup(program) for program in programs],
            data=Markup(as_script_json(data)),
            **values,
        )
    )


@cache
def page_environment(folder: Path) -> "Environment":
    """The templates of a folder, in which every value is escaped and none may be missing."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(folder)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"plain": plain, "plain_percent": plain_percent}
    return environment


def write_text(path: Path, text: str) -> None:
    """Write the page; its folder is created if missing."""
    require_folder(path.parent)
    write_atomically(path, lambda file: file.write(text.encode("utf-8", "replace")))


def as_script_json(data: Mapping[str, Any]) -> str:
    """The data as JSON in which nothing can be taken for HTML; floats keep every digit."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(_HTML_SPECIAL)


def policy_hash(text: str) -> str:
    """The source expression by which a content security policy allows exactly this script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _policy(scripts: Sequence[str]) -> str:
    """Nothing may be fetched, and no script may run but these."""
    allowed = " ".join(map(policy_hash, scripts))
    rest = "base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; {rest}"
