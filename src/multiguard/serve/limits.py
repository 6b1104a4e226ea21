"""What the server offers, and what one request may cost it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from multiguard.pipeline.parts import Help, check_ranges


@dataclass(frozen=True)
class ServePart:
    """Where the page is, and what a request may cost.

    >>> ServePart(megabytes=2).bytes
    2000000
    """

    host: Annotated[str, Help("The address to listen on; others than this machine can connect only if you say so.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Help("The port to listen on; 0 for any free one.", least=0, below=65536)] = 8000
    draws: Annotated[int, Help("Draws per image, and per click on More draws.", least=1, below=1_000_001)] = 1000
    examples: Annotated[Path | None, Help("A folder of images to offer as examples.")] = None
    seconds: Annotated[float, Help("The longest that one request may run.", above=0)] = 120.0
    megabytes: Annotated[float, Help("The largest upload.", above=0)] = 20.0
    megapixels: Annotated[float, Help("The largest image.", above=0)] = 50.0
    queue: Annotated[int, Help("Requests under way; more are told to come back later.", least=1)] = 8
    open: Annotated[bool, Help("Open the page in the browser.")] = False

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def bytes(self) -> int:
        """The largest upload, in bytes."""
        return int(self.megabytes * 1_000_000)

    @property
    def pixels(self) -> int:
        """The most pixels of an image."""
        return int(self.megapixels * 1_000_000)
