"""What a report is about: one run, other runs on the same images, and what is computed from them once."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from multiguard.certify import Method
from multiguard.certify.arguments import Floats
from multiguard.certify.noise import Noise
from multiguard.certify.rules import RuleName
from multiguard.errors import InvalidInputError
from multiguard.evaluate import (
    Averaging,
    CertifyConfig,
    Curve,
    LabelScores,
    Results,
    Scores,
    label_scores,
    prediction_scores,
)
from multiguard.evaluate.certificates import Labels
from multiguard.evaluate.curves import AVERAGINGS
from multiguard.io.rows import Rows
from multiguard.io.short_repr import short_repr
from multiguard.report.families import THIS_RUN, Family, methods_family, run_families, sweep_families
from multiguard.report.words import first_radius

Prediction = Literal["bare", "smoothed"]  # the base classifier without noise, and the smoothed one


@dataclass(frozen=True, eq=False)
class Study:
    """One run and the runs it is compared with, all on the same images with the same labels, or all without labels.

    Where a run failed on an image, its averages are over one image less than another's, and every summary says so.

    Example:
        >>> run = read_certificates(certificates)  # a folder written by `multiguard certify`
        >>> study = Study(run, title="Certified digits")
        >>> [family.key for family in study.families]
        ['methods', 'k']
    """

    main: Results  # the run that the report is about
    beside: Mapping[str, Results] = field(default_factory=dict)  # by name: more noise, the other rule
    title: str = "Certified robustness"
    commands: Sequence[str] = ()  # the command lines that reproduce it, in order
    notes: list[str] = field(default_factory=list)  # what `report` has to say of the page: images not shown, failures

    __repr__ = short_repr

    def __post_init__(self) -> None:
        check_alike({THIS_RUN: self.main, **self.beside})
        for name, run in self.beside.items():
            if not _same_images(run, self.main):
                problem = f"the run '{name}' is about other images or labels than the main run"
                raise InvalidInputError(f"{problem}; compare runs on the same images, or leave it out")
        grids = {tuple(curve.scores.radius.tolist()) for curve in self.main.curves}
        if len(grids) != 1 or any(low >= high for low, high in pairwise(next(iter(grids)))):
            problem = "the curves of the main run must all have the same radii, from small to large"
            raise InvalidInputError(f"{problem}; certify again with one list of radii")

    @property
    def config(self) -> CertifyConfig:
        """The config of the main run."""
        return self.main.certificates.config

    @property
    def rule(self) -> RuleName:
        """The name of the main run's rule."""
        return self.config.rule.name

    @property
    def labelled(self) -> bool:
        """Whether the true labels are certified; if not, pilot draws chose the labels."""
        return self.main.certificates.labelled

    @property
    def exact(self) -> bool:
        """Whether every band of an ablation votes, so that nothing is random and no claim has a probability."""
        return self.main.certificates.noise.enumerated

    @property
    def method(self) -> Method:
        """The method of sweeps and comparisons: the first one of the main run."""
        return self.main.certificates.methods[0]

    @property
    def grid(self) -> Floats:
        """(radii,), where the curves of the main run are evaluated."""
        return self.main_curve(self.method, "mean").scores.radius

    @property
    def start(self) -> int:
        """The index of the radius shown first: that of the noise, or the first that adaptive draws were spent on."""
        return int(np.argmin(np.abs(self.grid - first_radius(self.main))))

    @property
    def stops(self) -> dict[int, int]:
        """How many images stopped after so many draws; empty where n is fixed."""
        draws = self.main.certificates.draws
        return {stop: draws.count(stop) for stop in self.main.provenance.get("stops") or ()}

    @cached_property
    def families(self) -> list[Family]:
        """The families of curves that have data, the methods first."""
        others = [*sweep_families(self), *run_families(self)]
        return [methods_family(self), *(family for family in others if len(family.lines) > 1)]

    @cached_property
    def label_scores(self) -> list[LabelScores]:
        """How often each label is certified at each radius of the grid, the label with the most images first."""
        scores = label_scores(self.main.certificates, self.grid)
        return sorted(scores, key=lambda label: (-label.images, label.label))

    @cached_property
    def clean_scores(self) -> dict[Prediction, dict[Averaging, Scores]]:
        """What is right without any perturbation, as observed: the price of smoothing. Empty without true labels.

        Of the base classifier without noise, over the images whose votes say so; and of the smoothed one.
        """
        proved = self.main.certificates
        if not self.labelled:
            return {}
        returned: dict[Prediction, Rows[Any]] = {"bare": proved.bare, "smoothed": proved.predicted}
        found: dict[Prediction, dict[Averaging, Scores]] = {}
        for name, predicted in returned.items():
            labels: Sequence[Labels] = proved.labels
            answers: Sequence[Labels] = predicted
            if predicted.missing.any():
                known = np.flatnonzero(~predicted.missing).tolist()
                labels, answers = [labels[i] for i in known], [answers[i] for i in known]
            if any(labels):
                found[name] = {
                    each: prediction_scores(labels, answers, each, k=self.config.rule.k) for each in AVERAGINGS
                }
        return found

    def main_curve(self, method: Method, averaging: Averaging) -> Curve:
        """The curve of the main run in its own config, as its file holds it."""
        for curve in self.main.curves:
            if (curve.method, curve.averaging, curve.config) == (method, averaging, self.config):
                return curve
        raise InvalidInputError(f"the certificates have no curve of the method {method} ({averaging}); certify again")


def round_radii(grid: Floats, noise: Noise, half_steps: Sequence[int]) -> list[tuple[int, float]]:
    """The indices and values in the grid of these halves of the typical radius; evenly spread ones if it has too few.

    Where radii are whole numbers, the halves are rounded up.
    """
    halves = [half * noise.typical_radius / 2 for half in half_steps]
    wanted = [math.ceil(half) for half in halves] if noise.whole else halves
    nearest = [int(np.argmin(np.abs(grid - radius))) for radius in wanted]
    close = [i for i, radius in zip(nearest, wanted, strict=True) if np.isclose(grid[i], radius)]
    if len(close) < min(2, len(grid)):
        close = np.linspace(0, len(grid) - 1, len(half_steps)).round().astype(int).tolist()
    return [(i, float(grid[i])) for i in sorted(set(close))]


def check_alike(runs: Mapping[str, Results]) -> None:
    """Raises unless all runs are about one attacker, so that the same R is the same attack, and one kind of labels."""
    proved = {name: run.certificates for name, run in runs.items()}
    kinds = {True: "the true labels", False: "labels that pilot draws chose"}
    checks = {
        "are about different attackers and have no common radius": [each.noise.attacker for each in proved.values()],
        "certify different labels and cannot be compared": [kinds[each.labelled] for each in proved.values()],
    }
    for problem, values in checks.items():
        if len(set(values)) > 1:
            words = ", ".join(f"{name} {value}" for name, value in zip(proved, values, strict=True))
            raise InvalidInputError(f"these runs {problem}: {words}")


def _same_images(one: Results, other: Results) -> bool:
    """Whether both are about the same images, failed ones included, and agree on the true labels of each."""
    mine, others = true_labels(one), true_labels(other)
    agree = (labels == others[i] or labels is None or others[i] is None for i, labels in mine.items() if i in others)
    return mine.keys() == others.keys() and all(agree)


def true_labels(run: Results) -> dict[str, set[str] | None]:
    """The names of each image's true labels; None where it failed, empty where pilot draws chose the labels."""
    proved = run.certificates
    names = ({proved.label_names[label] for label in labels if proved.labelled} for labels in proved.labels)
    failed = {failure.image_id: None for failure in proved.failures}
    return {**failed, **dict(zip(proved.ids, names, strict=True))}
