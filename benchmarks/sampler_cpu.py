"""The sampler's speed relative to the bare forward pass on a CPU: `python -m benchmarks.sampler_cpu`.

Each round times the bare forward pass and the sampler in turn, with the same batch size and threads. The table gives
medians over many short rounds, so that other work on the machine affects both alike.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from multiguard.models import Classifier, load
from multiguard.smooth import Smoother

ROUNDS = 31
THREADS = 2
LABELS = [str(label) for label in range(20)]
GOAL = 0.9


def small_cnn() -> nn.Module:
    """About the size of the built-in network."""
    layers: list[nn.Module] = []
    for inputs, outputs, kernel, stride in ((3, 32, 5, 1), (32, 64, 3, 2), (64, 64, 3, 1), (64, 128, 3, 2)):
        conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
        layers += [conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, len(LABELS)))


def resnet18() -> nn.Module:
    """ResNet-18 from timm, with random weights."""
    # A torchvision wheel built for another torch lacks operators that timm looks up at import.
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import timm

    network: nn.Module = timm.create_model("resnet18", num_classes=len(LABELS))
    return network


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(network: nn.Module, size: int, rows: int, draws: int) -> tuple[float, float, float]:
    """Images per second of the bare forward pass, draws per second of the sampler, and their ratio: medians."""
    classifier = load(network, labels=LABELS, output="logits", mean=(0.5,) * 3, std=(0.25,) * 3)
    smoother = Smoother(classifier, sigma=0.5, device="cpu", batch_size=rows)
    image = np.random.default_rng(0).integers(0, 256, (3, size, size), dtype=np.uint8)
    batch = torch.rand(rows, 3, size, size)
    times = [
        (
            seconds(lambda: bare_forward(classifier, batch, draws)),
            seconds(lambda: smoother.votes(image, draws, seed=0, image_id="bench")),
        )
        for _ in range(ROUNDS + 1)
    ][1:]
    bare, sampler = (statistics.median(column) for column in zip(*times, strict=True))
    return draws / bare, draws / sampler, statistics.median(one / other for one, other in times)


def bare_forward(classifier: Classifier, batch: torch.Tensor, draws: int) -> None:
    """The classifier alone, on a prepared batch, as often as the draws need it."""
    with torch.no_grad():
        for _ in range(draws // len(batch)):
            classifier(batch)


def main() -> None:
    """Print the table."""
    torch.set_num_threads(THREADS)
    print(f"CPU, {THREADS} threads, fp32, torch {torch.__version__}; medians of {ROUNDS} interleaved rounds")
    print(f"{'classifier':<22}{'batch':>6}{'bare img/s':>12}{'draws/s':>10}{'ratio':>7}  goal {GOAL}")
    cases = (("small CNN, 32x32", small_cnn(), 32, 64, 512), ("ResNet-18, 64x64", resnet18(), 64, 32, 128))
    for name, network, size, rows, draws in cases:
        bare, sampler, ratio = compare(network, size, rows, draws)
        print(f"{name:<22}{rows:>6}{bare:>12.0f}{sampler:>10.0f}{ratio:>7.3f}")


if __name__ == "__main__":
    main()
