"""The training curve as an image."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def draw_curve(history: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write a PNG of the loss and of the validation mAP, noisy and clean, over the epochs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    epochs = [record["epoch"] for record in history]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.plot(epochs, [record["loss"] for record in history], color="#444444")
    left.set(xlabel="epoch", ylabel="training loss")
    right.plot(epochs, [record["map_noisy"] for record in history], color="#1f77b4", label="noisy")
    right.plot(epochs, [record["map_clean"] for record in history], color="#ff7f0e", label="clean", linestyle="--")
    right.set(xlabel="epoch", ylabel="validation mAP", ylim=(0, 1.03))
    right.legend(frameon=False, loc="lower right")
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.savefig(path, dpi=120)
