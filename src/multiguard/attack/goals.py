"""What an attack shall achieve, and what it minimizes for that."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from multiguard.certify import Rule

Kind = Literal["hide", "add", "change"]

# Fractions lie in [0, 1]. Absent labels get values far below, so that no order of fractions can bring them up.
_ABSENT = 8.0
_TINY = 1e-9  # less than the difference of any two fractions


@dataclass(frozen=True, eq=False)
class Hide:
    """The labels shall not be returned any more.

    Attributes:
        labels: A label, by index or name, or a list of them, for all inputs; or a multi-hot array (inputs, labels).

    >>> Hide("cat").labels
    'cat'
    """

    labels: Any
    kind: ClassVar[Kind] = "hide"


@dataclass(frozen=True, eq=False)
class Add:
    """The labels shall be returned; `labels` as in `Hide`.

    >>> Add([3, 7]).labels
    [3, 7]
    """

    labels: Any
    kind: ClassVar[Kind] = "add"


@dataclass(frozen=True)
class Change:
    """As many labels as possible shall leave or come in.

    >>> Change()
    Change()
    """

    kind: ClassVar[Kind] = "change"


AttackGoal = Hide | Add | Change


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
            return self._threshold_margins(fractions, aim, self.rule.t)
        ours = fractions.masked_fill(~aim, -_ABSENT).sort(dim=1, descending=True).values
        rivals = fractions.masked_fill(aim, -3 * _ABSENT).sort(dim=1, descending=True).values
        if self.kind != "add":
            return _first(ours[:, : self.rule.k] - rivals[:, : self.rule.k].flip(1), aim)
        last = fractions.shape[1] - 1
        ahead = aim.sum(dim=1, keepdim=True) - torch.arange(1, last + 2, device=fractions.device)  # m
        rank = self.rule.k - ahead - 1  # of the rival, from 0; below 0 there is no room for more labels
        margins = rivals.gather(1, rank.clamp(0, last)) - ours.gather(1, ahead.clamp(0, last))
        return _first(torch.where(rank < 0, _ABSENT, margins.clamp(min=-_ABSENT)), aim)

    def _threshold_margins(self, fractions: Tensor, aim: Tensor, t: float) -> Tensor:
        inside, outside = fractions - t, t - fractions
        outside = torch.where(outside == 0, -_TINY, outside)  # a label is in from t on
        stays = {"hide": inside, "add": outside, "change": torch.where(aim, inside, outside)}[self.kind]
        counted = torch.ones_like(aim) if self.kind == "change" else aim
        return _first(stays.masked_fill(~counted, -_ABSENT).sort(dim=1, descending=True).values, counted)

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
