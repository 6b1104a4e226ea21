"""Training from beginning to end: epochs, the best one kept, and going on after an interruption."""

import hashlib
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from multiguard.data import Pixels
from multiguard.errors import InvalidInputError
from multiguard.files import write_atomically
from multiguard.models.backbone import Backbone
from multiguard.models.classifier import Classifier
from multiguard.models.denoiser import FFDNet
from multiguard.models.folder import ModelCard, read_card, save_card, save_folder
from multiguard.train.curve import draw_curve
from multiguard.train.engine import Engine, Record
from multiguard.train.recipe import Recipe
from multiguard.train.state import Progress, read_state, require_same, save_state
from multiguard.version import __version__

LOG_FILE = "log.jsonl"
CURVE_FILE = "curve.png"


@dataclass(frozen=True)
class TrainResult:
    """What a run left behind: the model folder, its card, and the record of its best epoch."""

    folder: Path
    card: ModelCard
    best: Mapping[str, Any]


def train(
    backbone: Backbone,
    pixels: Pixels,
    val_pixels: Pixels,
    recipe: Recipe,
    out: Path,
    *,
    denoiser: FFDNet | None = None,
    provenance: Mapping[str, Any] | None = None,
    compiled: bool = False,
    on_epoch: Callable[[Record], None] | None = None,
) -> TrainResult:
    """Train to the end, or go on from the last epoch in this folder, and leave the best epoch's model in it.

    On a CPU the model is bit for bit the same whether the run was interrupted or not. Best is the highest mAP
    of the averaged weights on noisy validation pictures, whose noise is the same in every epoch.

    Args:
        backbone: The network to start from; its weights are changed.
        pixels: The training pictures.
        val_pixels: The validation pictures.
        recipe: Everything else that decides the outcome.
        out: The model folder: model.safetensors, model.json, log.jsonl, curve.png, state/.
        denoiser: Stands in front of the network when it is validated and saved, told the validation noise.
        provenance: What else to put on record, and to hold equal when a run goes on.
        compiled: Whether torch.compile makes the forward and backward pass.
        on_epoch: Called with the record of each epoch, on the main process.
    """
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    _require_fit(pixels, val_pixels, recipe, accelerator.num_processes)
    card = _card(backbone, pixels, val_pixels, recipe, dict(provenance or {}))
    classifier = _classifier(backbone, card)
    engine = Engine(classifier, pixels, val_pixels, recipe, accelerator, denoiser, compiled)
    run = _Run(engine, card, denoiser, out, accelerator.is_main_process)
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        run.to_the_end(on_epoch)
    accelerator.wait_for_everyone()
    return TrainResult(out, read_card(out), _best(run.history))


class _Run:
    """The epochs behind and the files that hold them."""

    def __init__(self, engine: Engine, card: ModelCard, denoiser: FFDNet | None, out: Path, is_main: bool) -> None:
        self.engine, self.card, self.denoiser, self.out, self.is_main = engine, card, denoiser, out, is_main
        self.settings = {**card.training, "denoiser": denoiser is not None, "architecture": card.architecture}
        del self.settings["versions"]  # an upgrade does not end a run
        self.history = self._resumed()

    def _resumed(self) -> list[Record]:
        found = read_state(self.out)
        if found is None:
            return []
        progress, tensors = found
        require_same(progress, self.settings, self.out)
        self.engine.restore(tensors)
        self.card = replace(self.card, weights_sha256=read_card(self.out).weights_sha256)
        return list(progress.history)

    def to_the_end(self, on_epoch: Callable[[Record], None] | None) -> None:
        epochs = self.engine.recipe.epochs
        if epochs == 0:
            self._keep({"epoch": 0, **self.engine.validate()})
        for epoch in range(len(self.history), epochs):
            record = {**self.engine.run_epoch(epoch), **self.engine.validate()}
            self._keep(record)
            if self.is_main and on_epoch is not None:
                on_epoch(record)
        if self.is_main and epochs:
            draw_curve(self.history, self.out / CURVE_FILE)

    def _keep(self, record: Record) -> None:
        """Put the epoch on record and on disk: the model if it is the best so far, then the state."""
        self.history.append(record)
        if not self.is_main:
            return
        self.card = replace(self.card, history=tuple(self.history))
        if _best(self.history) is record:
            self.card = save_folder(self.out, self.card, self.engine.averaged, self.denoiser)
        else:
            save_card(self.out, self.card)
        log = "".join(json.dumps(done) + "\n" for done in self.history)
        write_atomically(self.out / LOG_FILE, lambda file: file.write(log.encode()))
        if self.engine.recipe.epochs:
            save_state(self.out, Progress(self.settings, self.history), self.engine.tensors())


def _best(history: Sequence[Record]) -> Record:
    """The first epoch of the highest noisy mAP."""
    return max(history, key=lambda record: float(record["map_noisy"]))


def _classifier(backbone: Backbone, card: ModelCard) -> Classifier:
    return Classifier(
        backbone.network,
        card.label_names,
        output=card.output,
        mean=card.mean,
        std=card.std,
        image_size=card.image_size,
        name=card.architecture,
    )


def _card(
    backbone: Backbone, pixels: Pixels, val_pixels: Pixels, recipe: Recipe, provenance: dict[str, Any]
) -> ModelCard:
    _, _, height, width = pixels.images.shape
    training = {
        "recipe": asdict(recipe),
        "train": _described(pixels),
        "val": _described(val_pixels),
        "versions": {
            "multiguard": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        **provenance,
    }
    return ModelCard(
        architecture=backbone.architecture,
        label_names=pixels.label_names,
        image_size=(height, width),
        mean=backbone.mean,
        std=backbone.std,
        sigma=recipe.validation_sigma,
        training=training,
    )


def _described(pixels: Pixels) -> dict[str, Any]:
    digest = hashlib.sha256("\0".join(pixels.ids).encode()).hexdigest()
    return {"name": pixels.name, "images": len(pixels), "ids_sha256": digest}


def _require_fit(pixels: Pixels, val_pixels: Pixels, recipe: Recipe, world: int) -> None:
    if pixels.label_names != val_pixels.label_names:
        raise InvalidInputError(f"{pixels.name} and {val_pixels.name} do not have the same labels in one order")
    if pixels.images.shape[1:] != val_pixels.images.shape[1:]:
        raise InvalidInputError(f"{pixels.name} and {val_pixels.name} do not have pictures of one size")
    if not val_pixels.targets.any():
        raise InvalidInputError(f"{val_pixels.name}: not one picture has a label, so no epoch can be judged")
    if recipe.batch % world:
        raise InvalidInputError(f"batch {recipe.batch} does not divide among {world} processes; take a multiple")
    if len(pixels) < world:
        raise InvalidInputError(f"{pixels.name}: {len(pixels)} pictures for {world} processes")
