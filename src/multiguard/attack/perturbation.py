"""Perturbed images: those that are attacked together, the best found of each, and the l2-ball around each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_INWARD = 1e-6  # what float32 may add to a norm when a perturbation is added to an image


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


def l2_norms(perturbations: Tensor) -> Tensor:
    """(P,) float64, the l2-norm of each."""
    norms: Tensor = torch.linalg.vector_norm(perturbations.flatten(1).to(torch.float64), dim=1)
    return norms


def distances(clean: Tensor, images: Tensor) -> Tensor:
    """(P,) float64, the l2-norm of what was added to each image; the difference is not rounded."""
    return l2_norms(images.to(torch.float64) - clean.to(torch.float64))


def rescale(perturbations: Tensor, factors: Tensor) -> Tensor:
    """Each perturbation times its own factor."""
    return perturbations * factors.to(perturbations.dtype).view(-1, *(1 for _ in perturbations.shape[1:]))


def unit(perturbations: Tensor) -> Tensor:
    """Each perturbation at length 1; one of length 0, or that is not finite, becomes 0."""
    finite = torch.nan_to_num(perturbations, nan=0.0, posinf=0.0, neginf=0.0)
    return rescale(finite, 1 / l2_norms(finite).clamp(min=1e-30))


def project(clean: Tensor, images: Tensor, radius: Tensor, *, box: bool, sphere: bool = False) -> Tensor:
    """The images moved until their distance from the clean ones, computed from their float32 values, is in the radius.

    The `radius` is (P,) float64. In the `box` images also stay in [0, 1]; to the `sphere` shorter perturbations are
    stretched.
    """
    perturbations = images - clean
    if sphere:
        perturbations = rescale(unit(perturbations), radius)
    if box:
        perturbations = (clean + perturbations).clamp(0, 1) - clean
    lengths, inward = l2_norms(perturbations).clamp(min=1e-30), torch.full_like(radius, _INWARD)
    while True:
        factors = (radius * (1 - inward).clamp(min=0) / lengths).clamp(max=1.0)
        projected = clean + rescale(perturbations, factors)
        outside = distances(clean, projected) > radius
        if not bool(outside.any()):
            return projected
        inward = torch.where(outside, 2 * inward, inward)
