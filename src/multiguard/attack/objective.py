"""What an attack minimizes: how many labels stay, and the margin of the weakest label that stays."""

from dataclasses import dataclass

import torch
from torch import Tensor

from multiguard.certify import Rule, TopK
from multiguard.evaluate.attack_outcomes import Goal

# Fractions lie in [0, 1]. Absent labels get values far below, so that no order of fractions can bring them up.
_ABSENT = 8.0
_TINY = 1e-9  # less than the difference of any two fractions


@dataclass(frozen=True)
class Objective:
    """Margins of the labels that stay, from the fraction of draws that hit each label.

    Attributes:
        rule: Which smoothed classifier is attacked.
        goal: Whether labels of L shall leave ("in") or other labels shall come in ("out").
    """

    rule: Rule
    goal: Goal

    def margins(self, fractions: Tensor, in_labels: Tensor) -> Tensor:
        """(P, sizes), never rising: at least e labels stay exactly where the e-th margin is not negative.

        Top-k rule: at least e labels of L are returned where the e-th largest fraction of L is not below the
        (k - e + 1)-th largest of the others. Threshold rule: where the e-th largest of L is not below t, and at least
        e others stay out where their e-th smallest fraction is below t; a fraction of exactly t is in.

        Args:
            fractions: (P, c).
            in_labels: (P, c) boolean, L of each image.
        """
        counted = in_labels if self.goal == "in" else ~in_labels
        values = fractions if self.goal == "in" else -fractions
        ours = values.masked_fill(~counted, -_ABSENT).sort(dim=1, descending=True).values
        if isinstance(self.rule, TopK):
            rivals = values.masked_fill(in_labels, -3 * _ABSENT).sort(dim=1, descending=True).values
            margins = ours[:, : self.rule.k] - rivals[:, : self.rule.k].flip(1)
        else:
            margins = ours - self.rule.t if self.goal == "in" else _zero_is_negative(ours + self.rule.t)
        size = torch.arange(1, margins.shape[1] + 1, device=fractions.device)
        return torch.where(size <= counted.sum(dim=1, keepdim=True), margins, -_ABSENT)

    def value(self, fractions: Tensor, in_labels: Tensor) -> Tensor:
        """(P,), smaller is better for the attack: the number of labels that stay, then the margin of the last one.

        With s > 0 labels left it lies between s - 1 and s, with none left below 0.
        """
        margins = self.margins(fractions, in_labels)
        size = (margins >= 0).sum(dim=1)
        return (size - 1).clamp(min=0) + _last(margins, size).clamp(-1, 1)

    def loss(self, fractions: Tensor, in_labels: Tensor) -> Tensor:
        """(P,), the margin of the weakest label that stays; if none stays, of the label that left last."""
        margins = self.margins(fractions, in_labels)
        return _last(margins, (margins.detach() >= 0).sum(dim=1))


def _last(margins: Tensor, size: Tensor) -> Tensor:
    return margins.gather(1, (size - 1).clamp(min=0)[:, None])[:, 0]


def _zero_is_negative(margins: Tensor) -> Tensor:
    return torch.where(margins == 0, margins - _TINY, margins)
