"""What an attack makes small: how many labels stay, and by how much the weakest of them does."""

from dataclasses import dataclass

import torch
from torch import Tensor

from multiguard.certify import Rule, TopK
from multiguard.evaluate.judged import Goal

# Shares lie in [0, 1]: what is absent is put far below them, so that no order of shares can bring it up.
_ABSENT = 8.0
_BARELY = 1e-9  # less than any two shares differ by


@dataclass(frozen=True)
class Aim:
    """Margins of the labels that stay, from the shares of draws in which each label was hit.

    Attributes:
        rule: Which smoothed classifier.
        goal: Whether labels of L shall not stay in, or others not stay out.
    """

    rule: Rule
    goal: Goal

    def margins(self, shares: Tensor, inside: Tensor) -> Tensor:
        """(P, sizes), never rising: at least e labels stay exactly where the e-th margin is not negative.

        For the top-k rule at least e of L are among the k labels of largest share where the e-th largest share of L is
        not below the (k - e + 1)-th largest of the others; for the threshold rule where the e-th largest is not below
        t, and of the others where the e-th smallest is below it: a share of t itself is in.

        Args:
            shares: (P, c).
            inside: (P, c) boolean, L of each image.
        """
        ours = inside if self.goal == "in" else ~inside
        values = shares if self.goal == "in" else -shares
        own = values.masked_fill(~ours, -_ABSENT).sort(dim=1, descending=True).values
        if isinstance(self.rule, TopK):
            others = values.masked_fill(inside, -3 * _ABSENT).sort(dim=1, descending=True).values
            found = own[:, : self.rule.k] - others[:, : self.rule.k].flip(1)
        else:
            found = own - self.rule.t if self.goal == "in" else _above_zero(own + self.rule.t)
        size = torch.arange(1, found.shape[1] + 1, device=shares.device)
        return torch.where(size <= ours.sum(dim=1, keepdim=True), found, -_ABSENT)

    def value(self, shares: Tensor, inside: Tensor) -> Tensor:
        """(P,), the smaller the better for the attack: first how many labels stay, then by how much the last one does.

        With s > 0 labels left it lies between s - 1 and s, with none left below 0.
        """
        margins = self.margins(shares, inside)
        size = (margins >= 0).sum(dim=1)
        last = margins.gather(1, (size - 1).clamp(min=0)[:, None])[:, 0]
        return (size - 1).clamp(min=0) + last.clamp(-1, 1)

    def loss(self, shares: Tensor, inside: Tensor) -> Tensor:
        """(P,), the margin of the weakest label that stays; once none does, that of the one that left last."""
        margins = self.margins(shares, inside)
        size = (margins.detach() >= 0).sum(dim=1)
        return margins.gather(1, (size - 1).clamp(min=0)[:, None])[:, 0]


def _above_zero(margins: Tensor) -> Tensor:
    """The margins, so that one of exactly 0 is negative, too."""
    return torch.where(margins == 0, margins - _BARELY, margins)
