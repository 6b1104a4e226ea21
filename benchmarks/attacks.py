"""How many returned labels an attack replaces: `python -m benchmarks.attacks COCO_FOLDER ORDINARY_WEIGHTS [IMAGES]`.

The ordinary network is an EfficientNet-Lite0 with ImageNet weights, whose head is fitted to COCO's labels here, all
without noise. The weights are timm's of tf_efficientnet_lite0.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from multiguard import Smoother, TopK, load
from multiguard.attack import AttackConfig, Change, pgd
from multiguard.data import load_pixels, open_dataset, subset
from multiguard.models.backbone import build_backbone
from multiguard.models.classifier import ModelOptions

RULE, SIZE, RADII = TopK(5, 3), 448, (0.25, 0.5, 1.0)
FITTED = 400  # training images of the head
BARE = AttackConfig(steps=20, starts=1, box=True)
NOISY = AttackConfig(steps=10, starts=1, copies=4, pick_draws=16, draws=100, box=True)


def ordinary_network(root: Path, weights: str) -> nn.Module:
    """EfficientNet-Lite0 with its normalisation inside, and a linear head fitted to images without noise."""
    pixels = load_pixels(subset(open_dataset("coco", root=root, split="train", size=SIZE), FITTED))
    backbone = build_backbone("lite:0", len(pixels.label_names), weights)
    options = ModelOptions(labels=pixels.label_names, output="logits", mean=backbone.mean, std=backbone.std)
    module = options.make_classifier(backbone.network, "ordinary", None).module().eval()
    head, seen = [each for each in module.modules() if isinstance(each, nn.Linear)][-1], []
    hook = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        for start in range(0, len(pixels), 8):
            module(torch.from_numpy(pixels.images[start : start + 8]).float() / 255)
    hook.remove()
    features, targets = torch.cat(seen), torch.from_numpy(pixels.targets).float()
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2, weight_decay=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(head(features), targets).backward()
        optimizer.step()
    return module


def main(root: Path, weights: str, count: int = 8) -> None:
    """Print a row per classifier: its recall at 5 labels, and how many of the 5 change at each radius."""
    dataset = subset(open_dataset("coco", root=root, split="val", size=SIZE), 4 * count, seed=1)
    chosen = [sample for sample in map(dataset.__getitem__, range(len(dataset))) if sample.labels][:count]
    images, truth = np.stack([sample.image for sample in chosen]), [list(sample.labels) for sample in chosen]
    tagger = load("coco")
    models: dict[str, tuple[Any, Any, AttackConfig]] = {
        "ordinary": (ordinary_network(root, weights), TopK(5, 5), BARE),
        "coco without noise": (tagger, TopK(5, 5), BARE),
        "coco smoothed": (Smoother(tagger, sigma=0.5, k_max=3), RULE, NOISY),
    }
    for name, (model, rule, config) in models.items():
        for radius in RADII:
            began = time.perf_counter()
            found = pgd(model, images, Change(), rule, radius=radius, config=config)
            gone = (found.labels_before & ~found.labels_after).sum(axis=1)
            recalls = [found.labels_before[row, own].mean() for row, own in enumerate(truth)]
            after = [found.labels_after[row, own].mean() for row, own in enumerate(truth)]
            seconds = time.perf_counter() - began
            print(
                f"{name}, R = {radius}: {gone.mean():.2f} of {found.labels_before.sum(1).mean():.1f} labels change, "
                f"recall {np.mean(recalls):.2f} -> {np.mean(after):.2f}, {len(images)} images, {seconds:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
