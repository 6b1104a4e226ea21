"""What a run does on its device: one epoch of noisy steps, one validation of the averaged weights."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor, nn

from multiguard.data import Pixels
from multiguard.errors import ModelError
from multiguard.models.classifier import Classifier
from multiguard.models.denoiser import FFDNet, denoise_first, denoised
from multiguard.train.augmentation import Augmentation, augment
from multiguard.train.checkpoint import optimizer_tensors, restore_optimizer
from multiguard.train.ema import Average
from multiguard.train.feed import Feed, epoch_positions
from multiguard.train.hyperparameters import Hyperparameters
from multiguard.train.losses import LOSSES
from multiguard.train.metrics import mean_average_precision
from multiguard.train.noise import MODEL, STEP, add_noise, derived_seed, ramped_sigma
from multiguard.train.schedule import one_cycle
from multiguard.train.validate import noisy_scores

Record = dict[str, Any]


class Engine:
    """A classifier in training on one process of possibly many, its moving average, and its images.

    Args:
        classifier: What to train; it is moved to the device.
        pixels: The training images.
        val_pixels: The validation images.
        recipe: How.
        accelerator: Which device, and how many processes.
        denoiser: Stands in front of the classifier and is not trained; told the validation noise.
        compiled: Whether torch.compile makes the forward and backward pass.
    """

    def __init__(
        self,
        classifier: Classifier,
        pixels: Pixels,
        val_pixels: Pixels,
        recipe: Hyperparameters,
        accelerator: Accelerator,
        denoiser: FFDNet | None = None,
        compiled: bool = False,
    ) -> None:
        self.recipe, self.accelerator = recipe, accelerator
        self.device: torch.device = accelerator.device
        self.rank, self.world = accelerator.process_index, accelerator.num_processes
        on_gpu = self.device.type == "cuda"
        self.amp = on_gpu and torch.cuda.is_bf16_supported()
        self.layout = torch.channels_last if on_gpu else torch.contiguous_format
        self.loss = LOSSES[recipe.loss]
        self.augmentation = Augmentation(least_area=recipe.crop, shift=recipe.shift, flip=recipe.flip)
        self.feed, self.val_feed = Feed(pixels, self.device), Feed(val_pixels, self.device)
        self.classifier = classifier.to(self.device)
        _lay_out(self.classifier, self.layout)
        self.average = Average(self.classifier, recipe.ema)
        self.network = cast(nn.Module, classifier.network)
        self.averaged = cast(nn.Module, self.average.module.network)
        self.denoiser = None if denoiser is None else denoiser.to(self.device)
        self.judged = _judged(self.average.module, self.denoiser, recipe.validation_sigma)
        self.optimizer = adam(self.classifier, recipe, fused=on_gpu)
        module, self.stepper = accelerator.prepare(self.classifier, self.optimizer)
        self.module: nn.Module = cast(nn.Module, torch.compile(module)) if compiled else module
        self.generator = torch.Generator(self.device)

    def run_epoch(self, epoch: int, on_step: Callable[[int, int], None] | None = None) -> Record:
        """Every step of this epoch (from 0): its noise, mean loss and rate; an infinite loss raises.

        Args:
            epoch: Which epoch.
            on_step: Called after each step with the steps done and those of the epoch.
        """
        started = time.perf_counter()
        sigma = ramped_sigma(self.recipe.sigma, epoch, self.recipe.ramp_epochs)
        positions = self._positions(epoch)
        torch.manual_seed(derived_seed(self.recipe.seed, MODEL, epoch, self.rank))
        self.module.train()
        losses = []
        for step, (images, targets) in enumerate(self.feed.batches(positions)):
            losses.append(self.step(images, targets, sigma, epoch=epoch, step=step, steps=len(positions)))
            if on_step is not None:
                on_step(step + 1, len(positions))
        loss = float(self.accelerator.reduce(torch.stack(losses).mean(), "mean"))
        if not math.isfinite(loss):
            raise ModelError(f"the loss is {loss} in epoch {epoch + 1}; take a smaller lr than {self.recipe.lr}")
        seen = len(positions) * min(self.recipe.batch, len(self.feed))
        rate = seen / (time.perf_counter() - started)
        return {"epoch": epoch + 1, "sigma": sigma, "loss": loss, "images_per_second": round(rate, 1)}

    def step(self, images: Tensor, targets: Tensor, sigma: float, *, epoch: int, step: int, steps: int) -> Tensor:
        """One batch: augment, add noise, denoise, descend, average. The loss is returned without waiting for it."""
        done = epoch * steps + step
        for group in self.optimizer.param_groups:
            group["lr"] = one_cycle(done, self.recipe.epochs * steps, self.recipe.lr, self.recipe.warmup)
        self.generator.manual_seed(derived_seed(self.recipe.seed, STEP, epoch, step, self.rank))
        augmented = augment(images.float() / 255, self.augmentation, self.generator)
        noisy = add_noise(augmented, sigma, self.generator).contiguous(memory_format=self.layout)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.amp):
            logits = self.module(self._seen(noisy, sigma))
        loss = self.loss(logits.float(), targets.float())
        self.stepper.zero_grad()
        self.accelerator.backward(loss)
        self.accelerator.clip_grad_norm_(self.classifier.parameters(), self.recipe.clip)
        self.stepper.step()
        self.average.update(done)
        return loss.detach()

    def _seen(self, noisy: Tensor, sigma: float) -> Tensor:
        """What the classifier is shown: noisy images behind the denoiser, clean ones as they are."""
        if self.denoiser is None or sigma == 0:
            return noisy
        with torch.no_grad():
            return denoised(self.denoiser, noisy, self.recipe.validation_sigma)

    def validate(self) -> Record:
        """The validation mAP of the averaged weights, noisy and clean; the same on every process."""
        if self.world > 1:
            broadcast(list(self.average.module.state_dict().values()))
        return {"map_noisy": self._map_at(self.recipe.validation_sigma), "map_clean": self._map_at(0.0)}

    def tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """Everything that the next epoch depends on beside the recipe and the data."""
        return {
            "network": self.network.state_dict(),
            "average": self.averaged.state_dict(),
            "optimizer": optimizer_tensors(self.optimizer),
        }

    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Put back what `tensors` gave."""
        self.network.load_state_dict(tensors["network"])
        self.averaged.load_state_dict(tensors["average"])
        restore_optimizer(self.optimizer, tensors["optimizer"])

    def _positions(self, epoch: int) -> list[Any]:
        recipe = self.recipe
        return epoch_positions(
            len(self.feed), recipe.batch, seed=recipe.seed, epoch=epoch, rank=self.rank, world=self.world
        )

    def _map_at(self, sigma: float) -> float:
        part = noisy_scores(
            self.judged,
            self.val_feed,
            sigma,
            seed=self.recipe.seed,
            rank=self.rank,
            world=self.world,
            amp=self.amp,
        )
        scores = self.accelerator.reduce(part, "sum")
        return mean_average_precision(scores.cpu().numpy(), self.val_feed.pixels.targets)


def adam(module: nn.Module, recipe: Hyperparameters, *, fused: bool = False) -> torch.optim.Optimizer:
    """Adam with the recipe's weight decay on matrices and kernels, and none on biases and norms."""
    weights = [parameter for parameter in module.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in module.parameters() if parameter.ndim <= 1]
    groups = [
        {"params": weights, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.Adam(groups, lr=recipe.lr, fused=fused)


def _lay_out(module: nn.Module, layout: torch.memory_format) -> None:
    """Store every kernel in this layout, in place."""
    for parameter in module.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)


def _judged(classifier: Classifier, denoiser: FFDNet | None, sigma: float) -> Classifier:
    return classifier if denoiser is None else denoise_first(classifier, denoiser, sigma)
