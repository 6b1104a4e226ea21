"""Training from beginning to end: epochs, one of them kept, and going on after an interruption."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors import SafetensorError
from torch import Tensor

from multiguard.data import Pixels
from multiguard.errors import ModelError
from multiguard.io.files import file_checksum, remove_partial_files, write_atomically
from multiguard.io.lock import folder_lock
from multiguard.io.ranks import this_rank
from multiguard.models.backbone import Backbone
from multiguard.models.denoiser import FFDNet
from multiguard.models.folder import CARD_FILE, WEIGHTS_FILE, ModelCard, read_card, save_folder
from multiguard.train.checkpoint import STATE_FILE, Progress, read_progress, read_tensors, save_state
from multiguard.train.curve import draw_curve
from multiguard.train.hyperparameters import Hyperparameters, Keep
from multiguard.train.settings import described, holds_other_run, new_card, require_fit, require_own_run, run_settings
from multiguard.train.trainer import Engine, Record

LOG_FILE = "log.jsonl"
CURVE_FILE = "curve.png"
MODEL_FILES = (CARD_FILE, WEIGHTS_FILE, LOG_FILE, CURVE_FILE, STATE_FILE.as_posix())  # the card first


# Called with what is going on, how much of it is done, and how much there is.
Progressed = Callable[[str, int, int], None]


@dataclass(frozen=True)
class TrainResult:
    """What a run left behind: the model folder, its card, and the record of the epoch whose weights it holds."""

    folder: Path
    card: ModelCard
    kept: Mapping[str, Any]


def train(
    backbone: Backbone,
    pixels: Pixels,
    val_pixels: Pixels,
    recipe: Hyperparameters,
    out: Path,
    *,
    denoiser: FFDNet | None = None,
    provenance: Mapping[str, Any] | None = None,
    compiled: bool = False,
    on_epoch: Callable[[Record], None] | None = None,
    progress: Progressed | None = None,
    discard: Callable[[Path], None] | None = None,
) -> TrainResult:
    """Train to the end, or go on from the last epoch in this folder, and leave the model of one epoch in it.

    On a CPU the model is bit for bit the same whether the run was interrupted or not. Best is the highest mAP
    of the averaged weights on noisy validation images, whose noise is the same in every epoch.

    Args:
        backbone: The network to start from; its weights are changed.
        pixels: The training images.
        val_pixels: The validation images.
        recipe: Everything else that decides the outcome.
        out: The model folder: model.safetensors, model.json, log.jsonl, curve.png, state/.
        denoiser: Stands in front of the network when it is validated and saved, told the validation noise.
        provenance: What else to put on record, and to hold equal when a run goes on.
        compiled: Whether torch.compile makes the forward and backward pass.
        on_epoch: Called with the record of each epoch, on the main process.
        progress: Called with ("training", images done, images in all epochs), on the main process.
        discard: Throws away what another run left in the folder; None refuses such a folder. The same run is taken up.
    """
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    require_fit(pixels, val_pixels, recipe, accelerator.num_processes)
    splits = {
        name: described(part.name, part.ids, part.targets) for name, part in (("train", pixels), ("val", val_pixels))
    }
    _, _, height, width = pixels.images.shape
    card = new_card(backbone, pixels.label_names, (height, width), splits, recipe, denoiser, provenance or {})
    with folder_lock(out), torch.backends.cudnn.flags(enabled=True, benchmark=True):
        make_room(out, run_settings(card), discard, accelerator)
        engine = Engine(card.classifier(backbone.network), pixels, val_pixels, recipe, accelerator, denoiser, compiled)
        run = _Run(engine, card, denoiser, out, this_rank().is_main)
        run.to_the_end(on_epoch, progress)
        accelerator.wait_for_everyone()
    return TrainResult(out, read_card(out), kept_epoch(run.history, recipe.keep))


def make_room(
    out: Path, settings: Mapping[str, Any], discard: Callable[[Path], None] | None, accelerator: Accelerator
) -> None:
    """Pass only where this run may write; the main process throws another's files away while all others wait."""
    if discard is not None:
        if this_rank().may_discard and holds_other_run(out, settings):
            discard(out)
        accelerator.wait_for_everyone()
    require_own_run(out, settings)


class _Run:
    """The epochs behind, the weights to keep of them, and the files: the state first, the folder made from it."""

    def __init__(self, engine: Engine, card: ModelCard, denoiser: FFDNet | None, out: Path, is_main: bool) -> None:
        self.engine, self.card, self.denoiser, self.out, self.is_main = engine, card, denoiser, out, is_main
        self.kept: Mapping[str, Tensor] = {}
        self.history = self._resumed()

    def _resumed(self) -> list[Record]:
        """The epochs behind; what a kill left half done in the folder is done again from the state."""
        if self.is_main:
            for folder in (self.out, (self.out / STATE_FILE).parent):
                remove_partial_files(folder, {Path(name).name for name in MODEL_FILES}.__contains__)
        progress = read_progress(self.out)
        if progress is None:
            return []
        try:
            tensors = read_tensors(self.out)
            self.kept = tensors.pop("kept")
            self.engine.restore(tensors)
        except (SafetensorError, KeyError, RuntimeError, ValueError) as error:
            said = " ".join(str(error).split())[:200]
            raise ModelError(f"{self.out / STATE_FILE}: not the state of this run ({said}); delete it") from error
        if self.is_main and not _is_made_from(self.out, progress):
            self._write_folder(progress.history)
        return list(progress.history)

    def to_the_end(self, on_epoch: Callable[[Record], None] | None, progress: Progressed | None) -> None:
        epochs = self.engine.recipe.epochs
        if epochs == 0:
            self._keep({"epoch": 0, **self.engine.validate()})
        for epoch in range(len(self.history), epochs):
            record = {**self.engine.run_epoch(epoch, self._counter(epoch, progress)), **self.engine.validate()}
            self._keep(record)
            if self.is_main and on_epoch is not None:
                on_epoch(record)
        if self.is_main and epochs:
            draw_curve(self.history, self.out / CURVE_FILE)

    def _counter(self, epoch: int, progress: Progressed | None) -> Callable[[int, int], None] | None:
        """What turns the steps of an epoch into images of the whole run, where anyone wants to know."""
        if progress is None or not self.is_main:
            return None
        recipe = self.engine.recipe
        return lambda step, steps: progress(
            "training", (epoch * steps + step) * recipe.batch, recipe.epochs * steps * recipe.batch
        )

    def _keep(self, record: Record) -> None:
        """Put the epoch on record and on disk: the state with the weights to keep so far, then the folder."""
        self.history.append(record)
        if not self.is_main:
            return
        if kept_epoch(self.history, self.engine.recipe.keep) is record:
            self.kept = {name: tensor.cpu().clone() for name, tensor in self.engine.averaged.state_dict().items()}
        if self.engine.recipe.epochs:
            parts = {**self.engine.tensors(), "kept": self.kept}
            save_state(self.out, Progress(run_settings(self.card), self.history), parts)
        self._write_folder(self.history)

    def _write_folder(self, history: Sequence[Record]) -> None:
        network = copy.deepcopy(self.engine.averaged).cpu()
        network.load_state_dict(self.kept)
        save_folder(self.out, replace(self.card, history=tuple(history)), network, self.denoiser)
        log = "".join(json.dumps(done) + "\n" for done in history)
        write_atomically(self.out / LOG_FILE, lambda file: file.write(log.encode()))


def _is_made_from(out: Path, progress: Progress) -> bool:
    """Whether the model folder is whole and tells of all the epochs that the state does."""
    if not all((out / name).is_file() for name in (CARD_FILE, WEIGHTS_FILE, LOG_FILE)):
        return False
    card = read_card(out)
    return list(card.history) == progress.history and card.weights_sha256 == file_checksum(out / WEIGHTS_FILE)


def kept_epoch(history: Sequence[Record], keep: Keep) -> Record:
    """The epoch whose weights are left: the last, or the first of the highest noisy mAP."""
    if keep == "last":
        return history[-1]
    return max(history, key=lambda record: float(record["map_noisy"]))
