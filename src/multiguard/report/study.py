"""What a report is about: one run, and others on the same images beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from multiguard.certify import Method
from multiguard.errors import InvalidInputError
from multiguard.evaluate import Averaging, CertifyConfig, Curve
from multiguard.results import CertificatesFolder
from multiguard.votes import Rule


@dataclass(frozen=True, eq=False)
class Study:
    """One run and those it is compared with, all on the same images with the same labels, or all without labels.

    Where a run could not vote on an image, its averages are over one image less than another's, and it is said.

    Attributes:
        main: The run that the report is about.
        beside: Other runs, by name: another sigma, a network trained without noise, the other rule.
        title: The report's heading.
        commands: The command lines that make it again, in order.
    """

    main: CertificatesFolder
    beside: Mapping[str, CertificatesFolder] = field(default_factory=dict)
    title: str = "Certified robustness"
    commands: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, run in self.beside.items():
            _check_comparable(name, run, self.main)
        grids = {tuple(curve.scores.radius.tolist()) for curve in self.main.curves}
        if len(grids) != 1 or any(low >= high for low, high in pairwise(next(iter(grids)))):
            raise InvalidInputError(
                "the curves of the main run must all be asked at the same radii, from small to large; "
                "certify again with one list of radii"
            )

    @property
    def config(self) -> CertifyConfig:
        """The config of the main run."""
        return self.main.certificates.config

    @property
    def rule(self) -> Rule:
        """The rule of the main run."""
        return self.main.certificates.rule_name

    @property
    def labelled(self) -> bool:
        """Whether the certified labels are the true ones; if not, pilot draws chose them."""
        return self.main.certificates.labelled

    @property
    def method(self) -> Method:
        """The method that sweeps and comparisons are drawn for: the first of the main run."""
        return self.main.certificates.methods[0]

    def main_curve(self, method: Method, averaging: Averaging) -> Curve:
        """The main run's own curve, as its file holds it."""
        for curve in self.main.curves:
            if (curve.method, curve.averaging, curve.config) == (method, averaging, self.config):
                return curve
        raise InvalidInputError(
            f"the certificates hold no curve of the method {method} ({averaging}) in their own setting; "
            "certify again to write the curves anew"
        )


def _check_comparable(name: str, run: CertificatesFolder, main: CertificatesFolder) -> None:
    if run.certificates.labelled != main.certificates.labelled:
        certified = {True: "the true labels", False: "labels that pilot draws chose"}
        raise InvalidInputError(
            f"the run '{name}' certifies {certified[run.certificates.labelled]} and the main run "
            f"{certified[main.certificates.labelled]}, so that their numbers mean different things; leave it out"
        )
    if not _same_images(run, main):
        raise InvalidInputError(
            f"the run '{name}' is about other images or labels than the main run; "
            "compare runs on the same images, or leave it out"
        )


def _same_images(one: CertificatesFolder, other: CertificatesFolder) -> bool:
    """Whether both are about the same images, those that failed among them, and agree on the labels of each."""
    known, others = _images(one), _images(other)
    agree = all(known[image_id] == others[image_id] for image_id in known.keys() & others.keys())
    return agree and _asked_about(one) == _asked_about(other)


def _asked_about(run: CertificatesFolder) -> set[str]:
    return {*run.certificates.ids, *(failure.image_id for failure in run.certificates.failures)}


def _images(run: CertificatesFolder) -> dict[str, set[str]]:
    """The true labels of each image by their names, whatever the order of either; none where draws chose them."""
    found = run.certificates
    return {
        image_id: {found.label_names[label] for label in labels} if found.labelled else set()
        for image_id, labels in zip(found.ids, found.labels, strict=True)
    }
