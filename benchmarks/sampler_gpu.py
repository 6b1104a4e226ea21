"""The sampler's speed relative to the bare forward pass on one CUDA device: `python -m benchmarks.sampler_gpu`.

Needs timm but no network access: weights are random. Rates are medians of interleaved rounds. The bare forward pass
is the hardest one to match: weights and a prepared batch in bfloat16, channels last, compiled, nothing copied back.
The loop of the paper's public code is float32, batch 32, noise made on the CPU, one-hot counting.
`--parts` measures some of it: `--parts light adaptive` takes about a minute. `built-in` is the network of `coco`.
"""

import argparse
import io
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from multiguard.certify import TopK
from multiguard.data.sample import Sample
from multiguard.models import Classifier, load
from multiguard.smooth import AdaptivePlan, Smoother, vote_dataset
from multiguard.smooth.noise_source import key_words, noise_key
from multiguard.smooth.torch_engine import pack_labels, standard_normal
from multiguard.votes import read_votes

ROUNDS = 4
SIGMA = 0.5
GOAL = 0.97  # of the bare forward
HALF = (0.5, 0.5, 0.5)
Row = tuple[str, str, str]


def build(name: str, labels: int) -> Classifier:
    """A timm network with random weights and its normalisation."""
    import timm

    network = timm.create_model(name, num_classes=labels)
    names = [str(label) for label in range(labels)]
    return load(network, labels=names, output="logits", mean=HALF, std=HALF, name=name)


def random_image(size: int, seed: int = 0) -> NDArray[np.uint8]:
    """A generated image."""
    return np.random.default_rng(seed).integers(0, 256, (3, size, size), dtype=np.uint8)


def rate(work: Callable[[], int]) -> float:
    """Images per second of one call, which returns the number of images."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    images = work()
    torch.cuda.synchronize()
    return images / (time.perf_counter() - start)


def medians(*works: Callable[[], int]) -> list[float]:
    """The median rate of each function, in interleaved rounds; the first round, which compiles, is not counted."""
    rounds = [[rate(work) for work in works] for _ in range(ROUNDS + 1)][1:]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def bare_forward(classifier: Classifier, size: int, rows: int, batches: int) -> Callable[[], int]:
    """The network alone, all in bfloat16 and compiled, on a prepared batch."""
    network = classifier.network
    assert isinstance(network, nn.Module)
    network = network.eval().cuda().to(torch.bfloat16, memory_format=torch.channels_last)  # type: ignore[call-overload]
    batch = torch.rand(rows, 3, size, size, device="cuda", dtype=torch.bfloat16)
    batch = batch.contiguous(memory_format=torch.channels_last)
    compiled = torch.compile(network, dynamic=False)

    def work() -> int:
        with torch.no_grad():
            for _ in range(batches):
                compiled(batch)
        return batches * rows

    return work


def sampled(smoother: Smoother, size: int, draws: int) -> Callable[[], int]:
    """The sampler on one image."""
    image = random_image(size)

    def work() -> int:
        return len(smoother.votes(image, draws, noise_seed=0, image_id="bench"))

    return work


def public_loop(name: str, labels: int, size: int, batches: int) -> Callable[[], int]:
    """The loop of the paper's public code."""
    classifier = build(name, labels).eval().cuda()
    image = torch.from_numpy(random_image(size)).float() / 255

    def work() -> int:
        counts = np.zeros(labels, dtype=np.int64)
        with torch.no_grad():
            for _ in range(batches):
                batch = image.repeat(32, 1, 1, 1)
                noise = torch.randn_like(batch) * SIGMA
                scores = classifier((batch + noise).cuda())
                for label in scores.topk(3).indices.flatten().cpu().numpy():
                    counts += np.eye(1, labels, label, dtype=np.int64)[0]
        return batches * 32

    return work


def speed(make: Callable[[], Classifier], size: int, rows: int, batches: int) -> tuple[list[Row], Smoother, float]:
    """The sampler against the bare forward of the same network at the same batch size."""
    smoother = Smoother(make(), sigma=SIGMA, batch_size=rows, device="cuda")
    bare, draws = medians(bare_forward(make(), size, rows, batches), sampled(smoother, size, rows * batches))
    what = f"{smoother.classifier.name} {size}px, batch {rows}"
    table = [
        (f"{what}: bare bf16 forward", f"{bare:,.0f} images/s", ""),
        (f"{what}: sampler", f"{draws:,.0f} draws/s", ""),
        ("  sampler / bare", f"{draws / bare:.3f}", f">= {GOAL}"),
    ]
    return show(table), smoother, draws


def against_public_loop(name: str, labels: int, size: int, draws: float) -> list[Row]:
    """The speedup over the loop of the paper's public code."""
    (loop,) = medians(public_loop(name, labels, size, 8))
    return show(
        [
            ("  the public code's loop", f"{loop:,.0f} images/s", ""),
            ("  sampler / loop", f"{draws / loop:.1f}", ">= 20"),
        ]
    )


def noise_cost(rows: int, size: int) -> list[Row]:
    """The noise alone, compiled: the time per batch and the values per second."""
    words = torch.tensor([key_words(noise_key(0, "a"))] * rows, dtype=torch.int32, device="cuda")
    draws = torch.arange(rows, device="cuda")
    compiled = torch.compile(lambda w, d: standard_normal(w, d, (3, size, size)).bfloat16(), dynamic=False)

    def work() -> int:
        for _ in range(20):
            compiled(words, draws)
        return 20

    (batches,) = medians(work)
    numbers = rows * 3 * size * size
    return show([(f"noise alone, {rows} x {size}px", f"{1e3 / batches:.2f} ms", f"{numbers * batches / 1e9:.0f} G/s")])


def noise_identity() -> list[Row]:
    """The noise of 64 rows in batches of 1, 7 and 64, on the device and on the CPU."""
    words = torch.tensor([key_words(noise_key(0, str(i % 3))) for i in range(64)], dtype=torch.int32)
    draws = torch.arange(64) * 1_000_003
    compiled = torch.compile(standard_normal, dynamic=False)

    def on_device(rows: int) -> Tensor:
        parts = zip(words.cuda().split(rows), draws.cuda().split(rows), strict=True)
        return torch.cat([compiled(w, d, (3, 64, 64)) for w, d in parts]).cpu()

    full, cpu = on_device(64), standard_normal(words, draws, (3, 64, 64))
    same = all(torch.equal(on_device(rows), full) for rows in (1, 7))
    close = (full - cpu).abs().max().item()
    return show(
        [
            ("noise in batches of 1, 7, 64", "identical" if same else "DIFFERENT", "identical"),
            ("largest difference from the CPU's evaluation", f"{close:.1e}", "< 1e-3"),
        ]
    )


def peak_memory(smoother: Smoother, size: int) -> list[Row]:
    """The device memory of 1,000 and of 100,000 draws."""
    peaks = []
    for draws in (1_000, 100_000):
        torch.cuda.reset_peak_memory_stats()
        sampled(smoother, size, draws)()
        peaks.append(torch.cuda.max_memory_allocated() / 2**20)
    return show([("peak memory, 1,000 / 100,000 draws", f"{peaks[0]:,.0f} / {peaks[1]:,.0f} MiB", "equal")])


def halving(size: int) -> list[Row]:
    """A batch too large for the device gets the votes of one that fits; in float32, which is exact enough."""
    options = {"sigma": SIGMA, "precision": "float32", "compile": False, "device": "cuda"}
    classifier = build("tf_efficientnet_lite0", 80)
    fits = Smoother(classifier, batch_size=16, **options).votes(random_image(size), 2048, noise_seed=0, image_id="a")  # type: ignore[arg-type]
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 3 * 2**30) / total)
    crowded = Smoother(classifier, batch_size=2048, **options)  # type: ignore[arg-type]
    halved = crowded.votes(random_image(size), 2048, noise_seed=0, image_id="a")
    torch.cuda.set_per_process_memory_fraction(1.0)
    left = crowded._sizer.limit
    same = float(np.mean(fits == halved))
    return show(
        [
            ("rows that fit after halving, of 2,048", str(left), "< 2048"),
            ("ranks equal to batches of 16", f"{same:.4f}", "near 1"),
        ]
    )


class Jpegs:
    """A dataset of JPEG files in memory, decoded on access."""

    name = "generated"

    def __init__(self, count: int, size: int, labels: int) -> None:
        self.label_names = [str(label) for label in range(labels)]
        self.ids = [f"{number}.jpg" for number in range(count)]
        self._files = []
        for number in range(count):
            file = io.BytesIO()
            Image.fromarray(random_image(size, number).transpose(1, 2, 0)).save(file, "JPEG")
            self._files.append(file.getvalue())

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int, /) -> Sample:
        pixels = np.asarray(Image.open(io.BytesIO(self._files[index])).convert("RGB"))
        return Sample(self.ids[index], np.ascontiguousarray(pixels.transpose(2, 0, 1)), (index % 3,))


def whole_dataset(smoother: Smoother, size: int, draws: int, alone: float) -> list[Row]:
    """A dataset end to end: decoded, voted on, written and read back."""
    jpegs = Jpegs(96, size, len(smoother.classifier.label_names))
    with tempfile.TemporaryDirectory() as folder:

        def work() -> int:
            vote_dataset(smoother, jpegs, folder, draws=draws, noise_seed=0, shard_images=32)
            return len(jpegs) * draws

        found = rate(work)
        votes = read_votes(folder)
        alone_votes = smoother.votes(jpegs[95].image, draws, noise_seed=0, image_id="95.jpg")
        same = np.array_equal(votes.ranked(95), alone_votes)  # type: ignore[arg-type]
    return show(
        [
            (f"96 JPEGs x {draws} draws, written to disk", f"{found:,.0f} draws/s", ""),
            ("  of the rate of one image", f"{found / alone:.3f}", "near 1"),
            ("  last image's votes as drawn alone", "equal" if same else "differ in last bits", ""),
        ]
    )


def threshold_rule(size: int, top_k: float) -> list[Row]:
    """Sets instead of ranks: their rate, and their bits against NumPy's packing of the same scores."""
    smoother = Smoother(
        build("tf_efficientnet_lite0", 83), sigma=SIGMA, score_threshold=0.5, batch_size=512, device="cuda"
    )
    (found,) = medians(sampled(smoother, size, 512 * 40))
    scores = torch.randn(512, 83, device="cuda").bfloat16()
    table = torch.compile(pack_labels, dynamic=False)(scores, 0.25).cpu().numpy()
    expected = np.packbits((scores.float() >= 0.25).cpu().numpy(), axis=1, bitorder="little")
    same = np.array_equal(table[:, :-1], expected) and bool(table[:, -1].all())
    return show(
        [
            ("threshold rule, 83 labels", f"{found:,.0f} draws/s", ""),
            ("  of the rate of the top-k rule", f"{found / top_k:.3f}", "near 1"),
            ("  sets packed on the device", "identical" if same else "DIFFERENT", "identical"),
        ]
    )


def adaptive_run(smoother: Smoother, size: int, alone: float) -> list[Row]:
    """Adaptive runs end to end against the rate of one image: every image with many decisions, and with only one."""
    labels, rows = len(smoother.classifier.label_names), list[Row]()
    rule, pilot = TopK(10, 3), 50
    # Nothing is ever given up, and the second radius is too large to be proved: each image takes all draws.
    longest = AdaptivePlan(rule, radii=(0.5, 1.9), max_draws=1000, forecast_margin=math.inf)
    # The votes of a network with random weights hardly change with the noise: one decision is enough.
    shortest = AdaptivePlan(rule, radii=(0.1, 0.5), max_draws=1000)
    for plan, count, goal in ((longest, 384, ">= 0.9"), (shortest, 2048, "")):
        few, jpegs = Jpegs(32, size, labels), Jpegs(count, size, labels)
        options = {"adaptive": plan, "pilot_draws": pilot, "noise_seed": 0, "shard_images": 32}
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as first:

            def work(data: Jpegs = jpegs, to: str = folder, how: dict[str, Any] = options) -> int:
                vote_dataset(smoother, data, to, **how)
                votes = read_votes(to)
                return sum(pilot + votes.draws_of(position) for position in range(len(votes)))

            vote_dataset(smoother, few, first, **options)  # type: ignore[arg-type]  # starts the processes that decide
            found, votes = rate(work), read_votes(folder)
            ranked = votes.ranked(31, adaptive=True)
            mean = np.mean([votes.draws_of(position) for position in range(len(votes))])
            same = np.mean(ranked == smoother.votes(jpegs[31].image, len(ranked), noise_seed=0, image_id="31.jpg"))
        rows += show(
            [
                (f"{len(jpegs):,} JPEGs, adaptive, {mean:,.0f} draws on average", f"{found:,.0f} draws/s", ""),
                ("  of the rate of one image", f"{found / alone:.3f}", goal),
                ("  ranks of one image as drawn alone", f"{same:.4f}", "near 1"),
            ]
        )
    return rows


def show(rows: list[Row]) -> list[Row]:
    """Print rows as soon as they are known."""
    for what, value, goal in rows:
        print(f"{what:<58}{value:>24}  {goal}", flush=True)
    return rows


PARTS = ("noise", "light", "memory", "dataset", "threshold", "adaptive", "heavy", "loop", "built-in", "halving")


def main() -> None:
    """Measure the parts, then print the complete table again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parts = set(parser.parse_args().parts)
    start = time.perf_counter()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    table = noise_identity() if "noise" in parts else []
    if parts & {"heavy", "loop"}:
        rows, _, heavy_rate = speed(partial(build, "resnet101", 20), 448, 128, 64)
        table += rows + noise_cost(128, 448)
        table += against_public_loop("resnet101", 20, 448, heavy_rate) if "loop" in parts else []
    table += speed(partial(load, "coco"), 448, 512, 32)[0] if "built-in" in parts else []
    if parts & {"light", "memory", "dataset", "threshold", "adaptive"}:
        rows, light, light_rate = speed(partial(build, "tf_efficientnet_lite0", 80), 224, 512, 160)
        table += rows + noise_cost(512, 224)
        table += peak_memory(light, 224) if "memory" in parts else []
        table += whole_dataset(light, 224, 1_000, light_rate) if "dataset" in parts else []
        table += threshold_rule(224, light_rate) if "threshold" in parts else []
        table += adaptive_run(light, 224, light_rate) if "adaptive" in parts else []
    table += halving(224) if "halving" in parts else []
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, {time.perf_counter() - start:.0f} s in total")
    show(table)


if __name__ == "__main__":
    main()
