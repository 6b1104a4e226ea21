"""Draws the votes of docs/calibration.md: `python -m benchmarks.calibration_votes UNSEEN VAL OUT`, on one GPU.

UNSEEN and VAL hold images of MS-COCO 2014 in its official layout, split val2014: those that calibrate, which no network
was trained on, and the 500 that test. OUT gets the votes folders `unseen` and `val`, which `benchmarks.calibration`
reads. The network computes in float32, without TF32, as it does on a CPU: the calibration is of the classifier that
users run. `--seconds` limits the time: fewer unseen images are voted on where the device is slow.
"""

import argparse
import time
from pathlib import Path

import torch

from multiguard.data.config import DataConfig
from multiguard.models.config import ModelConfig
from multiguard.smooth.config import VoteConfig
from multiguard.smooth.vote import vote


def main() -> None:
    """The test images vote first, and their rate says for how many unseen images there is time."""
    arguments = _arguments()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    started, clock = time.monotonic(), list[tuple[float, int]]()
    config = VoteConfig(draws=arguments.test_draws, precision="float32", k_max=10, device=arguments.device)
    test, unseen = (
        DataConfig("coco", root=root, images=arguments.images) for root in (arguments.val, arguments.unseen)
    )
    model, out = ModelConfig(arguments.model), arguments.out
    vote(config, test, model, out=out / "val", progress=lambda done, _: clock.append((time.monotonic(), done)))
    (first, few), (last, many) = clock[len(clock) // 4], clock[-1]
    rate = (many - few) * arguments.test_draws / max(last - first, 1e-9)
    print(f"{many} test images, {rate:.0f} draws/s", flush=True)
    fits = int((arguments.seconds - (last - started)) * 0.92 * rate / arguments.draws)
    unseen = unseen.replace(images=max(5, min(arguments.images, fits)))
    vote(config.replace(draws=arguments.draws), unseen, model, out=out / "unseen")
    print(f"{unseen.images} unseen images, {time.monotonic() - started:.1f} s in all", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("unseen", "val", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--model", default="coco")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--images", type=int, default=2000, help="images of each kind at most")
    parser.add_argument("--draws", type=int, default=600, help="per unseen image")
    parser.add_argument("--test-draws", type=int, default=150)
    parser.add_argument("--device")
    return parser.parse_args()


if __name__ == "__main__":
    main()
