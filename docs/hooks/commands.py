"""The page of the command: what each `--help` says, taken from the command itself while the site is built."""

from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

_MARKER = "<!-- every command -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with the help of every command in place of the marker."""
    return markdown.replace(_MARKER, _all_help()) if _MARKER in markdown else markdown


def _all_help() -> str:
    from multiguard.cli.main import app

    top: Any = get_command(app)
    groups = {name: top.get_command(None, name) for name in top.list_commands(None)}
    names = [
        f"{name} {inner}".strip() for name, command in groups.items() for inner in getattr(command, "commands", {"": 0})
    ]
    return "\n\n".join(f"## multiguard {name}\n\n```text\n{_help(app, name)}\n```" for name in names)


def _help(app: Any, name: str) -> str:
    shown = CliRunner().invoke(app, [*name.split(), "--help"], prog_name="multiguard", env={"COLUMNS": "100"})
    if shown.exit_code != 0:
        raise RuntimeError(f"multiguard {name} --help failed: {shown.output}")
    return shown.output.strip()
