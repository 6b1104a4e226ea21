"""What the server offers, and what one request may cost it."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from multiguard.errors import InvalidInputError
from multiguard.pipeline.part_fields import Help, check_fields


@dataclass(frozen=True)
class ServePart:
    """Where the page is, and what a request may cost.

    >>> ServePart(megabytes=2).bytes
    2000000
    """

    host: Annotated[str, Help("Address; 0.0.0.0 lets other machines in.")] = "127.0.0.1"
    port: Annotated[int, Help("Port to listen on; 0 for any free one.", least=0, below=65536)] = 8000
    open: Annotated[bool, Help("Open the page in the browser.")] = False
    examples: Annotated[Path | None, Help("A folder of images to offer.")] = None
    draws: Annotated[int, Help("Draws per image, and per click on More draws.", least=1, below=1_000_001)] = 300
    seconds: Annotated[float, Help("The longest that a request may run.", above=0)] = 120.0
    megabytes: Annotated[float, Help("The largest upload.", above=0)] = 20.0
    megapixels: Annotated[float, Help("The largest image.", above=0)] = 50.0
    queue: Annotated[int, Help("Requests under way; more are refused.", least=1)] = 8

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.host:
            raise InvalidInputError("host is empty, which would let every machine in; write 0.0.0.0 for that")

    @property
    def local(self) -> bool:
        """Whether only this machine can connect."""
        return self.host == "localhost" or (is_address(self.host) and ipaddress.ip_address(self.host).is_loopback)

    @property
    def bytes(self) -> int:
        """The largest upload, in bytes."""
        return int(self.megabytes * 1_000_000)

    @property
    def pixels(self) -> int:
        """The most pixels of an image."""
        return int(self.megapixels * 1_000_000)


def is_address(name: str) -> bool:
    """Whether this is an IP address rather than a name.

    >>> is_address("127.0.0.1"), is_address("::1"), is_address("127.0.0.1.example.org")
    (True, True, False)
    """
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
