"""What a run does on its device: epochs of noisy steps, and the validation of the averaged weights."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from multiguard.certify.noise import Noise
from multiguard.data import Pixels
from multiguard.errors import InvalidInputError, ModelError
from multiguard.models.networks import DenoisingNetwork
from multiguard.models.torch_model import TorchClassifier
from multiguard.train.augmentation import MODEL, ORDER, STEP, VALIDATION, add_noise, augment, cutmix, derived_seed
from multiguard.train.config import TrainConfig, noise_text
from multiguard.train.losses import LOSSES, binary_cross_entropy

Record = dict[str, Any]
Indices = NDArray[np.int64]
_CHUNK = 100  # validation images per noise seed
_FRACTION_OF_FREE_MEMORY = 0.5


class Feed:
    """The images and targets of one split, batch by batch on one device.

    It keeps all images there if `resident`, and streams them if not; None keeps them on a GPU with enough free memory.
    """

    def __init__(self, pixels: Pixels, device: torch.device, resident: bool | None = None) -> None:
        self.pixels, self.device = pixels, device
        self.targets = torch.from_numpy(np.array(pixels.targets)).to(device)
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
        keep = pixels.images.nbytes < _FRACTION_OF_FREE_MEMORY * free if resident is None else resident
        self.images = torch.from_numpy(pixels.images).to(device) if keep else None

    def __len__(self) -> int:
        return len(self.pixels)

    def batches(self, indices: Sequence[Indices]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each array of indices, yield its images (B, 3, height, width) and targets (B, c), both uint8."""
        on_device = [torch.from_numpy(array).to(self.device, non_blocking=True) for array in indices]
        batches = self._stream(indices) if self.images is None else map(self.images.__getitem__, on_device)
        for index, images in zip(on_device, batches, strict=True):
            yield images, self.targets[index]

    def _stream(self, indices: Sequence[Indices]) -> Iterator[Tensor]:
        """Gather each batch in memory while the one before it is in use."""
        with ThreadPoolExecutor(1) as pool:
            coming = [pool.submit(self._gather, index) for index in indices[:1]]
            for number in range(len(indices)):
                ready = coming.pop().result()
                coming = [pool.submit(self._gather, index) for index in indices[number + 1 : number + 2]]
                yield ready.to(self.device, non_blocking=True)

    def _gather(self, index: Indices) -> Tensor:
        batch = torch.from_numpy(self.pixels.images[index])
        return batch.pin_memory() if self.device.type == "cuda" else batch


def epoch_indices(count: int, batch: int, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> list[Indices]:
    """What this rank reads in each step of an epoch: its part of the batches of one seeded shuffle.

    The batches and their order are the same for every number of processes. A last, incomplete batch is dropped
    (another one in every epoch), unless it is the only one.
    """
    order = np.random.default_rng(derived_seed(seed, ORDER, epoch)).permutation(count)
    steps = max(count // batch, 1)
    return [order[step * batch : (step + 1) * batch][rank::world] for step in range(steps)]


class Trainer:
    """A classifier in training on one process of possibly many, its averaged weights, and its images.

    The classifier is moved to the accelerator's device. A teacher is not trained.
    """

    def __init__(
        self,
        classifier: TorchClassifier,
        pixels: Pixels,
        val_pixels: Pixels,
        config: TrainConfig,
        accelerator: Accelerator,
        teacher: TorchClassifier | None = None,
    ) -> None:
        resolved: Any = config  # nothing in it is None
        self.config, self.epochs, self.lr = config, int(resolved.epochs), float(resolved.lr)
        moves: Any = {"crop": resolved.crop, "shift": resolved.shift, "flip": resolved.flip, "colour": config.colour}
        self.augment: Callable[[Tensor, torch.Generator], Tensor] = partial(augment, **moves)
        self.accelerator, self.device = accelerator, cast(torch.device, accelerator.device)
        self.rank, self.world = accelerator.process_index, accelerator.num_processes
        on_gpu = self.device.type == "cuda"
        torch.backends.cudnn.benchmark = on_gpu  # every step has the same shapes
        self.amp = on_gpu and torch.cuda.is_bf16_supported()
        self.layout = torch.channels_last if on_gpu else torch.contiguous_format
        self.loss = LOSSES[config.loss]
        self.feed, self.val_feed = Feed(pixels, self.device), Feed(val_pixels, self.device)
        self.classifier = _with_layout(classifier.to(self.device), self.layout)
        self.average = Average(self.classifier, config.ema)
        averaged = cast(TorchClassifier, self.average.module)
        self.network, self.averaged = cast(nn.Module, classifier.network), cast(nn.Module, averaged.network)
        check_denoiser(self.network, config)
        self.optimizer = _adam(self.classifier, config, self.lr, fused=on_gpu)
        module, self.stepper = accelerator.prepare(_Training(self.classifier), self.optimizer)
        compile_ = cast(Callable[[nn.Module], nn.Module], torch.compile) if config.compile else lambda part: part
        self.module = compile_(module)
        self.unet = compile_(self.network.denoiser) if isinstance(self.network, DenoisingNetwork) else None
        self.teacher = None if teacher is None else compile_(_with_layout(teacher.to(self.device), self.layout))
        self.generator = torch.Generator(self.device)

    def run_epoch(self, epoch: int, on_step: Callable[[int, int], None] | None = None) -> Record:
        """Run every step of an epoch (from 0) and record its noise, mean loss and speed; a loss of nan or inf raises.

        `on_step` is called after each step with the number of steps done and of all steps of the epoch.
        """
        started, config, ranks = time.perf_counter(), self.config, {"rank": self.rank, "world": self.world}
        noise = config.training_noise
        indices = epoch_indices(len(self.feed), config.batch, seed=config.seed, epoch=epoch, **ranks)
        torch.manual_seed(derived_seed(config.seed, MODEL, epoch, self.rank))
        self.module.train()
        losses = []
        for step, (images, targets) in enumerate(self.feed.batches(indices)):
            losses.append(self.step(images, targets, noise, epoch=epoch, step=step, steps=len(indices)))
            if on_step is not None:
                on_step(step + 1, len(indices))
        loss = float(self.accelerator.reduce(torch.stack(losses).mean(), "mean"))
        if not math.isfinite(loss):
            raise ModelError(f"the loss is {loss} in epoch {epoch + 1}; take a smaller lr than {self.lr}")
        rate = len(indices) * min(config.batch, len(self.feed)) / (time.perf_counter() - started)
        return {"epoch": epoch + 1, "noise": noise_text(noise), "loss": loss, "images_per_second": round(rate, 1)}

    def step(
        self, images: Tensor, targets: Tensor, noise: Noise | None, *, epoch: int, step: int, steps: int
    ) -> Tensor:
        """Train on one batch and return its loss, without waiting for the device to compute it.

        The epochs of the U-Net alone and the others have a learning-rate cycle each.
        """
        config, alone = self.config, epoch < self.config.denoise_epochs
        first, epochs = (0, config.denoise_epochs) if alone else (config.denoise_epochs, self.epochs)
        for group in self.optimizer.param_groups:
            done, cycle = (epoch - first) * steps + step, (epochs - first) * steps
            group["lr"] = one_cycle(done, cycle, self.lr, config.warmup)
        self.generator.manual_seed(derived_seed(config.seed, STEP, epoch, step, self.rank))
        augmented = self.augment(images.float() / 255, self.generator)
        augmented, wanted = cutmix(augmented, targets.float(), config.cutmix, self.generator)
        noisy = add_noise(augmented, noise, self.generator, config.sigma_max).contiguous(memory_format=self.layout)
        loss = self._denoising_loss(noisy, augmented) if alone else self._loss(noisy, augmented, wanted)
        self.stepper.zero_grad()
        self.accelerator.backward(loss)
        if alone and self.world > 1:  # the U-Net alone is called without the wrapper that averages gradients
            for parameter in self.network.parameters():
                if parameter.grad is not None:
                    parameter.grad = self.accelerator.reduce(parameter.grad, "mean")
        self.accelerator.clip_grad_norm_(self.classifier.parameters(), config.clip)
        self.stepper.step()
        self.average.update(epoch * steps + step)
        return loss.detach()

    def _loss(self, noisy: Tensor, clean: Tensor, targets: Tensor) -> Tensor:
        """The loss of the labels, mixed with that of the teacher's scores, and with the U-Net's error added."""
        config = self.config
        with self._autocast():
            logits, cleaned = self.module(noisy)
        loss = self.loss(logits.float(), targets)
        if self.teacher is not None:
            with torch.no_grad(), self._autocast():
                taught = self.teacher(clean.contiguous(memory_format=self.layout)).float().sigmoid()
            loss = (1 - config.distill) * loss + config.distill * binary_cross_entropy(logits.float(), taught)
        if config.denoise_weight:
            loss = loss + config.denoise_weight * self._squared_error(cleaned, clean)
        return loss

    def _denoising_loss(self, noisy: Tensor, clean: Tensor) -> Tensor:
        with self._autocast():
            cleaned = cast(nn.Module, self.unet)(self.classifier.normalise(noisy))
        return self._squared_error(cleaned, clean)

    def _squared_error(self, cleaned: Tensor, clean: Tensor) -> Tensor:
        """The mean squared error of the U-Net, in the units of the network's normalised input, at its output's size."""
        height, width = cleaned.shape[-2:]
        wanted = functional.adaptive_avg_pool2d(self.classifier.normalise(clean), (height, width))
        return functional.mse_loss(cleaned.float(), wanted)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.amp)

    def validate(self) -> Record:
        """The validation mAP of the averaged weights, noisy and clean; the same on every process."""
        if self.world > 1:
            broadcast(list(self.average.module.state_dict().values()))
        return {"map_noisy": self._map_at(self.config.validation_noise), "map_clean": self._map_at(None)}

    def _map_at(self, noise: Noise | None) -> float:
        averaged, who = self.average.module, (self.config.seed, self.rank, self.world)
        part = noisy_scores(averaged, self.val_feed, noise, *who, amp=self.amp)
        scores = self.accelerator.reduce(part, "sum")
        return mean_average_precision(scores.cpu().numpy(), self.val_feed.pixels.targets)

    def tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """Everything that the next epoch depends on apart from the hyperparameters and the data."""
        moments = self.optimizer.state_dict()["state"]
        optimizer = {f"{number}/{key}": value for number, slots in moments.items() for key, value in slots.items()}
        return {"network": self.network.state_dict(), "average": self.averaged.state_dict(), "optimizer": optimizer}

    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Put back what `tensors` returned."""
        self.network.load_state_dict(tensors["network"])
        self.averaged.load_state_dict(tensors["average"])
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors["optimizer"].items():
            number, _, key = name.partition("/")
            moments.setdefault(int(number), {})[key] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})


class _Training(nn.Module):
    """The logits of a classifier, and the images that its U-Net cleaned if it has one."""

    def __init__(self, classifier: TorchClassifier) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        network = self.classifier.network
        if not isinstance(network, DenoisingNetwork):
            return self.classifier(images), None
        cleaned = network.denoiser(self.classifier.normalise(images))
        return network.network(cleaned), cleaned


def _with_layout(module: TorchClassifier, layout: torch.memory_format) -> TorchClassifier:
    for kernel in (parameter for parameter in module.parameters() if parameter.ndim == 4):
        kernel.data = kernel.data.contiguous(memory_format=layout)
    return module


def check_denoiser(network: nn.Module, config: TrainConfig) -> None:
    """Raise `InvalidInputError` for the training of a U-Net where the network has none in front."""
    for name, value in (("denoise_epochs", config.denoise_epochs), ("denoise_weight", config.denoise_weight)):
        if value and not isinstance(network, DenoisingNetwork):
            reason = "the network has no U-Net in front; take one, as in --model unet:40+lite:0, or leave it at 0"
            raise InvalidInputError(f"{name} is {value}, and {reason}")


def _adam(module: nn.Module, config: TrainConfig, lr: float, *, fused: bool) -> torch.optim.Optimizer:
    """Adam, or AdamW, with weight decay on matrices and kernels, and none on biases and norms."""
    weights = [parameter for parameter in module.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in module.parameters() if parameter.ndim <= 1]
    groups: list[Record] = [{"params": weights, "weight_decay": config.weight_decay}]
    groups.append({"params": others, "weight_decay": 0.0})
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=lr, fused=fused)


def one_cycle(step: int, steps: int, peak: float, warmup: float = 0.1) -> float:
    """The one-cycle learning rate at a step (from 0), a function that a resumed run needs no memory of.

    It rises on a cosine from peak / 25 to `peak` in the fraction `warmup` of the steps, then falls on one to
    peak / 10,000. Torch's OneCycleLR peaks one step earlier, and divides by zero where the rise is one step or none.
    """
    top = warmup * steps
    if step < top:
        start, end, fraction = peak / 25, peak, step / top
    else:
        start, end, fraction = peak, 1e-4 * peak, (step - top) / max(steps - 1 - top, 1)
    return end + (start - end) * (1 + math.cos(math.pi * min(fraction, 1.0))) / 2


class Average:
    """An exponential moving average of a module's floating-point tensors, which starts as their copy.

    A step keeps the fraction `decay` of the average, and less of it at first: (1 + step) / (10 + step). Torch's
    AveragedModel gives the same bits, but waits for the GPU in every step: training was up to 20 % slower.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module, self.decay = copy.deepcopy(module).eval().requires_grad_(False), decay
        mine, current = (part.state_dict(keep_vars=True) for part in (self.module, module))
        names = [name for name, tensor in mine.items() if tensor.is_floating_point()]
        self._averaged, self._current = [mine[name] for name in names], [current[name] for name in names]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move towards the module after a step (from 0)."""
        keep = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._averaged, self._current, 1 - keep)


@torch.no_grad()
def noisy_scores(
    classifier: nn.Module,
    feed: Feed,
    noise: Noise | None,
    seed: int,
    rank: int = 0,
    world: int = 1,
    *,
    amp: bool = False,
) -> Tensor:
    """The scores (n, c) of one noisy copy of each image. The seed and the device decide the noise.

    Rows that belong to other ranks are zero, so that the sum over the ranks holds all scores.
    """
    scores = torch.zeros(feed.targets.shape, device=feed.device)
    chunks = [np.arange(start, min(start + _CHUNK, len(feed))) for start in range(0, len(feed), _CHUNK)]
    ours = range(rank, len(chunks), world)
    generator = torch.Generator(feed.device)
    for number, (images, _) in zip(ours, feed.batches([chunks[i] for i in ours]), strict=True):
        generator.manual_seed(derived_seed(seed, VALIDATION, number))
        noisy = add_noise(images.float() / 255, noise, generator)
        with torch.autocast(feed.device.type, torch.bfloat16, enabled=amp):
            scores[chunks[number][0] : chunks[number][-1] + 1] = classifier(noisy).float()
    return scores


def noisy_map(classifier: nn.Module, pixels: Pixels, noise: Noise | None, *, seed: int = 0) -> float:
    """The mean average precision of a classifier in eval mode on one noisy copy of each image.

    The classifier maps images in [0, 1] to one score per label and runs on the device of its weights. The seed decides
    the noise; None for none.
    """
    device = next((weights.device for weights in classifier.parameters()), torch.device("cpu"))
    scores = noisy_scores(classifier, Feed(pixels, device), noise, seed)
    return mean_average_precision(scores.cpu().numpy(), pixels.targets)


def mean_average_precision(scores: NDArray[np.floating], targets: NDArray[np.integer]) -> float:
    """The mean average precision over the labels that at least one image has, in [0, 1]; nan without any.

    Only the order of the scores (n, c) within a label matters. Targets (n, c) are 1 where the label is present.
    The first label is ranked perfectly; the image of the second is ranked second of three:

    >>> scores = np.array([[0.9, 0.5], [0.8, 0.7], [0.1, 0.2]])
    >>> mean_average_precision(scores, np.array([[1, 1], [1, 0], [0, 0]]))
    0.75
    """
    from sklearn.metrics import average_precision_score

    present = np.flatnonzero(targets.any(axis=0))
    if not len(present):
        return float("nan")
    return float(np.mean([average_precision_score(targets[:, j], scores[:, j]) for j in present]))
