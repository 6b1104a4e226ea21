"""Draws the votes of docs/results.md on one GPU: `python -m benchmarks.evidence COCO OUT --lite2 FILE`.

COCO holds MS-COCO 2014 in its official layout, all of train2014. FILE is a .safetensors file of timm's
tf_efficientnet_lite2 (ImageNet). OUT gets the votes folders under the names that `python -m benchmarks.results OUT`
reads, all of the built-in network `coco`; two short trainings of its architecture that differ in the noise alone;
sampler.txt and a log of each step. What is timed comes first and alone; then votes, the attack and training share the
GPU. Steps that are done are not repeated, and commands that were interrupted resume. An H200 takes half an hour or
more.

`--rehearse` runs every step with a few images and draws, without the benchmark, to see that all of them work. `--only`
runs some of the steps; their names are those of the logs.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

_MODEL, _SIGMA = "coco", 0.5  # of the votes with more draws, and of the attack
_OTHERS = (0.25, 1, 2)
_TRAINING = shlex.split(
    "--model pool:2+unet:40+lite:2@288 --size 448 --set split=train --set seed=0 --set val_split=train "
    "--set optimizer=adamw --set weight_decay=0.05 --set lr=0.0015 --set loss=asl+softmax --set crop=0.25 "
    "--set colour=0.4 --set cutmix=0.1 --set dropout=0.2 --set drop_path=0.1 --set ema=0.9992 --set keep=last"
)
_ARMS = {"noise": ("--sigma", 0.12, "--set", "sigma_max=2"), "clean": ("--sigma", 0)}


@dataclass(frozen=True)
class Sizes:
    """How much is drawn and trained."""

    images: int = 500
    attacked: int = 100  # images
    draws: int = 1000
    many: int = 10_000  # draws of the main votes
    most: int = 100_000  # adaptive draws, of images that are still undecided
    batch: int = 512
    train_images: int | None = None
    val_images: int = 2000
    epochs: int = 6
    train_batch: int = 256


_REHEARSAL = Sizes(2, 1, 40, 60, 60, 16, 64, 8, 1, 8)


class Evidence:
    """The steps, each a command with its log."""

    def __init__(self, coco: Path, out: Path, lite2: Path, only: Sequence[str], *, rehearse: bool) -> None:
        self.coco, self.out, self.lite2, self.only, self.rehearse = coco, out, lite2, only, rehearse
        self.sizes = _REHEARSAL if rehearse else Sizes()
        for folder in ("logs", "models"):
            (out / folder).mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        """All of it: what is timed alone, then voting and training side by side."""
        sides = (self._main, self._attacked, self._other_noises, self._trained)
        known = [step.log for side in (self._timed, *sides) for step in side()]
        if strange := [name for name in self.only if name not in known]:
            raise SystemExit(f"no step {', '.join(strange)}; --only takes {', '.join(known)}")
        self._each(self._timed())
        with ThreadPoolExecutor() as pool:
            for lane in [pool.submit(self._each, side()) for side in sides]:
                lane.result()

    def _each(self, steps: Iterable["Step"]) -> None:
        for step in steps:
            if not self.only or step.log in self.only:
                step()

    def _timed(self) -> Iterator["Step"]:
        """Adaptive draws, which go on only for images that are undecided at R = 0.5 or 1; the speed of sampling."""
        plan = ("--draws", "adaptive", "--set", f"max_draws={self.sizes.most}", "--radius", "0.5,1")
        yield self._vote("sigma-0.5/votes-adaptive", _MODEL, _SIGMA, *plan, "--k-prime", 3, "--k", 10)
        if not self.rehearse:
            command = [sys.executable, "-m", "benchmarks.sampler_gpu", "--parts", "built-in", "light", "adaptive"]
            yield Step(self.out, "sampler", command, copy=self.out / "sampler.txt")

    def _main(self) -> Iterator["Step"]:
        yield self._vote("sigma-0.5/votes", _MODEL, _SIGMA, "--draws", self.sizes.many)

    def _other_noises(self) -> Iterator["Step"]:
        for sigma in _OTHERS:
            yield self._vote(f"sigma-{sigma}/votes", _MODEL, sigma, "--draws", self.sizes.draws)

    def _attacked(self) -> Iterator["Step"]:
        """An attack at k = k', where 500 draws tell which labels are returned."""
        certificates, rule = self.out / "certificates", ("--k-prime", 3, "--k", 3)
        yield self._multiguard("certify", self.out / "sigma-0.5/votes-adaptive", *rule, "--out", certificates)
        options = ("--attack", "pgd", "--radius", "0.5,1", "--images", self.sizes.attacked, "--set", "copies=16")
        yield self._multiguard("attack", certificates, *options, "--out", self.out / "sigma-0.5/attack")

    def _trained(self) -> Iterator["Step"]:
        """The same network and schedule with noise and without, and what both vote under noise."""
        for name, noise in _ARMS.items():
            yield self._train(name, *noise)
            yield self._vote(f"{name}/votes", self.out / "models" / name, _SIGMA, "--draws", self.sizes.draws)

    def _vote(self, name: str, model: object, sigma: float, *options: object) -> "Step":
        data = ("--data", "coco", "--root", self.coco, "--images", self.sizes.images, "--seed", 0)
        how = ("--noise-seed", 0, "--set", f"batch_size={self.sizes.batch}", "--set", "k_max=10")
        options = ("--model", model, "--sigma", sigma, *data, *how, *options)
        return replace(self._multiguard("vote", *options, "--out", self.out / name), name=name)

    def _train(self, name: str, *noise: object) -> "Step":
        sizes = self.sizes
        data = ("--data", "coco", "--root", self.coco, "--set", f"val_images={sizes.val_images}")
        some = () if sizes.train_images is None else ("--images", sizes.train_images)
        how = ("--epochs", sizes.epochs, "--batch-size", sizes.train_batch, "--weights", self.lite2)
        fast = () if self.rehearse else ("--set", "compile=true")
        options = (*data, *some, *_TRAINING, *noise, *how, *fast, "--out", self.out / "models" / name)
        return replace(self._multiguard("train", *options), name=f"train {name}")

    def _multiguard(self, *words: object) -> "Step":
        command = [sys.executable, "-m", "multiguard", *map(str, words)]
        return Step(self.out, f"{words[0]} {Path(command[-1]).name}", command)


@dataclass(frozen=True)
class Step:
    """One command; its output is its log, and where it must also go."""

    out: Path
    name: str
    command: Sequence[str]
    copy: Path | None = None

    @property
    def log(self) -> str:
        """The name of its log."""
        return self.name.replace("/", "-").replace(" ", "-")

    def __call__(self) -> None:
        """Run it unless it is done; a failure is printed and the next step follows."""
        log = self.out / "logs" / f"{self.log}.log"
        done, started = log.with_suffix(".done"), time.perf_counter()
        if done.exists():
            return
        with log.open("wb") as file:
            failed = subprocess.run(self.command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
        seconds = time.perf_counter() - started
        print(f"{self.name}: {f'FAILED, see {log}' if failed else f'{seconds:.1f} s'}", flush=True)
        if failed:
            return
        if self.copy is not None:
            shutil.copy(log, self.copy)
        done.touch()


def main() -> None:
    """Read the arguments and run the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("coco", type=Path, help="the folder of MS-COCO 2014")
    parser.add_argument("out", type=Path, help="the folder of votes folders to write")
    parser.add_argument("--lite2", type=Path, required=True, help="ImageNet weights of tf_efficientnet_lite2")
    parser.add_argument("--rehearse", action="store_true", help="a few images and draws of each")
    parser.add_argument("--only", nargs="+", default=(), metavar="STEP", help="the steps to run")
    given = parser.parse_args()
    Evidence(given.coco, given.out, given.lite2, given.only, rehearse=given.rehearse).run()


if __name__ == "__main__":
    main()
