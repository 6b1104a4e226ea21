"""Draws the votes behind docs/calibration.md on one GPU: `python -m benchmarks.calibration_votes UNSEEN VAL OUT`.

UNSEEN and VAL hold images of MS-COCO 2014 in its official layout, split val2014: those that calibrate, which no network
was trained on, and the 500 that test. OUT gets the votes folders `unseen` and `val`, `attacked-R.npz` with the votes of
attacked test images, and `bare.npz` with the scores of the network without noise. The network computes in float32,
without TF32, as it does on a CPU, so the calibration is of the classifier that users run.

`--seconds` limits the whole run: fewer unseen images are voted on where the device is slow.
"""

import argparse
import time
from pathlib import Path

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

_AIM = Threshold(0.07, k_prime=4)  # about what 80 % at R = 0.5 asks for


def main() -> None:
    """All votes, the test images first: their rate says how many unseen images there is time for."""
    arguments = _arguments()
    started, out, model = time.monotonic(), arguments.out, arguments.model
    out.mkdir(parents=True, exist_ok=True)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    def left() -> float:
        return float(arguments.seconds - (time.monotonic() - started))

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", flush=True)

    clock = list[tuple[float, int]]()
    config = VoteConfig(draws=arguments.test_draws, precision="float32", k_max=10, device=arguments.device)
    val = DataConfig("coco", root=arguments.val, images=arguments.test_images)
    vote(config, val, ModelConfig(model), out=out / "val", progress=lambda done, _: clock.append((time.time(), done)))
    (first, few), (last, many) = clock[len(clock) // 4], clock[-1]
    rate = (many - few) * arguments.test_draws / max(last - first, 1e-9)
    say(f"val: {many} images, {rate:.0f} draws/s")

    reserve = min(arguments.attack_seconds, left() / 3)
    fits = int((left() - reserve) * 0.92 * rate / arguments.draws)
    unseen = DataConfig("coco", root=arguments.unseen, images=max(5, min(arguments.images, fits)))
    vote(config.replace(draws=arguments.draws), unseen, ModelConfig(model), out=out / "unseen")
    say(f"unseen: {unseen.images} images, {arguments.draws} draws each")

    classifier = load_model(ModelConfig(model).resolved(), size=448, noise="gaussian:0.5")
    module = classifier.module().eval().to(arguments.device or "cuda")

    def bare(images: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            parts = torch.from_numpy(images).split(64)
            return np.concatenate([module(part.to(module.placed)).cpu().numpy() for part in parts])

    module.placed = torch.device(arguments.device or "cuda")
    samples = list(val.replace(size=448).open(label_names=classifier.label_names))
    pixels = np.stack([sample.image for sample in samples]).astype(np.float32) / 255
    truth = np.zeros((len(samples), len(classifier.label_names)), np.bool_)
    for row, sample in enumerate(samples):
        truth[row, list(sample.labels)] = True
    scores = {"val": bare(pixels), "val_ids": [sample.id for sample in samples], "val_labels": truth}
    calm = list(unseen.replace(size=448).open(label_names=classifier.label_names))
    labels = np.zeros((len(calm), truth.shape[1]), np.bool_)
    for row, sample in enumerate(calm):
        labels[row, list(sample.labels)] = True
    clean = (np.stack([sample.image for sample in calm[i : i + 64]]) for i in range(0, len(calm), 64))
    scores |= {"unseen": np.concatenate([bare(part.astype(np.float32) / 255) for part in clean])}
    scores |= {"unseen_ids": [sample.id for sample in calm], "unseen_labels": labels}
    np.savez_compressed(out / "bare.npz", **scores)
    say("scores without noise")

    some = slice(arguments.attacked)
    search = Smoother(model, sigma=0.5, k_max=10, device=arguments.device, compile=False)
    exact = Smoother(model, sigma=0.5, precision="float32", k_max=10, device=arguments.device, compile=False)
    eot = AttackConfig(steps=arguments.steps, copies=16, starts=1, draws=100, box=True)
    plain = AttackConfig(steps=2 * arguments.steps, copies=1, starts=1, draws=1, box=True)
    for radius in arguments.radii:
        if left() < arguments.attack_seconds / 4:
            say(f"no time for R = {radius}")
            continue
        found = pgd(search, pixels[some], Hide(truth[some]), _AIM, radius=radius, config=eot)
        inputs = zip(scores["val_ids"][some], found.inputs, strict=True)
        ranked = np.stack([exact.votes(image, arguments.test_draws, image_id=name) for name, image in inputs])
        undefended = pgd(
            model, pixels[some], Hide(truth[some]), Threshold(0.5), radius=radius, config=plain, device=arguments.device
        )
        names = {
            "ids": scores["val_ids"][some],
            "labels": truth[some],
            "votes": ranked.astype(np.uint8),
            "norms": found.norms,
        }
        np.savez_compressed(out / f"attacked-{radius:g}.npz", **names, bare=bare(undefended.inputs))
        say(f"attacked at R = {radius}: norms up to {found.norms.max():.4f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("unseen", "val", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--model", default="coco-0.5")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--attack-seconds", type=float, default=90)
    parser.add_argument("--images", type=int, default=1250, help="unseen images at most")
    parser.add_argument("--draws", type=int, default=600, help="per unseen image")
    parser.add_argument("--test-images", type=int, default=500)
    parser.add_argument("--test-draws", type=int, default=150)
    parser.add_argument("--attacked", type=int, default=100, help="test images that are attacked")
    parser.add_argument("--steps", type=int, default=20, help="of the attack")
    parser.add_argument("--radii", type=float, nargs="+", default=[0.5, 1.0])
    parser.add_argument("--device")
    return parser.parse_args()


if __name__ == "__main__":
    main()
