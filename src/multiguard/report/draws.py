"""How many draws the images of an adaptive run took."""

from dataclasses import dataclass

from multiguard.results import CertificatesFolder


@dataclass(frozen=True)
class Stop:
    """A look at which images may stop.

    Attributes:
        draws: The draws taken by then.
        images: How many images stopped there.
    """

    draws: int
    images: int


def stops(run: CertificatesFolder) -> list[Stop]:
    """Every look of the run and how many of all its images stopped there; none where n is fixed."""
    taken = run.certificates.draws
    return [Stop(draws, taken.count(draws)) for draws in run.provenance.get("looks") or ()]
