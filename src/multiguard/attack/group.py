"""Images of one shape that are attacked together, and the changes found so far."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Group:
    """Images of one shape, P of them.

    Attributes:
        ids: Their ids.
        keys: The key of each one's noise.
        clean: (P, ...) float32 on the device, as they are.
        inside: (P, c) boolean on the device, L of each.
    """

    ids: tuple[str, ...]
    keys: tuple[bytes, ...]
    clean: Tensor
    inside: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, places: Sequence[int]) -> "Group":
        """Some of the images."""
        chosen = torch.tensor(list(places), device=self.clean.device)
        ids, keys = tuple(self.ids[place] for place in places), tuple(self.keys[place] for place in places)
        return Group(ids, keys, self.clean[chosen], self.inside[chosen])

    def chance(self, place: int, *branch: int) -> np.random.Generator:
        """Random numbers of one image, the same whichever images are attacked beside it."""
        return np.random.default_rng([*branch, *np.frombuffer(self.keys[place], dtype=np.uint32).tolist()])


@dataclass(frozen=True, eq=False)
class Found:
    """The best changed image so far of each of a group, and how good it is for the attack.

    Attributes:
        images: (P, ...).
        values: (P,), the smaller the better; `Aim.value` of the draws that compare.
    """

    images: Tensor
    values: Tensor

    def take(self, places: Sequence[int]) -> "Found":
        """Those of some of the images."""
        chosen = torch.tensor(list(places), device=self.images.device)
        return Found(self.images[chosen], self.values[chosen])

    def put(self, places: Sequence[int], others: "Found") -> "Found":
        """These, with those of some of the images replaced."""
        chosen = torch.tensor(list(places), device=self.images.device)
        return Found(self.images.index_copy(0, chosen, others.images), self.values.index_copy(0, chosen, others.values))

    def better(self, others: "Found") -> "Found":
        """Of each image the better of two; of equals these."""
        won = others.values < self.values
        shape = (-1, *(1 for _ in self.images.shape[1:]))
        images = torch.where(won.view(shape), others.images, self.images)
        return Found(images, torch.where(won, others.values, self.values))
