"""What the server offers, and what one request may cost it."""

import ipaddress
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from multiguard.io.config import Config, Count, Positive, described

Host = Annotated[str, Meta(min_length=1, title="an address; 0.0.0.0 lets every machine in")]


class ServeConfig(Config, frozen=True):
    """Where the page is, and what a request may cost.

    >>> ServeConfig(megabytes=2).bytes
    2000000
    """

    host: Annotated[Host, described("Address; 0.0.0.0 lets other machines in.")] = "127.0.0.1"
    port: Annotated[Annotated[int, Meta(ge=0, lt=65536)], described("Port to listen on; 0 for any free one.")] = 8000
    examples: Annotated[Path | None, described("A folder of images to offer.")] = None
    draws: Annotated[
        Annotated[int, Meta(ge=1, lt=1_000_001)], described("Draws per image, and per click on More draws.")
    ] = 300
    seconds: Annotated[Positive, described("The longest that a request may run.")] = 120.0
    megabytes: Annotated[Positive, described("The largest upload.")] = 20.0
    megapixels: Annotated[Positive, described("The largest image.")] = 50.0
    queue: Annotated[Count, described("Requests under way; more are refused.")] = 8

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
