"""Multi-label losses on logits, summed over the labels of an image and averaged over the images of a batch."""

import math
from collections.abc import Callable, Mapping

from torch import Tensor, where
from torch.nn import functional

from multiguard.train.config import LossName

_SOFTMAX_WEIGHT = 0.5  # next to the asymmetric loss


def asymmetric_loss(
    logits: Tensor, targets: Tensor, *, gamma_positive: float = 0.0, gamma_negative: float = 4.0, margin: float = 0.05
) -> Tensor:
    r"""The asymmetric loss (ASL) of the MultiGuard paper, finite with finite gradients for every finite logit.

    With q = sigmoid(logit), p = max(q - m, 0) and y the target, the loss of an image is

        sum_j  - y_j (1 - q_j)^{gamma+} log q_j  -  (1 - y_j) p_j^{gamma-} log(1 - p_j).

    log q and log(1 - q) come from log-sigmoid; where q > m, 1 - p = (1 - q) + m is summed in the log domain.
    The weights p^{gamma-} and (1 - q)^{gamma+} carry gradient, as the formula says.

    An absent label costs nothing up to the margin, and little where its score is small:

    >>> import torch
    >>> logits, targets = torch.tensor([[2.0, -4.0, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> [round(loss(logits, targets).item(), 3) for loss in (asymmetric_loss, binary_cross_entropy)]
    [0.373, 1.458]

    Args:
        logits: (B, c), any real numbers.
        targets: (B, c), 1 where the label is present, else 0.
        gamma_positive: gamma+, the focus on present labels with low scores.
        gamma_negative: gamma-, the focus on absent labels with high scores.
        margin: m, the score below which an absent label costs nothing.
    """
    log_q, log_not_q = functional.logsigmoid(logits), functional.logsigmoid(-logits)
    present = (gamma_positive * log_not_q).exp() * log_q
    q = log_q.exp()
    costs = q > margin
    p = where(costs, q - margin, 1.0)
    log_margin = logits.new_full((), math.log(margin) if margin > 0 else -math.inf)
    absent = where(costs, p**gamma_negative * log_not_q.logaddexp(log_margin), 0.0)
    return -(targets * present + (1 - targets) * absent).sum(dim=1).mean()


def binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy: the asymmetric loss with gamma+ = gamma- = m = 0.

    >>> import torch
    >>> round(binary_cross_entropy(torch.zeros(2, 3), torch.ones(2, 3)).item(), 4)  # 3 log 2
    2.0794
    """
    return functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(dim=1).mean()


def softmax_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy with an image's labels as one distribution, each with the same part: its optimum ranks by recall.

    An image without labels costs nothing.

    >>> import torch
    >>> logits, targets = torch.zeros(2, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    >>> round(softmax_cross_entropy(logits, targets).item(), 4)  # log 4 and 0
    0.6931
    """
    parts = targets / targets.sum(dim=1, keepdim=True).clamp(min=1e-6)
    return -(parts * logits.log_softmax(dim=1)).sum(dim=1).mean()


def _asymmetric_and_softmax(logits: Tensor, targets: Tensor) -> Tensor:
    return asymmetric_loss(logits, targets) + _SOFTMAX_WEIGHT * softmax_cross_entropy(logits, targets)


LOSSES: Mapping[LossName, Callable[[Tensor, Tensor], Tensor]] = {
    "asl": asymmetric_loss,
    "bce": binary_cross_entropy,
    "softmax": softmax_cross_entropy,
    "asl+softmax": _asymmetric_and_softmax,
}
