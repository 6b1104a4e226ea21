"""Draws per second on a CPU and of the bare forward pass: `python -m benchmarks.sampler_cpu`.

Each round times every case in turn, so that other work on the machine affects all alike; the table gives medians, and
the ratio of each case to the bare forward pass of OpenVINO in float32 (of onnxruntime where OpenVINO is not installed).
"""

import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from multiguard import Smoother
from multiguard.models import load
from multiguard.models.onnx import processors
from multiguard.smooth.dataset import execution

MODEL, DRAWS, ROUNDS = "coco", 24, 7
GOAL = 0.8  # of OpenVINO's bare forward pass


def sampler(image: Any, **options: Any) -> tuple[str, Smoother]:
    """A smoother of the built-in model that has seen the image, and what runs it."""
    smoother = Smoother(load(MODEL), 0.5, device="cpu", **options)
    smoother.votes(image, 2, noise_seed=0, image_id="first")
    return execution(smoother)["device"].rpartition(", ")[2], smoother


def cases(image: Any) -> dict[str, Callable[[], object]]:
    """What is timed: for each engine the network alone on a prepared batch, and draws with noise and votes."""
    found: dict[str, Callable[[], object]] = {}
    batch = np.stack([image] * DRAWS).astype(np.float32) / 255
    kinds: list[dict[str, Any]] = [{"compile": False}]
    if find_spec("openvino") is not None:
        kinds += [{}, {"precision": "bfloat16"}]
    for options in kinds:
        engine, smoother = sampler(image, **options)
        name = f"{engine}, {smoother.settings.precision}"
        found[f"{name}: bare"] = lambda smoother=smoother: smoother.classifier.scores(batch)
        found[f"{name}: draws"] = lambda smoother=smoother: smoother.votes(image, DRAWS, noise_seed=0, image_id="a")
    return found


def main() -> None:
    """Print the table."""
    image = np.random.default_rng(0).integers(0, 256, (3, 448, 448), dtype=np.uint8)
    timed = cases(image)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in timed}
    for _ in range(ROUNDS):
        for name, work in timed.items():
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            seconds[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    base = "openvino, float32: bare" if "openvino, float32: bare" in timed else "onnxruntime, float32: bare"
    print(
        f"{MODEL}, 448 px, {processors()} threads, {platform.processor() or platform.machine()}; goal {GOAL} of {base}"
    )
    print(f"{'':<32}{'per second':>12}{'per CPU second':>16}{'ratio':>8}")
    for name, times in seconds.items():
        wall, cpu = (DRAWS / statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(own[0] / each[0] for own, each in zip(seconds[base], times, strict=True))
        print(f"{name:<32}{wall:>12.1f}{cpu:>16.1f}{ratio:>8.2f}")
    if find_spec("openvino") is None:
        print("pip install openvino adds its rows", file=sys.stderr)


if __name__ == "__main__":
    main()
