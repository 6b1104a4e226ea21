"""Searches for perturbations, along the gradients through the noise or by scores alone; the best found per image."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from multiguard.attack.config import AttackConfig, AttackName
from multiguard.attack.goals import Objective
from multiguard.attack.target import Target
from multiguard.attack.threats import Threat
from multiguard.smooth.noise_source import noise_key

Progress = Callable[[float], None]  # with the fraction of a search that is done

# Input numbers per batch: the backward pass keeps what the forward pass computed.
_DEVICE_NUMBERS = 1 << 25
_CPU_NUMBERS = 1 << 19


@dataclass(frozen=True, eq=False)
class ImageGroup:
    """P images of one shape that are attacked together."""

    ids: tuple[str, ...]  # their ids
    seed: int  # with an id it keys the noise and the random numbers of an image, whichever are attacked with it
    clean: Tensor  # (P, ...) float32 on the device, the images as they are
    aim: Tensor  # (P, c) boolean on the device, the labels that the objective is about

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, indices: Sequence[int]) -> "ImageGroup":
        """Some of the images."""
        ids = tuple(self.ids[index] for index in indices)
        return ImageGroup(ids, self.seed, self.clean[list(indices)], self.aim[list(indices)])

    @property
    def keys(self) -> list[bytes]:
        """The noise key of each image."""
        return [noise_key(self.seed, each, "attack") for each in self.ids]

    def rngs(self, *branch: int) -> list[np.random.Generator]:
        """Random numbers of each image."""
        return [np.random.default_rng([*branch, *np.frombuffer(key, dtype=np.uint32).tolist()]) for key in self.keys]


@dataclass(frozen=True, eq=False)
class Candidates:
    """A perturbed version of each image of a group, and how good it is for the attack."""

    images: Tensor  # (P, ...)
    values: Tensor  # (P,), `Objective.value`: smaller is better

    def take(self, indices: Sequence[int]) -> "Candidates":
        """Those of some of the images."""
        return Candidates(self.images[list(indices)], self.values[list(indices)])

    def put(self, indices: Sequence[int], others: "Candidates") -> "Candidates":
        """These, replaced for some of the images."""
        rows = torch.tensor(list(indices), device=self.images.device)
        values = self.values.index_copy(0, rows, others.values)
        return Candidates(self.images.index_copy(0, rows, others.images), values)

    def better(self, others: "Candidates") -> "Candidates":
        """The better of the two per image; of equals these."""
        wins = others.values < self.values
        images = torch.where(wins.view(-1, *(1 for _ in self.images.shape[1:])), others.images, self.images)
        return Candidates(images, torch.where(wins, others.values, self.values))


class Search:
    """One attack on a target: which labels, by which perturbations, and how hard.

    Its first draws compare what was found. Each step, or each radius of a search by scores, has its own draws after
    them. `flat` collects the ids of images where some gradient was 0 or not finite, so that a step led nowhere. With
    `keep_best`, the best point on the way to the end of each start takes part, too: towards several labels at once, the
    last steps may lose what earlier ones gained.
    """

    def __init__(
        self,
        name: AttackName,
        target: Target,
        threat: Threat,
        objective: Objective,
        config: AttackConfig,
        *,
        keep_best: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._name, self._target, self._threat, self._objective, self._config = name, target, threat, objective, config
        self._keep_best, self._progress = keep_best or threat.keeps_best, progress
        self._copies = target.copies(config.copies)
        self.flat: set[str] = set()

    def improve(self, group: ImageGroup, turn: int, radius: Tensor, previous: Candidates) -> Candidates:
        """The best of the candidates from smaller radii and of what is found at these radii, (P,) float64.

        How many smaller radii were searched before, `turn`, decides the draws.
        """
        search = self._descend if self._name == "pgd" else self._try
        return search(group, turn, radius, previous)

    def compare(self, group: ImageGroup, images: Tensor) -> Candidates:
        """The images and their values, by the draws that compare."""
        fractions = self._target.fractions(group.ids, images, self._config.pick_draws)
        return Candidates(images, self._objective.value(fractions, group.aim))

    def _descend(self, group: ImageGroup, turn: int, radius: Tensor, previous: Candidates) -> Candidates:
        """Every start ends with the last step; the best end of all starts wins."""
        best, config = previous, self._config
        for start in range(config.starts):
            images = previous.images
            if start:
                rngs = group.rngs(self._threat.branches[0], turn, start)
                images = self._threat.random_start(group.clean, radius, rngs, box=config.box)
            step, first = self._threat.descent(group.clean, radius, config), turn * config.starts + start
            passed: Candidates | None = None
            for number in range(config.steps):
                here, slope = self.gradients(group, images, first * config.steps + number)
                passed = here if passed is None else passed.better(here)
                images = step(images, slope, number)
                self._done((start * config.steps + number + 1) / (config.starts * config.steps))
            ends = [images]
            if self._keep_best and passed is not None:  # of equals the end in a ball, the other one among masks
                ends.insert(0 if self._threat.keeps_best else 1, passed.images)
            for end in ends:
                best = best.better(self.compare(group, end))
        return best

    def _try(self, group: ImageGroup, turn: int, radius: Tensor, previous: Candidates) -> Candidates:
        """Perturbations one after the other; what lowers the value is kept."""
        rngs = group.rngs(self._threat.branches[1], turn)
        tries = self._threat.tries(group.clean, previous.images, radius, rngs, self._config)
        best = self._values(group, next(tries), turn)
        gain = torch.zeros_like(best.values)
        for number in range(self._config.tries):
            found = self._values(group, tries.send(gain), turn)
            gain, best = best.values - found.values, best.better(found)
            self._done((number + 1) / self._config.tries)
        return previous.better(self.compare(group, best.images))

    def _values(self, group: ImageGroup, images: Tensor, turn: int) -> Candidates:
        """The images and their values without gradients; all tries of one turn get the same draws."""
        return Candidates(
            images, torch.cat([values for values, _ in self._measured(group, images, turn, slopes=False)])
        )

    def gradients(self, group: ImageGroup, images: Tensor, step: int) -> tuple[Candidates, Tensor]:
        """The images and their values, and (P, ...), the gradient of the loss at each, by the draws of this step."""
        values, slopes = zip(*self._measured(group, images, step, slopes=True), strict=True)
        slope = torch.cat(slopes)
        leads = torch.isfinite(slope).flatten(1).all(dim=1) & (slope != 0).flatten(1).any(dim=1)
        self.flat.update(name for name, led in zip(group.ids, leads.tolist(), strict=True) if not led)
        return Candidates(images, torch.cat(values)), slope

    def _measured(
        self, group: ImageGroup, images: Tensor, step: int, *, slopes: bool
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The values of the images and, if wanted, the gradients of their losses; parts whose copies fill a batch."""
        target, objective, copies = self._target, self._objective, self._copies
        first_draw = self._config.pick_draws + step * self._config.copies
        numbers = _CPU_NUMBERS if images.device.type == "cpu" else _DEVICE_NUMBERS
        size = max(1, numbers // (copies * max(1, images[0].numel())))
        for start in range(0, len(group), size):
            part = group.take(range(start, min(start + size, len(group))))
            noisy = target.noisy(images[start : start + size], part.keys, first_draw, copies).requires_grad_(slopes)
            with torch.set_grad_enabled(slopes):
                fractions = target.soft(noisy, copies)
                values, slope = objective.value(fractions.detach(), part.aim), noisy.new_zeros(0)
                if slopes:
                    (slope,) = torch.autograd.grad(objective.loss(fractions, part.aim).sum(), noisy)
                    if target.hidden is not None:  # a pixel that is hidden in a copy has no slope there
                        slope = slope.masked_fill(noisy == target.hidden, 0)
                    slope = slope.view(len(part), -1, *noisy.shape[1:]).sum(dim=1)
            yield values, slope

    def _done(self, fraction: float) -> None:
        if self._progress is not None:
            self._progress(fraction)
