"""Draws the votes of docs/results.md on one GPU: `python -m benchmarks.evidence COCO OUT --lite0 FILE --lite2 FILE`.

COCO holds MS-COCO 2014 in its official layout, all of train2014. The files are .safetensors of timm's
tf_efficientnet_lite0 and tf_efficientnet_lite2 (ImageNet). OUT gets the votes folders under the names that
`python -m benchmarks.results OUT` reads, the networks that are not built in, sampler.txt and a log of each step. What
is timed comes first and alone; then votes, the attack and training share the GPU. Steps that are done are not repeated,
and commands that were interrupted resume. An H200 takes half an hour or more.

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

from multiguard.certify import Gaussian
from multiguard.models.card import WEIGHTS_FILE, read_card, write_card
from multiguard.models.spec import CARD_FILE

_TRAINING = shlex.split(
    "--set split=train --size 448 --set seed=0 --set val_split=train --set optimizer=adamw --set weight_decay=0.05 "
    "--set crop=0.25 --set colour=0.4 --set dropout=0.2 --set drop_path=0.1 --set keep=last --set half=true"
)
_CLEAN = shlex.split("--model lite:2@288 --sigma 0 --set loss=bce --set lr=0.0015")
_OLDER = (
    shlex.split(  # the network that `older` has from 3,000 images; what is not named here is the default of `train`
        "--set split=train --size 224 --model lite:0 --sigma 0.5 --epochs 5 --batch-size 128 --set seed=0 "
        "--set val_split=train --set keep=last"
    )
)
_NOISY = shlex.split(
    "--sigma 1 --set loss=asl+softmax --set lr=7e-4 --set cutmix=0.1 --set ema=0.9992 --set denoise_weight=0.125"
)


@dataclass(frozen=True)
class Sizes:
    """How much is drawn and trained."""

    images: int = 500
    attacked: int = 100  # images
    training: int = 200  # training images that choose k' and t
    draws: int = 1000
    many: int = 10_000  # draws of the main network
    most: int = 6000  # adaptive draws: about 1,000 on average
    batch: int = 512
    train_images: int | None = None
    val_images: int = 2000
    epochs: int = 3
    train_batch: int = 256


_REHEARSAL = Sizes(2, 1, 2, 40, 60, 60, 16, 64, 8, 1, 8)


class Evidence:
    """The steps, each a command with its log."""

    def __init__(self, coco: Path, out: Path, lite: tuple[Path, Path], only: Sequence[str], *, rehearse: bool) -> None:
        self.coco, self.out, self.only, self.rehearse = coco, out, only, rehearse
        self.lite0, self.lite2 = lite
        self.sizes = _REHEARSAL if rehearse else Sizes()
        for folder in ("logs", "models"):
            (out / folder).mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        """All of it: what is timed alone, then voting and training side by side."""
        sides = (self._trained, self._main, self._attacked, self._built_in)
        known = [step.log for side in (self._timed, *sides, self._votes_of_trained) for step in side()]
        if strange := [name for name in self.only if name not in known]:
            raise SystemExit(f"no step {', '.join(strange)}; --only takes {', '.join(known)}")
        self._each(self._timed())
        models = self.out / "models"
        with ThreadPoolExecutor() as pool:
            lanes = [pool.submit(self._each, side()) for side in sides]
            lanes[0].result()
            if (models / "coco-1" / CARD_FILE).is_file():
                without_pooling(models / "coco-1", models / "smaller-0.5")
            lanes += [pool.submit(self._each, [step]) for step in self._votes_of_trained()]
            for lane in lanes:
                lane.result()

    def _each(self, steps: Iterable["Step"]) -> None:
        for step in steps:
            if not self.only or step.log in self.only:
                step()

    def _timed(self) -> Iterator["Step"]:
        plan = (
            "--draws",
            "adaptive",
            "--set",
            f"max_draws={self.sizes.most}",
            "--radius",
            "0.5,1",
            "--k-prime",
            3,
            "--k",
            10,
        )
        yield self._vote("coco-0.5/votes-adaptive", "coco-0.5", 0.5, *plan)
        if not self.rehearse:
            command = [sys.executable, "-m", "benchmarks.sampler_gpu", "--parts", "built-in", "light", "adaptive"]
            yield Step(self.out, "sampler", command, copy=self.out / "sampler.txt")

    def _built_in(self) -> Iterator["Step"]:
        """The other votes of the built-in networks; the network from 3,000 images again, from all training images."""
        n, training = ("--draws", self.sizes.draws), ("--split", "train")
        yield self._vote("coco-0.25/votes", "coco-0.25", 0.25, *n)
        for sigma in (0.5, 0.25):
            yield self._vote(f"coco-{sigma}/votes-train", f"coco-{sigma}", sigma, *n, *training)
        sets = (*n, "--rule", "threshold", "--set", "score_threshold=0.5")
        yield self._vote("coco-0.5/votes-threshold", "coco-0.5", 0.5, *sets)
        yield self._vote("coco-0.5/votes-threshold-train", "coco-0.5", 0.5, *sets, *training)
        yield self._train("full-data", *_OLDER, "--weights", self.lite0)
        yield self._vote("full-data/votes", self.out / "models" / "full-data", 0.5, *n)

    def _main(self) -> Iterator["Step"]:
        yield self._vote("coco-0.5/votes", "coco-0.5", 0.5, "--draws", self.sizes.many)

    def _attacked(self) -> Iterator["Step"]:
        """An attack at k = k', where 500 draws tell which labels are returned."""
        certificates, rule = self.out / "certificates", ("--k-prime", 3, "--k", 3)
        yield self._multiguard("certify", self.out / "coco-0.5/votes-adaptive", *rule, "--out", certificates)
        options = ("--attack", "pgd", "--radius", "0.5,1", "--images", self.sizes.attacked, "--set", "copies=16")
        yield self._multiguard("attack", certificates, *options, "--out", self.out / "coco-0.5/attack")

    def _trained(self) -> Iterator["Step"]:
        """A network without noise, and the one of sigma 1 that it teaches."""
        teacher = self.out / "models" / "clean"
        start = Path(__file__).parents[1] / "src/multiguard/models/weights/coco-0.5"
        yield self._train("clean", *self._larger(), *_CLEAN, "--weights", self.lite2)
        yield self._train("coco-1", *self._larger(), *_NOISY, "--model", start, "--set", f"teacher={teacher}")

    def _votes_of_trained(self) -> Iterator["Step"]:
        """The votes of both; those of sigma 1 with its pooling and without."""
        n, models = ("--draws", self.sizes.draws), self.out / "models"
        yield self._vote("clean/votes", models / "clean", 0.5, *n)
        yield self._vote("coco-1/votes", models / "coco-1", 1.0, *n)
        yield self._vote("coco-1/votes-train", models / "coco-1", 1.0, *n, "--split", "train")
        yield self._vote("smaller-0.5/votes", models / "smaller-0.5", 0.5, *n)

    def _vote(self, name: str, model: object, sigma: float, *options: object) -> "Step":
        count = self.sizes.training if "train" in options else self.sizes.images
        ranks = () if "threshold" in options else ("--set", "k_max=10")
        data = ("--data", "coco", "--root", self.coco, "--images", count, "--seed", 0)
        how = ("--noise-seed", 0, "--set", f"batch_size={self.sizes.batch}")
        options = ("--model", model, "--sigma", sigma, *data, *how, *ranks, *options)
        return replace(self._multiguard("vote", *options, "--out", self.out / name), name=name)

    def _train(self, name: str, *options: object) -> "Step":
        sizes = self.sizes
        data = ("--data", "coco", "--root", self.coco, "--set", f"val_images={sizes.val_images}")
        some = () if sizes.train_images is None else ("--images", sizes.train_images)
        step = self._multiguard("train", *data, *some, *options, "--out", self.out / "models" / name)
        return replace(step, name=f"train {name}")

    def _larger(self) -> tuple[object, ...]:
        """The options of training at 448 pixels."""
        how = ("--epochs", self.sizes.epochs, "--batch-size", self.sizes.train_batch)
        return (*how, *(() if self.rehearse else ("--set", "compile=true")), *_TRAINING)

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


def without_pooling(folder: Path, out: Path) -> None:
    """The same network for images of half the size, which the mean of 2 x 2 pixels made, and half the noise."""
    card = read_card(folder)
    out.mkdir(exist_ok=True)
    shutil.copy(folder / WEIGHTS_FILE, out / WEIGHTS_FILE)
    height, width = (side // 2 for side in card.image_size)
    small = card.architecture.removeprefix("pool:2+")
    write_card(out, replace(card, architecture=small, image_size=(height, width), noise=Gaussian(0.5)))


def main() -> None:
    """Read the arguments and run the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("coco", type=Path, help="the folder of MS-COCO 2014")
    parser.add_argument("out", type=Path, help="the folder of votes folders to write")
    parser.add_argument("--lite0", type=Path, required=True, help="ImageNet weights of tf_efficientnet_lite0")
    parser.add_argument("--lite2", type=Path, required=True, help="ImageNet weights of tf_efficientnet_lite2")
    parser.add_argument("--rehearse", action="store_true", help="a few images and draws of each")
    parser.add_argument("--only", nargs="+", default=(), metavar="STEP", help="the steps to run")
    given = parser.parse_args()
    Evidence(given.coco, given.out, (given.lite0, given.lite2), given.only, rehearse=given.rehearse).run()


if __name__ == "__main__":
    main()
