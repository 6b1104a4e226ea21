"""Searches for perturbations, along the gradients through the noise or by scores alone; the best found per image."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from multiguard.attack.config import AttackConfig, AttackName
from multiguard.attack.target import Target
from multiguard.attack.threats import Threat, per_image
from multiguard.certify import Rule
from multiguard.smooth.noise_source import noise_key

Kind = Literal["hide", "add", "change"]
Progress = Callable[[float], None]  # with the fraction of a search that is done

# Input numbers per batch: the backward pass keeps what the forward pass computed.
_DEVICE_NUMBERS, _CPU_NUMBERS = 1 << 25, 1 << 19
# Fractions lie in [0, 1]. Absent labels get values far below, so that no order of fractions can bring them up.
_ABSENT = 8.0
_TINY = 1e-9  # less than the difference of any two fractions


@dataclass(frozen=True)
class Objective:
    """Margins of the labels that stay as they are, from the fraction that each label has (`Target`).

    A label of the aim stays as it is if it stays in ("hide"), if it stays out ("add"), or if it stays where it was
    ("change": the aim holds the labels that were in).
    """

    rule: Rule  # which labels are returned
    kind: Kind

    def margins(self, fractions: Tensor, aim: Tensor) -> Tensor:
        """(P, sizes), never rising: at least e labels stay exactly where the e-th margin is not negative.

        The fractions are (P, c), and so is the boolean `aim` of each image. Threshold rule: a label is in where its
        fraction is not below t. Top-k rule: at least e labels of the aim are in where the e-th largest of them is not
        below the (k - e + 1)-th largest of the others; and at least e of d are out where the (m + 1)-th largest of
        them, m = d - e, is not above the (k - m)-th largest of the others.
        """
        if self.rule.t is not None:
            inside, outside = fractions - self.rule.t, self.rule.t - fractions
            outside = torch.where(outside == 0, -_TINY, outside)  # a label is in from t on
            stays = {"hide": inside, "add": outside, "change": torch.where(aim, inside, outside)}[self.kind]
            counted = torch.ones_like(aim) if self.kind == "change" else aim
            return _first(stays.masked_fill(~counted, -_ABSENT).sort(dim=1, descending=True).values, counted)
        ours = fractions.masked_fill(~aim, -_ABSENT).sort(dim=1, descending=True).values
        rivals = fractions.masked_fill(aim, -3 * _ABSENT).sort(dim=1, descending=True).values
        if self.kind != "add":
            return _first(ours[:, : self.rule.k] - rivals[:, : self.rule.k].flip(1), aim)
        last = fractions.shape[1] - 1
        ahead = aim.sum(dim=1, keepdim=True) - torch.arange(1, last + 2, device=fractions.device)  # m
        rank = self.rule.k - ahead - 1  # of the rival, from 0; below 0 there is no room for more labels
        margins = rivals.gather(1, rank.clamp(0, last)) - ours.gather(1, ahead.clamp(0, last))
        return _first(torch.where(rank < 0, _ABSENT, margins.clamp(min=-_ABSENT)), aim)

    def value(self, fractions: Tensor, aim: Tensor) -> Tensor:
        """(P,), smaller is better for the attack: the number of labels that stay, then the margin of the last one.

        With s > 0 labels left it lies between s - 1 and s, with none left below 0.
        """
        margins = self.margins(fractions, aim)
        size = (margins >= 0).sum(dim=1)
        return (size - 1).clamp(min=0) + _last(margins, size).clamp(-1, 1)

    def loss(self, fractions: Tensor, aim: Tensor) -> Tensor:
        """(P,), the margin of the weakest label that stays; if none stays, of the label that left last."""
        margins = self.margins(fractions, aim)
        return _last(margins, (margins.detach() >= 0).sum(dim=1))


def _first(margins: Tensor, counted: Tensor) -> Tensor:
    """The margins of as many labels as are counted; no others stay."""
    size = torch.arange(1, margins.shape[1] + 1, device=margins.device)
    return torch.where(size <= counted.sum(dim=1, keepdim=True), margins, -_ABSENT)


def _last(margins: Tensor, size: Tensor) -> Tensor:
    return margins.gather(1, (size - 1).clamp(min=0)[:, None])[:, 0]


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
        """The noise keys."""
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
        images = torch.where(per_image(wins, self.images), others.images, self.images)
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
        return (self._descend if self._name == "pgd" else self._try)(group, turn, radius, previous)

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
        measured = self._measured(group, images, turn, slopes=False)
        return Candidates(images, torch.cat([values for values, _ in measured]))

    def gradients(self, group: ImageGroup, images: Tensor, step: int) -> tuple[Candidates, Tensor]:
        """The images and their values, and (P, ...), the gradient of the loss at each, by the draws of this step."""
        values, slopes = zip(*self._measured(group, images, step, slopes=True), strict=True)
        slope = torch.cat(slopes)
        leads = torch.isfinite(slope).flatten(1).all(dim=1) & (slope != 0).flatten(1).any(dim=1)
        self.flat.update(name for name, led in zip(group.ids, leads.tolist(), strict=True) if not led)
        return Candidates(images, torch.cat(values)), slope

    def _measured(self, group: ImageGroup, images: Tensor, step: int, *, slopes: bool) -> Iterator[tuple[Tensor, ...]]:
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
