"""Draws the votes behind docs/calibration.md: `python -m benchmarks.calibration_votes UNSEEN VAL OUT`, on one GPU.

UNSEEN and VAL hold images of MS-COCO 2014 in its official layout, split val2014: those that calibrate, which no network
was trained on, and the 500 that test. OUT gets the votes folders `unseen` and `val`, `bare.npz` with the scores of the
network without noise, and `attacked-R.npz` with the votes of attacked test images. The network computes in float32,
without TF32, as it does on a CPU, so the calibration is of the classifier that users run.

`--seconds` limits the votes: fewer unseen images are voted on where the device is slow. `--parts` takes some of the
parts; the attack alone also runs on a CPU, with few images.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from multiguard import Smoother
from multiguard.attack import Hide, pgd
from multiguard.attack.config import AttackConfig
from multiguard.certify import Threshold
from multiguard.data.config import DataConfig
from multiguard.models.config import ModelConfig
from multiguard.models.loading import load_model
from multiguard.smooth.config import VoteConfig
from multiguard.smooth.vote import vote

_AIM = Threshold(0.72, k_prime=6)  # about what 80 % at R = 0.5 asks for
_SIZE, _SIGMA = 448, 0.5


def main() -> None:
    """The parts in order; the test images vote first, and their rate says for how many unseen images there is time."""
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    for part in arguments.parts:
        {"votes": draw_votes, "scores": save_scores, "attack": attack}[part](arguments)


def draw_votes(arguments: argparse.Namespace) -> None:
    """The votes folders."""
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


def save_scores(arguments: argparse.Namespace) -> None:
    """The scores of the network without noise."""
    found: dict[str, Any] = {}
    network = _network(arguments)
    for name, root in (("val", arguments.val), ("unseen", arguments.unseen)):
        ids, images, labels = _images(root, arguments.images)
        found |= {name: _bare(network, images), f"{name}_ids": ids, f"{name}_labels": labels}
    np.savez_compressed(arguments.out / "bare.npz", **found)


def attack(arguments: argparse.Namespace) -> None:
    """The votes of test images that are attacked through the noise, and scores of images attacked without noise."""
    ids, images, labels = _images(arguments.val, arguments.attacked)
    pixels, network = images.astype(np.float32) / 255, _network(arguments)
    options: dict[str, Any] = {"k_max": 10, "device": arguments.device, "compile": False}
    search = Smoother(arguments.model, sigma=_SIGMA, **options)
    exact = Smoother(arguments.model, sigma=_SIGMA, precision="float32", **options)
    eot = AttackConfig(steps=arguments.steps, copies=arguments.copies, starts=1, draws=20, box=True)
    plain = AttackConfig(steps=2 * arguments.steps, copies=1, starts=1, draws=1, box=True)
    for radius in arguments.radii:
        found = pgd(search, pixels, Hide(labels), _AIM, radius=radius, config=eot).inputs
        pairs = zip(ids, found, strict=True)
        votes = np.stack([exact.votes(image, arguments.test_draws, image_id=name) for name, image in pairs])
        undefended = pgd(
            arguments.model, pixels, Hide(labels), radius=radius, config=plain, device=arguments.device
        ).inputs
        np.savez_compressed(
            arguments.out / f"attacked-{radius:g}.npz",
            ids=ids,
            labels=labels,
            votes=votes.astype(np.uint8),
            bare=_bare(network, undefended),
        )
        print(f"{len(ids)} images attacked at R = {radius:g}", flush=True)


def _images(root: Path, most: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Ids, uint8 images, and labels."""
    names = load_model(ModelConfig("coco-0.5").resolved(), size=_SIZE, noise=f"gaussian:{_SIGMA}").label_names
    samples = list(DataConfig("coco", root=root, images=most, size=_SIZE).open(label_names=names))
    labels = np.zeros((len(samples), len(names)), np.bool_)
    for row, sample in enumerate(samples):
        labels[row, list(sample.labels)] = True
    return [sample.id for sample in samples], np.stack([sample.image for sample in samples]), labels


def _network(arguments: argparse.Namespace) -> Any:
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    loaded = load_model(ModelConfig(arguments.model).resolved(), size=_SIZE, noise=f"gaussian:{_SIGMA}")
    network = loaded.module().eval().to(device)
    network.placed = torch.device(device)
    return network


@torch.no_grad()
def _bare(network: Any, images: np.ndarray) -> np.ndarray:
    parts = (torch.from_numpy(part).to(network.placed) for part in np.array_split(images, -(-len(images) // 64)))
    pixels = (part.float() / 255 if part.dtype == torch.uint8 else part for part in parts)
    return np.concatenate([network(part).cpu().numpy() for part in pixels])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("unseen", "val", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--model", default="coco-0.5")
    parser.add_argument("--parts", nargs="+", default=["votes", "scores", "attack"])
    parser.add_argument("--seconds", type=float, default=3600, help="for the votes")
    parser.add_argument("--images", type=int, default=2000, help="images of each kind at most")
    parser.add_argument("--draws", type=int, default=600, help="per unseen image")
    parser.add_argument("--test-draws", type=int, default=150)
    parser.add_argument("--attacked", type=int, default=100, help="test images that are attacked")
    parser.add_argument("--steps", type=int, default=20, help="of the attack")
    parser.add_argument("--copies", type=int, default=16, help="noisy copies per step of the attack")
    parser.add_argument("--radii", type=float, nargs="+", default=[0.5, 1.0])
    parser.add_argument("--device")
    return parser.parse_args()


if __name__ == "__main__":
    main()
