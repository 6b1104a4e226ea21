"""Perturbed images: those that are attacked together, the best found of each, and how good they are for the attack."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from multiguard.attack.config import AttackConfig
from multiguard.attack.goals import Objective

if TYPE_CHECKING:
    from multiguard.attack.target import Target

Progress = Callable[[float], None]  # with the fraction of a search that is done

# Input numbers per batch: the backward pass keeps what the forward pass computed.
_DEVICE_NUMBERS = 1 << 25
_CPU_NUMBERS = 1 << 19


@dataclass(frozen=True, eq=False)
class ImageGroup:
    """P images of one shape that are attacked together."""

    ids: tuple[str, ...]  # their ids
    keys: tuple[bytes, ...]  # the noise key of each
    clean: Tensor  # (P, ...) float32 on the device, the images as they are
    aim: Tensor  # (P, c) boolean on the device, the labels that the objective is about

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, indices: Sequence[int]) -> "ImageGroup":
        """Some of the images."""
        ids, keys = tuple(self.ids[index] for index in indices), tuple(self.keys[index] for index in indices)
        return ImageGroup(ids, keys, self.clean[list(indices)], self.aim[list(indices)])

    def rng(self, index: int, *branch: int) -> np.random.Generator:
        """Random numbers of one image, the same whichever images are attacked with it."""
        return np.random.default_rng([*branch, *np.frombuffer(self.keys[index], dtype=np.uint32).tolist()])


@dataclass(frozen=True, eq=False)
class Candidates:
    """A perturbed version of each image of a group, and how good it is for the attack."""

    images: Tensor  # (P, ...)
    values: Tensor  # (P,), `Objective.value`: smaller is better

    def take(self, indices: Sequence[int]) -> "Candidates":
        """Those of some of the images."""
        return Candidates(self.images[list(indices)], self.values[list(indices)])

    def put(self, indices: Sequence[int], others: "Candidates") -> "Candidates":
        """These, with those of some of the images replaced."""
        rows = torch.tensor(list(indices), device=self.images.device)
        values = self.values.index_copy(0, rows, others.values)
        return Candidates(self.images.index_copy(0, rows, others.images), values)

    def better(self, others: "Candidates") -> "Candidates":
        """The better of the two per image; of equals these."""
        wins = others.values < self.values
        images = torch.where(wins.view(-1, *(1 for _ in self.images.shape[1:])), others.images, self.images)
        return Candidates(images, torch.where(wins, others.values, self.values))


class SearchDraws:
    """The objective of one search, as votes and as a smooth function of the pixels.

    The first draws compare what was found. Each step, or each radius of a search by scores, has its own draws after
    them. `flat` takes the ids of images where some gradient was 0 or not finite, so that a step led nowhere.
    """

    def __init__(
        self,
        target: "Target",
        objective: Objective,
        config: AttackConfig,
        flat: set[str],
        progress: Progress | None = None,
    ) -> None:
        self.config = config
        self._target, self._objective, self._flat, self._progress = target, objective, flat, progress
        self._copies = target.copies(config.copies)

    def compare(self, group: ImageGroup, images: Tensor) -> Candidates:
        """The images and their values, by the draws that compare."""
        fractions = self._target.fractions(group, images, self.config.pick_draws, "attack")
        return Candidates(images, self._objective.value(fractions, group.aim))

    def values(self, group: ImageGroup, images: Tensor, turn: int) -> Candidates:
        """The images and their values without gradients; all tries of one turn get the same draws."""
        with torch.no_grad():
            parts = self._parts(group, images, turn)
            return Candidates(
                images, torch.cat([self._objective.value(self._soft(noisy), part.aim) for part, noisy in parts])
            )

    def gradients(self, group: ImageGroup, images: Tensor, step: int) -> tuple[Candidates, Tensor]:
        """The images and their values, and (P, ...), the gradient of the loss at each, by the draws of this step."""
        found = [self._gradient(part, noisy) for part, noisy in self._parts(group, images, step)]
        values, slopes = zip(*found, strict=True)
        slope = torch.cat(slopes)
        good = torch.isfinite(slope).flatten(1).all(dim=1) & (slope != 0).flatten(1).any(dim=1)
        self._flat.update(name for name, leads in zip(group.ids, good.tolist(), strict=True) if not leads)
        return Candidates(images, torch.cat(values)), slope

    def done(self, fraction: float) -> None:
        """Report how much of the search is done."""
        if self._progress is not None:
            self._progress(fraction)

    def _parts(self, group: ImageGroup, images: Tensor, step: int) -> Iterator[tuple[ImageGroup, Tensor]]:
        """The group in parts whose noisy copies fill a batch."""
        first_draw = self.config.pick_draws + step * self.config.copies
        numbers = _CPU_NUMBERS if images.device.type == "cpu" else _DEVICE_NUMBERS
        size = max(1, numbers // (self._copies * max(1, images[0].numel())))
        for start in range(0, len(group), size):
            part = group.take(range(start, min(start + size, len(group))))
            yield part, self._target.noisy(images[start : start + size], part.keys, first_draw, self._copies)

    def _gradient(self, group: ImageGroup, noisy: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            noisy.requires_grad_()
            fractions = self._soft(noisy)
            (gradient,) = torch.autograd.grad(self._objective.loss(fractions, group.aim).sum(), noisy)
        if self._target.hidden is not None:  # a pixel that is hidden in a copy has no slope there
            gradient = gradient.masked_fill(noisy == self._target.hidden, 0)
        values = self._objective.value(fractions.detach(), group.aim)
        return values, gradient.view(len(group), -1, *noisy.shape[1:]).sum(dim=1)

    def _soft(self, noisy: Tensor) -> Tensor:
        return self._target.soft(noisy, self._copies)
