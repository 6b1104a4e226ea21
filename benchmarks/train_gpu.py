"""Training on one machine: noisy mAP with and without noise training, and its speed next to that of the bare network.

One call decodes the images once and then trains every combination of a grid, for instance

    python -m benchmarks.train_gpu --root coco2014 --weights tf_efficientnet_lite0.safetensors \
        --grid epochs=45,60 --grid lr=1e-3,5e-4 --grid crop=0.5,0.35

With `--parts scale --tile 82081 --grid batch=128` it measures the speed of one epoch over that many images (the given
ones, repeated), kept on the device and streamed to it.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from accelerate import Accelerator

from multiguard.certify import Gaussian
from multiguard.data import Pixels, load_pixels
from multiguard.data.config import DataConfig
from multiguard.models.backbone import build_backbone
from multiguard.models.classifier import Classifier
from multiguard.models.model_folder import load_folder
from multiguard.train import TrainConfig
from multiguard.train.checkpoint import new_card
from multiguard.train.loop import fit
from multiguard.train.losses import asymmetric_loss
from multiguard.train.start import open_splits
from multiguard.train.trainer import Feed, Trainer, noisy_map


def main() -> None:
    """Read the arguments, decode once, run every cell and print one line each."""
    args = _arguments()
    counts = {"images": args.images, "val_images": args.val_images}
    data = DataConfig(args.data, root=args.root, size=args.size)
    started = time.perf_counter()
    pixels, val_pixels = map(load_pixels, open_splits(TrainConfig(**counts), data))
    print(f"decoded {len(pixels)} + {len(val_pixels)} images in {time.perf_counter() - started:.1f} s")
    if "rate" in args.parts:
        _print_bare_rates(args, pixels)
    cells = _cells(args.grid)
    if "scale" in args.parts:
        for cell in cells:
            _print_scale(args, cell, _tiled(pixels, args.tile), val_pixels)
    arms = [arm for arm in ("noise", "clean") if arm in args.parts]
    if arms:
        print(
            f"{'arm':6} {'noisy mAP':>9} {'clean mAP':>9} {'epoch':>5} {'images/s':>9} {'seconds':>8}  hyperparameters"
        )
    for arm, cell in itertools.product(arms, cells):
        _run_cell(args, arm, cell, pixels, val_pixels)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="coco")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--model", default="timm:tf_efficientnet_lite0")
    parser.add_argument("--weights")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--sigma", type=float, default=0.5)
    parser.add_argument("--images", type=int)
    parser.add_argument("--val-images", type=int)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--grid", action="append", default=[], metavar="OPTION=VALUE,VALUE")
    parser.add_argument("--tile", type=int, default=82_081, help="images of part `scale`")
    parser.add_argument("--parts", default="rate,noise,clean", type=lambda text: text.split(","))
    parser.add_argument("--out", type=Path, help="keep the model folders here")
    return parser.parse_args()


def _cells(grid: list[str]) -> list[dict[str, object]]:
    axes = []
    for axis in grid:
        name, _, values = axis.partition("=")
        axes.append([(name, _value(text)) for text in values.split(",")])
    return [dict(cell) for cell in itertools.product(*axes)]


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _run_cell(args: argparse.Namespace, arm: str, cell: dict[str, object], pixels: Pixels, val_pixels: Pixels) -> None:
    """Train one cell. The arm without noise is chosen by clean mAP, as one would without knowing of noise."""
    given = {"sigma": args.sigma if arm == "noise" else 0.0, "compile": args.compile, **cell}
    config = TrainConfig(**given).resolved(args.data, (args.size, args.size))
    torch.manual_seed(config.seed)
    backbone = build_backbone(args.model, len(pixels.label_names), args.weights, dropout=config.dropout)
    label = "-".join([arm, *(f"{name}={value}" for name, value in cell.items())])
    with TemporaryDirectory() as scratch:
        out = args.out / label if args.out else Path(scratch)
        started = time.perf_counter()
        card = new_card(backbone, pixels, val_pixels, (args.size, args.size), config, {})
        result = fit(card, backbone.network, pixels, val_pixels, config, out)
        seconds = time.perf_counter() - started
        device = "cuda" if torch.cuda.is_available() else "cpu"
        noisy = noisy_map(load_folder(out).to(device), val_pixels, Gaussian(args.sigma), seed=config.seed)
    rates = [record["images_per_second"] for record in result.card.history]
    best = result.kept
    print(
        f"{arm:6} {noisy:9.4f} {best['map_clean']:9.4f} {best['epoch']:5d} {statistics.median(rates):9.0f} "
        f"{seconds:8.1f}  {cell or 'default'}",
        flush=True,
    )


def _tiled(pixels: Pixels, count: int) -> Pixels:
    """Repeat the images until there are this many."""
    index = np.arange(count) % len(pixels)
    ids = tuple(str(number) for number in range(count))
    return Pixels(pixels.name, pixels.label_names, ids, pixels.images[index], pixels.targets[index])


def _print_scale(args: argparse.Namespace, cell: dict[str, object], pixels: Pixels, val_pixels: Pixels) -> None:
    """Print the speed and the memory of one epoch over many images, on the device and streamed."""
    config = TrainConfig(**{"sigma": args.sigma, **cell}).resolved(args.data, (args.size, args.size))
    for resident in (True, False):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        few = _tiled(pixels, config.batch * 8)  # warms up
        trainer = Trainer(_classifier(args, pixels), few, val_pixels, config, Accelerator())
        trainer.run_epoch(0)
        trainer.feed = Feed(pixels, trainer.device, resident=resident)
        record = trainer.run_epoch(0)
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(
            f"{len(pixels):,} images {'on the device' if resident else 'streamed'}, batch {config.batch}, "
            f"{record['images_per_second']:,.0f} images/s, "
            f"{peak:.1f} GiB on the device",
            flush=True,
        )
        del trainer


def _print_bare_rates(args: argparse.Namespace, pixels: Pixels) -> None:
    for batch, compiled in itertools.product((32, 64), (False, True)):
        if compiled and not args.compile:
            continue
        rate = _bare_rate(args, pixels, batch, compiled)
        how = "compiled" if compiled else "eager"
        print(f"bare forward+backward, batch {batch}, {how}: {rate:,.0f} images/s", flush=True)


def _bare_rate(args: argparse.Namespace, pixels: Pixels, batch: int, compiled: bool) -> float:
    """Images per second of only forward, loss and backward on one batch that stays on the device."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    classifier = _classifier(args, pixels).to(device).to(memory_format=torch.channels_last)
    module = torch.compile(classifier) if compiled else classifier
    images = torch.rand(batch, 3, args.size, args.size, device=device).to(memory_format=torch.channels_last)
    targets = torch.from_numpy(pixels.targets[:batch]).to(device).float()

    def once() -> None:
        classifier.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = module(images)
        asymmetric_loss(logits.float(), targets).backward()

    repeats = 100 if device.type == "cuda" else 3
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        _timed(once, max(repeats // 5, 1), device)
        return repeats * batch / _timed(once, repeats, device)


def _classifier(args: argparse.Namespace, pixels: Pixels) -> Classifier:
    """The network as training starts with it."""
    start = build_backbone(args.model, len(pixels.label_names), args.weights)
    return Classifier(
        start.network, pixels.label_names, output="logits", mean=start.mean, std=start.std, name=start.architecture
    )


def _timed(once: Callable[[], None], repeats: int, device: torch.device) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        once()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
