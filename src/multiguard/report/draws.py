"""How many draws the pictures of an adaptive run took."""

from dataclasses import dataclass

from multiguard.evaluate import CertificatesFolder


@dataclass(frozen=True)
class Stop:
    """A look at which pictures may stop.

    Attributes:
        draws: The draws taken by then.
        pictures: How many pictures stopped there.
    """

    draws: int
    pictures: int


def stops(run: CertificatesFolder) -> list[Stop]:
    """Every look of the run and how many of all its pictures stopped there; none where n is fixed."""
    taken = run.certificates.draws
    return [Stop(draws, taken.count(draws)) for draws in run.provenance.get("looks") or ()]
