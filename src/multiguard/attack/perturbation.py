"""Perturbed images: those that are attacked together, and the best found of each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


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
