"""What a report is about: one run, and others on the same pictures beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from multiguard.certify import Method
from multiguard.errors import InvalidInputError
from multiguard.evaluate import Averaging, CertificatesFolder, Curve, Setting


@dataclass(frozen=True, eq=False)
class Study:
    """One run and those it is compared with, all on the same pictures with the same labels.

    Attributes:
        main: The run that the report is about.
        beside: Other runs, by name: another sigma, a network trained without noise.
        title: The report's heading.
        commands: The command lines that make it again, in order.
    """

    main: CertificatesFolder
    beside: Mapping[str, CertificatesFolder] = field(default_factory=dict)
    title: str = "Certified robustness"
    commands: Sequence[str] = ()

    def __post_init__(self) -> None:
        pictures = _pictures(self.main)
        for name, run in self.beside.items():
            if _pictures(run) != pictures:
                raise InvalidInputError(
                    f"the run '{name}' is about other pictures or labels than the main run; "
                    "compare runs on the same pictures, or leave it out"
                )
        grids = {tuple(curve.scores.radius.tolist()) for curve in self.main.curves}
        if len(grids) != 1 or any(low >= high for low, high in pairwise(next(iter(grids)))):
            raise InvalidInputError(
                "the curves of the main run must all be asked at the same radii, from small to large; "
                "certify again with one list of radii"
            )

    @property
    def setting(self) -> Setting:
        """The setting of the main run."""
        return self.main.certificates.setting

    @property
    def method(self) -> Method:
        """The method that sweeps and comparisons are drawn for: the first of the main run."""
        return self.main.certificates.methods[0]

    def main_curve(self, method: Method, averaging: Averaging) -> Curve:
        """The main run's own curve, as its file holds it."""
        for curve in self.main.curves:
            if (curve.method, curve.averaging, curve.setting) == (method, averaging, self.setting):
                return curve
        raise InvalidInputError(
            f"the certificates hold no curve of the method {method} ({averaging}) in their own setting; "
            "certify again to write the curves anew"
        )


def _pictures(run: CertificatesFolder) -> dict[str, set[str]]:
    """The true labels of each picture by their names, whatever the order of either."""
    found = run.certificates
    return {
        image_id: {found.label_names[label] for label in labels}
        for image_id, labels in zip(found.ids, found.labels, strict=True)
    }
