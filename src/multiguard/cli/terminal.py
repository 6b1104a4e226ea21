"""Text from files on the terminal: no name can move the cursor, change colours or hide other text."""

import re
from collections.abc import Iterable

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# Control characters except newline, marks that change the direction of text, and lone surrogates.
_STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def printable(text: str) -> str:
    """The text with every control character written as its number."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def echo(text: str, *, err: bool = False) -> None:
    """Print a text on stdout or stderr, without control characters."""
    typer.echo(printable(text), err=err)


class PlainConsole(Console):
    """A console that prints text as it is: no markup, no guessed colours, no control characters."""

    def __init__(self) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, soft_wrap=True)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments to print; styles are added around them later."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(printable(part.text), part.style)
