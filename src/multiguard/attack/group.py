"""Pictures of one shape that are attacked together, and the changes found so far."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Group:
    """Pictures of one shape, P of them.

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
        """Some of the pictures."""
        chosen = torch.tensor(list(places), device=self.clean.device)
        ids, keys = tuple(self.ids[place] for place in places), tuple(self.keys[place] for place in places)
        return Group(ids, keys, self.clean[chosen], self.inside[chosen])

    def chance(self, place: int, *branch: int) -> np.random.Generator:
        """Random numbers of one picture, the same whichever pictures are attacked beside it."""
        return np.random.default_rng([*branch, *np.frombuffer(self.keys[place], dtype=np.uint32).tolist()])


@dataclass(frozen=True, eq=False)
class Found:
    """The best changed picture so far of each of a group, and how good it is for the attack.

    Attributes:
        pictures: (P, ...).
        values: (P,), the smaller the better; `Aim.value` of the draws that compare.
    """

    pictures: Tensor
    values: Tensor

    def take(self, places: Sequence[int]) -> "Found":
        """Those of some of the pictures."""
        chosen = torch.tensor(list(places), device=self.pictures.device)
        return Found(self.pictures[chosen], self.values[chosen])

    def put(self, places: Sequence[int], others: "Found") -> "Found":
        """These, with those of some of the pictures replaced."""
        chosen = torch.tensor(list(places), device=self.pictures.device)
        return Found(
            self.pictures.index_copy(0, chosen, others.pictures), self.values.index_copy(0, chosen, others.values)
        )

    def better(self, others: "Found") -> "Found":
        """Of each picture the better of two; of equals these."""
        won = others.values < self.values
        shape = (-1, *(1 for _ in self.pictures.shape[1:]))
        pictures = torch.where(won.view(shape), others.pictures, self.pictures)
        return Found(pictures, torch.where(won, others.values, self.values))
