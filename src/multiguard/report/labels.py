"""Which labels and radii a drawing has room for."""

import numpy as np

from multiguard.certify.arrays import Floats
from multiguard.evaluate import LabelScores, label_scores
from multiguard.report.study import Study

_MOST_LABELS = 40


def round_radii(grid: Floats, sigma: float, half_steps: tuple[int, ...]) -> list[tuple[int, float]]:
    """The places and values in the grid of these multiples of sigma / 2; evenly spread ones where it has too few."""
    wanted = [int(np.argmin(np.abs(grid - half * sigma / 2))) for half in half_steps]
    close = [place for place, half in zip(wanted, half_steps, strict=True) if np.isclose(grid[place], half * sigma / 2)]
    if len(close) < min(2, len(grid)):
        close = np.linspace(0, len(grid) - 1, len(half_steps)).round().astype(int).tolist()
    return [(place, float(grid[place])) for place in sorted(set(close))]


def main_grid(study: Study) -> Floats:
    """The radii that the main run's curves were asked at."""
    return study.main_curve(study.method, "mean").scores.radius


def shown_radii(study: Study) -> list[tuple[int, float]]:
    """The few radii that the figure of labels shows: 0, sigma / 2, sigma, 2 sigma where the grid has them."""
    return round_radii(main_grid(study), study.main.certificates.sigma, (0, 1, 2, 4))


def study_labels(study: Study) -> list[LabelScores]:
    """How often each label is certified, at the radii of the main run's curves, whatever labels.csv was asked at."""
    return label_scores(study.main.certificates, main_grid(study))


def shown_labels(study: Study) -> list[LabelScores]:
    """The labels with the most images, as many as a figure has room for, the most often certified first."""
    most = sorted(study_labels(study), key=lambda label: (-label.images, label.label))[:_MOST_LABELS]
    return sorted(most, key=lambda label: (-float(np.sum(label.certified)), label.label))
