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
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.utils import gather_object
from safetensors import SafetensorError
from torch import Tensor, nn

from multiguard.data import Pixels, load_pixels
from multiguard.data.config import DataConfig, check_dataset
from multiguard.data.image import decoding_threads
from multiguard.errors import InvalidInputError, ModelError
from multiguard.io.files import file_checksum, read_regular, remove_partial_files, write_atomically
from multiguard.io.lock import check_code, folder_lock, package_checksum, this_rank
from multiguard.io.names import short_repr
from multiguard.models.card import WEIGHTS_FILE, ModelCard, read_card
from multiguard.models.model_folder import save_folder
from multiguard.models.spec import CARD_FILE, summary
from multiguard.models.torch_model import TorchClassifier
from multiguard.train import checkpoint
from multiguard.train.checkpoint import CURVE_FILE, LOG_FILE, MODEL_FILES, STATE_FILE, new_card, run_settings
from multiguard.train.config import TrainConfig
from multiguard.train.start import image_size, load_teacher, open_splits, provenance, start_backbone
from multiguard.train.trainer import Record, Trainer

OnEpoch = Callable[[Record], None]
OnProgress = Callable[[str, int, int], None]  # the activity, how much of it is done, and how much there is

_TIMEOUT = timedelta(minutes=10)  # of a process that waits for the others: one may hang for ever


@dataclass(frozen=True)
class TrainResult:
    """The result of a run: the model folder, its card, and the record of the epoch whose weights it holds."""

    folder: Path
    card: ModelCard
    kept: Mapping[str, Any]

    __repr__ = short_repr


def train(
    config: TrainConfig,
    data: DataConfig,
    *,
    out: Path,
    force: bool = False,
    progress: OnProgress | None = None,
    on_epoch: OnEpoch | None = None,
) -> TrainResult:
    """Train to the last epoch, or resume after the last one in this folder, and save the model of one epoch.

    On a CPU the model is bit for bit the same whether the run was interrupted or not. The best epoch has the highest
    mAP of the averaged weights on noisy validation images, whose noise is the same in every epoch. Every mistake in the
    configs raises before the first image is decoded.

    >>> from multiguard.data.config import DataConfig
    >>> config = TrainConfig(model="cnn:2", epochs=1, images=32, val_images=32)
    >>> result = train(config, DataConfig("digits", size=16), out=out)
    >>> result.kept["epoch"], result.card.noise
    (1, Gaussian(sigma=0.5))

    Args:
        config: How to train, and from what.
        data: The dataset, and the size of its images; the config has `split`, `images` and `seed`.
        out: The model folder: model.safetensors, model.json, log.jsonl, curve.png, state/.
        force: Whether to discard another run's model in the folder. The same run is resumed.
        progress: Called with (activity, images done, images in all), on the main process.
        on_epoch: Called with the record of each epoch, on the main process.
    """
    check_dataset(data.name)
    decoding_threads(config.workers)
    size = image_size(config, data)
    resolved = config.resolved(data.name, (size, size))
    splits = open_splits(config, data)
    torch.manual_seed(config.seed)
    backbone = start_backbone(config, data, splits[0])
    teacher = load_teacher(config, data, splits[0])
    card = new_card(backbone, *splits, (size, size), resolved, provenance(config, data, backbone))
    if not force:
        checkpoint.check_same_run(out, run_settings(card))
    if (finished := _finished(out, card, resolved)) is not None:
        return finished
    with folder_lock(out):
        bars = [None if progress is None else partial(progress, f"decoding {split.name}") for split in splits]
        pixels, val_pixels = (
            load_pixels(split, workers=config.workers, progress=bar) for split, bar in zip(splits, bars, strict=True)
        )
        run = partial(fit, card, backbone.network, pixels, val_pixels, resolved, out)
        return run(teacher=teacher, force=force, progress=progress, on_epoch=on_epoch)


def fit(
    card: ModelCard,
    network: nn.Module,
    pixels: Pixels,
    val_pixels: Pixels,
    config: TrainConfig,
    out: Path,
    *,
    teacher: TorchClassifier | None = None,
    force: bool = False,
    progress: OnProgress | None = None,
    on_epoch: OnEpoch | None = None,
) -> TrainResult:
    """Train a network on decoded images, as `train` does; its weights are changed.

    A run with another card does not resume this one. The config is resolved. A teacher, which the card must name,
    gives scores of images without noise to learn.
    """
    group = InitProcessGroupKwargs(timeout=_TIMEOUT)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=[group])
    check_code(gather_object([package_checksum()])[0])
    _check_pixels(pixels, val_pixels, config.batch, accelerator.num_processes)
    with folder_lock(out), torch.backends.cudnn.flags(enabled=True, benchmark=True):
        prepare_folder(out, run_settings(card), force, accelerator)
        classifier = card.classifier(network).module()
        trainer = Trainer(classifier, pixels, val_pixels, config, accelerator, teacher)
        run = _Run(trainer, card, out, this_rank().is_main)
        run.resume()
        run.finish(on_epoch, progress)
        accelerator.wait_for_everyone()
    return TrainResult(out, read_card(out), kept_epoch(run.history, config.keep))


def _check_pixels(pixels: Pixels, val_pixels: Pixels, batch: int, processes: int) -> None:
    if not val_pixels.targets.any():
        raise InvalidInputError(f"{val_pixels.name}: no image has a label; validation needs at least one")
    if batch % processes:
        raise InvalidInputError(f"batch is {batch} for {processes} processes; it must be a multiple of {processes}")
    if len(pixels) < processes:
        raise InvalidInputError(f"{pixels.name}: {len(pixels)} images for {processes} processes; use fewer processes")


def prepare_folder(out: Path, settings: Mapping[str, Any], force: bool, accelerator: Accelerator) -> None:
    """Raise unless this run may write here; with `force` the main process first discards another run's files."""
    if force:
        if this_rank().is_main and checkpoint.holds_other_run(out, settings):
            checkpoint.discard_model(out)
        accelerator.wait_for_everyone()
    checkpoint.check_same_run(out, settings)


class _Run:
    """The finished epochs, the weights to keep, and the files: the state first, then the folder made from it."""

    def __init__(self, trainer: Trainer, card: ModelCard, out: Path, is_main: bool) -> None:
        self.trainer, self.card, self.out, self.is_main = trainer, card, out, is_main
        self.kept: Mapping[str, Tensor] = {}
        self.history: list[Record] = []

    def resume(self) -> None:
        """Restore the finished epochs, and write again from the state what a kill left unfinished in the folder."""
        if self.is_main:
            for folder in (self.out, (self.out / STATE_FILE).parent):
                remove_partial_files(folder, {Path(name).name for name in MODEL_FILES}.__contains__)
        if (progress := checkpoint.read_progress(self.out)) is None:
            return
        try:
            tensors = checkpoint.read_tensors(self.out)
            self.kept = tensors.pop("kept")
            self.trainer.restore(tensors)
        except (SafetensorError, KeyError, RuntimeError, ValueError) as error:
            path = self.out / STATE_FILE
            raise ModelError(f"{path}: not the state of this run ({summary(error)}); delete it") from error
        _, self.history = progress
        if self.is_main and not _is_current(self.out, self.history):
            self._write_folder()

    def finish(self, on_epoch: OnEpoch | None, progress: OnProgress | None) -> None:
        """Train the epochs that are left; without any, validate the network as it is."""
        epochs, batch = self.trainer.epochs, self.trainer.config.batch
        if epochs == 0:
            self._save({"epoch": 0, **self.trainer.validate()})
        for epoch in range(len(self.history), epochs):

            def on_step(step: int, steps: int, epoch: int = epoch) -> None:
                if progress is not None and self.is_main:
                    progress("training", (epoch * steps + step) * batch, epochs * steps * batch)

            record = self.trainer.run_epoch(epoch, on_step) | self.trainer.validate()
            self._save(record)
            if self.is_main and on_epoch is not None:
                on_epoch(record)
        if self.is_main and epochs:
            draw_curve(self.history, self.out / CURVE_FILE)

    def _save(self, record: Record) -> None:
        """Record the epoch: the state with the weights to keep so far, then the folder."""
        self.history.append(record)
        if not self.is_main:
            return
        if kept_epoch(self.history, self.trainer.config.keep) is record:
            self.kept = {name: tensor.cpu().clone() for name, tensor in self.trainer.averaged.state_dict().items()}
        if self.trainer.epochs:
            parts = {**self.trainer.tensors(), "kept": self.kept}
            checkpoint.save_checkpoint(self.out, run_settings(self.card), self.history, parts)
        self._write_folder()

    def _write_folder(self) -> None:
        network = copy.deepcopy(self.trainer.averaged).cpu()
        network.load_state_dict(self.kept)
        written = network.half() if self.trainer.config.half else network
        save_folder(self.out, replace(self.card, history=tuple(self.history)), written)
        write_atomically(self.out / LOG_FILE, lambda file: file.write(_log(self.history)))


def _finished(out: Path, card: ModelCard, config: TrainConfig) -> TrainResult | None:
    """The result of a finished run with these settings in the folder; None if there is something to do."""
    if checkpoint.holds_other_run(out, run_settings(card)):
        return None
    progress = checkpoint.read_progress(out)
    history = [] if progress is None else progress[1]
    complete = _is_current(out, history) and (out / CURVE_FILE).is_file()
    if len(history) < max(1, config.epochs or 0) or not complete:
        return None
    return TrainResult(out, read_card(out), kept_epoch(history, config.keep))


def _is_current(out: Path, history: Sequence[Record]) -> bool:
    """Whether the model folder is complete and holds all epochs of the state."""
    if not all((out / name).is_file() for name in (CARD_FILE, WEIGHTS_FILE, LOG_FILE)):
        return False
    card, log = read_card(out), read_regular(out / LOG_FILE)
    weights = file_checksum(out / WEIGHTS_FILE)
    return (list(card.history), card.weights_sha256, log) == (history, weights, _log(history))


def _log(history: Sequence[Record]) -> bytes:
    """A line of JSON per epoch."""
    return "".join(f"{json.dumps(record)}\n" for record in history).encode()


def kept_epoch(history: Sequence[Record], keep: str) -> Record:
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
