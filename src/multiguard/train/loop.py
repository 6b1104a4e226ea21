"""Training from start to end: epochs, the model folder of one of them, and resuming after an interruption."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from safetensors import SafetensorError
from torch import Tensor

from multiguard.data import IndexedDataset, Pixels
from multiguard.errors import InvalidInputError, ModelError
from multiguard.io.files import file_checksum, remove_partial_files, write_atomically
from multiguard.io.lock import folder_lock
from multiguard.io.ranks import check_code, package_checksum, this_rank
from multiguard.models.backbone import Backbone
from multiguard.models.classifier import Classifier
from multiguard.models.denoiser import FFDNet
from multiguard.models.model_folder import WEIGHTS_FILE, ModelCard, read_card, save_folder
from multiguard.models.spec import CARD_FILE
from multiguard.models.weight_files import summary
from multiguard.train import checkpoint
from multiguard.train.checkpoint import (
    CURVE_FILE,
    LOG_FILE,
    MODEL_FILES,
    STATE_FILE,
    Progress,
    new_card,
    run_settings,
)
from multiguard.train.hyperparameters import Hyperparameters, Keep
from multiguard.train.process_group import process_group
from multiguard.train.trainer import Record, Trainer

OnEpoch = Callable[[Record], None]
OnProgress = Callable[[str, int, int], None]  # the activity, how much of it is done, and how much there is
Discard = Callable[[Path], None]

# A process that waits longer for the others fails, so that torchrun restarts all of them: one may hang for ever.
COLLECTIVES_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class TrainResult:
    """The result of a run: the model folder, its card, and the record of the epoch whose weights it holds."""

    folder: Path
    card: ModelCard
    kept: Mapping[str, Any]


def train(
    backbone: Backbone,
    pixels: Pixels,
    val_pixels: Pixels,
    hyperparameters: Hyperparameters,
    out: Path,
    *,
    denoiser: FFDNet | None = None,
    teacher: Classifier | None = None,
    provenance: Mapping[str, Any] | None = None,
    compiled: bool = False,
    half: bool = False,
    on_epoch: OnEpoch | None = None,
    progress: OnProgress | None = None,
    discard: Discard | None = None,
) -> TrainResult:
    """Train to the last epoch, or resume after the last one in this folder, and save the model of one epoch.

    On a CPU the model is bit for bit the same whether the run was interrupted or not. The best epoch has the highest
    mAP of the averaged weights on noisy validation images, whose noise is the same in every epoch.

    >>> from multiguard.data import DigitsDataset, load_pixels
    >>> from multiguard.models.backbone import build_backbone
    >>> from multiguard.train import hyperparameters_for
    >>> pixels, val_pixels = (load_pixels(DigitsDataset(split, images=32, size=16)) for split in ("train", "val"))
    >>> backbone, hyperparameters = build_backbone("cnn:2", 10), hyperparameters_for("digits", epochs=1)
    >>> result = train(backbone, pixels, val_pixels, hyperparameters, out)
    >>> result.kept["epoch"], result.card.noise
    (1, Gaussian(sigma=0.5))

    Args:
        backbone: The network to start from; its weights are changed.
        pixels: The training images.
        val_pixels: The validation images.
        hyperparameters: Everything else that decides the outcome.
        out: The model folder: model.safetensors, model.json, log.jsonl, curve.png, state/.
        denoiser: Stands in front of the network, for the validation noise, in validation and in the saved model.
        teacher: Its scores of images without noise are learnt beside the labels. `provenance` must say which it is.
        provenance: What else to record; a run with another provenance does not resume this one.
        compiled: Whether to run the forward and backward pass through torch.compile.
        half: Whether to write the weights to the folder in half precision; training is the same.
        on_epoch: Called with the record of each epoch, on the main process.
        progress: Called with ("training", images done, images in all epochs), on the main process.
        discard: Removes another run's files from the folder; None refuses such a folder. The same run is resumed.
    """
    group = process_group(COLLECTIVES_TIMEOUT)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=[group])
    check_code(gather_object([package_checksum()])[0])
    _check_pixels(pixels, val_pixels, hyperparameters.batch, accelerator.num_processes)
    _, _, height, width = pixels.images.shape
    hyperparameters = hyperparameters.for_size((height, width))
    card = new_card(backbone, pixels, val_pixels, (height, width), hyperparameters, denoiser, provenance or {})
    with folder_lock(out), torch.backends.cudnn.flags(enabled=True, benchmark=True):
        prepare_folder(out, run_settings(card), discard, accelerator)
        classifier = card.classifier(backbone.network)
        trainer = Trainer(classifier, pixels, val_pixels, hyperparameters, accelerator, denoiser, compiled, teacher)
        run = _Run(trainer, card, denoiser, out, this_rank().is_main, half)
        run.finish(on_epoch, progress)
        accelerator.wait_for_everyone()
    return TrainResult(out, read_card(out), kept_epoch(run.history, hyperparameters.keep))


def check_disjoint(training: IndexedDataset | Pixels, validation: IndexedDataset | Pixels) -> None:
    """Raise unless the splits have the same labels and no image in common, which would flatter every epoch."""
    if tuple(training.label_names) != tuple(validation.label_names):
        raise InvalidInputError(f"{training.name} and {validation.name} do not have the same labels in the same order")
    seen = set(training.ids)
    common = [id_ for id_ in validation.ids if id_ in seen]
    if common:
        images = f"{len(common)} images of {validation.name}, the first '{common[0]}', are also in {training.name}"
        raise InvalidInputError(f"{images}; validate on another split, or omit --val-split to hold out a tenth")


def _check_pixels(pixels: Pixels, val_pixels: Pixels, batch: int, processes: int) -> None:
    check_disjoint(pixels, val_pixels)
    if pixels.images.shape[1:] != val_pixels.images.shape[1:]:
        raise InvalidInputError(f"{pixels.name} and {val_pixels.name} do not have images of the same size")
    if not val_pixels.targets.any():
        raise InvalidInputError(f"{val_pixels.name}: no image has a label; validation needs at least one")
    if batch % processes:
        raise InvalidInputError(f"batch is {batch} for {processes} processes; it must be a multiple of {processes}")
    if len(pixels) < processes:
        raise InvalidInputError(f"{pixels.name}: {len(pixels)} images for {processes} processes; use fewer processes")


def prepare_folder(out: Path, settings: Mapping[str, Any], discard: Discard | None, accelerator: Accelerator) -> None:
    """Raise unless this run may write here; the main process first discards another run's files where it may."""
    if discard is not None:
        if this_rank().may_discard and checkpoint.holds_other_run(out, settings):
            discard(out)
        accelerator.wait_for_everyone()
    checkpoint.check_same_run(out, settings)


class _Run:
    """The finished epochs, the weights to keep, and the files: the state first, then the folder made from it."""

    def __init__(
        self, trainer: Trainer, card: ModelCard, denoiser: FFDNet | None, out: Path, is_main: bool, half: bool
    ) -> None:
        self.trainer, self.card, self.denoiser, self.out, self.is_main = trainer, card, denoiser, out, is_main
        self.half = half
        self.kept: Mapping[str, Tensor] = {}
        self.history = self._resume()

    def _resume(self) -> list[Record]:
        """Restore the finished epochs, and write again from the state what a kill left unfinished in the folder."""
        if self.is_main:
            for folder in (self.out, (self.out / STATE_FILE).parent):
                remove_partial_files(folder, {Path(name).name for name in MODEL_FILES}.__contains__)
        progress = checkpoint.read_progress(self.out)
        if progress is None:
            return []
        try:
            tensors = checkpoint.read_tensors(self.out)
            self.kept = tensors.pop("kept")
            self.trainer.restore(tensors)
        except (SafetensorError, KeyError, RuntimeError, ValueError) as error:
            path = self.out / STATE_FILE
            raise ModelError(f"{path}: not the state of this run ({summary(error)}); delete it") from error
        if self.is_main and not _is_current(self.out, progress):
            self._write_folder(progress.history)
        return list(progress.history)

    def finish(self, on_epoch: OnEpoch | None, progress: OnProgress | None) -> None:
        epochs = self.trainer.hyperparameters.epochs
        if epochs == 0:
            self._save({"epoch": 0, **self.trainer.validate()})
        for epoch in range(len(self.history), epochs):
            record = self.trainer.run_epoch(epoch, partial(self._report, progress, epoch)) | self.trainer.validate()
            self._save(record)
            if self.is_main and on_epoch is not None:
                on_epoch(record)
        if self.is_main and epochs:
            draw_curve(self.history, self.out / CURVE_FILE)

    def _report(self, progress: OnProgress | None, epoch: int, step: int, steps: int) -> None:
        """Turn the steps of an epoch into images of all epochs."""
        if progress is not None and self.is_main:
            config = self.trainer.hyperparameters
            progress("training", (epoch * steps + step) * config.batch, config.epochs * steps * config.batch)

    def _save(self, record: Record) -> None:
        """Record the epoch: the state with the weights to keep so far, then the folder."""
        self.history.append(record)
        if not self.is_main:
            return
        if kept_epoch(self.history, self.trainer.hyperparameters.keep) is record:
            self.kept = {name: tensor.cpu().clone() for name, tensor in self.trainer.averaged.state_dict().items()}
        if self.trainer.hyperparameters.epochs:
            parts = {**self.trainer.tensors(), "kept": self.kept}
            checkpoint.save_checkpoint(self.out, Progress(run_settings(self.card), self.history), parts)
        self._write_folder(self.history)

    def _write_folder(self, history: Sequence[Record]) -> None:
        network = copy.deepcopy(self.trainer.averaged).cpu()
        network.load_state_dict(self.kept)
        written = network.half() if self.half else network
        save_folder(self.out, replace(self.card, history=tuple(history)), written, self.denoiser)
        log = "".join(json.dumps(record) + "\n" for record in history)
        write_atomically(self.out / LOG_FILE, lambda file: file.write(log.encode()))


def _is_current(out: Path, progress: Progress) -> bool:
    """Whether the model folder is complete and holds all epochs of the state."""
    if not all((out / name).is_file() for name in (CARD_FILE, WEIGHTS_FILE, LOG_FILE)):
        return False
    card = read_card(out)
    return list(card.history) == progress.history and card.weights_sha256 == file_checksum(out / WEIGHTS_FILE)


def kept_epoch(history: Sequence[Record], keep: Keep) -> Record:
    """Return the epoch whose weights are saved: the last, or the first with the highest noisy mAP."""
    return history[-1] if keep == "last" else max(history, key=lambda record: float(record["map_noisy"]))


def draw_curve(history: Sequence[Record], path: Path) -> None:
    """Write a PNG of the loss and of the validation mAP, noisy and clean, over the epochs."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    epochs = [record["epoch"] for record in history]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(epochs, [record["loss"] for record in history], color="#444444")
    left.set(xlabel="epoch", ylabel="training loss")
    right.plot(epochs, [record["map_noisy"] for record in history], color="#1f77b4", label="noisy")
    right.plot(epochs, [record["map_clean"] for record in history], color="#ff7f0e", label="clean", linestyle="--")
    right.set(xlabel="epoch", ylabel="validation mAP", ylim=(0, 1.03))
    right.legend(frameon=False, loc="lower right")
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style: dict[str, Any] = {"format": "png", "dpi": 120, "metadata": {"Software": "multiguard"}}
    write_atomically(path, lambda file: figure.savefig(file, **style))
