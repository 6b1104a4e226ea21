"""The sampler's speed relative to the bare forward pass on a CPU: `python -m benchmarks.sampler_cpu`.

Each round times the bare forward pass and the sampler in turn, with the same batch size and threads. The table gives
medians over many short rounds, so that other work on the machine affects both alike.

The last rows are of adaptive draws on a device that only waits, as long as a GPU of that rate would compute: what is
left of its rate is what the host allows, on idle cores and where every core has other work, such as the decisions.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from benchmarks.sampler_gpu import Jpegs
from multiguard.certify import TopK
from multiguard.models import Classifier, load
from multiguard.smooth import AdaptivePlan, Smoother, adaptive, stream, vote_dataset
from multiguard.smooth.stream import Batch

ROUNDS = 31
THREADS = 2
LABELS = [str(label) for label in range(20)]
GOAL = 0.9
DEVICE_RATE = 44_000  # draws per second of the device that only waits


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
            seconds(lambda: smoother.votes(image, draws, noise_seed=0, image_id="bench")),
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


class WaitingDevice:
    """Returns votes that are ready when a device of this rate would have drawn them, one batch after the other."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def step(self, batch: Batch, size: int) -> torch.Tensor:
        """The same ranks for every row, each of them finite."""
        return torch.tensor([[*range(10), 1]]).repeat(size, 1)

    def launch(self, batch: Batch, votes: torch.Tensor) -> stream._Pending:
        """The batch behind those before it."""
        self._free_at = max(self._free_at, time.perf_counter()) + len(votes) / DEVICE_RATE
        return stream._Pending(batch, votes, _Ready(self._free_at))  # type: ignore[arg-type]


class _Ready:
    def __init__(self, at: float) -> None:
        self._at = at

    def synchronize(self) -> None:
        """Wait until then."""
        time.sleep(max(0.0, self._at - time.perf_counter()))


def adaptive_rate(busy: int, images: int = 2048) -> float:
    """The fraction of the device's rate that images get which stop after 50 draws, beside so many busy processes.

    Decisions take no time: the busy processes stand for those that decide.
    """
    network = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, len(LABELS)))  # only looked at
    smoother = Smoother(network, sigma=0.5, labels=LABELS, device="cpu", batch_size=512)
    plan, device, pilot = AdaptivePlan(TopK(10, 3), radii=(0.5,), max_draws=1000), WaitingDevice(), 50
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(patch.object(Smoother, "_current_step", lambda _: device.step))
        stack.enter_context(patch.object(stream, "_copy_to_host", device.launch))
        stack.enter_context(patch.object(adaptive, "settled_by_betting", lambda votes, *_, **__: [True] * len(votes)))
        for _ in range(busy):
            stack.callback(subprocess.Popen([sys.executable, "-c", "while True: pass"]).kill)
        data = Jpegs(images, 224, len(LABELS))
        vote = partial(
            vote_dataset, smoother, data, folder, adaptive=plan, pilot_draws=pilot, noise_seed=0, shard_images=32
        )
        taken = seconds(vote)
    return images * (pilot + 50 + 1) / DEVICE_RATE / taken


def main() -> None:
    """Print the table."""
    torch.set_num_threads(THREADS)
    print(f"CPU, {THREADS} threads, fp32, torch {torch.__version__}; medians of {ROUNDS} interleaved rounds")
    print(f"{'classifier':<22}{'batch':>6}{'bare img/s':>12}{'draws/s':>10}{'ratio':>7}  goal {GOAL}")
    cases = (("small CNN, 32x32", small_cnn(), 32, 64, 512), ("ResNet-18, 64x64", resnet18(), 64, 32, 128))
    for name, network, size, rows, draws in cases:
        bare, sampler, ratio = compare(network, size, rows, draws)
        print(f"{name:<22}{rows:>6}{bare:>12.0f}{sampler:>10.0f}{ratio:>7.3f}")
    print(f"\nadaptive draws of a device that waits, {DEVICE_RATE:,} draws/s, 224x224, 50 draws and 50 pilot draws")
    for busy in (0, THREADS):
        print(f"beside {busy} busy processes: {adaptive_rate(busy):.3f} of its rate")


if __name__ == "__main__":
    main()
