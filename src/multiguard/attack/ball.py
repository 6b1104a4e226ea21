"""The l2-ball and the l1-ball around each image: lengths, projections, and the steps that descend fastest."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

_INWARD = 1e-6  # what float32 may add to a norm when a perturbation is added to an image
_SPARSITY = 0.01  # the fraction of the numbers of an image that a step in the l1-ball changes


@dataclass(frozen=True)
class Ball:
    """All perturbations of a norm of at most R, by the sum of squares (order 2) or of absolute values (order 1)."""

    order: Literal[1, 2]

    def lengths(self, perturbations: Tensor) -> Tensor:
        """(P,) float64, the norm of each."""
        norms: Tensor = torch.linalg.vector_norm(perturbations.flatten(1).to(torch.float64), ord=self.order, dim=1)
        return norms

    def distances(self, clean: Tensor, images: Tensor) -> Tensor:
        """(P,) float64, the norm of what was added to each image; the difference is not rounded."""
        return self.lengths(images.to(torch.float64) - clean.to(torch.float64))

    def unit(self, perturbations: Tensor) -> Tensor:
        """Each perturbation at length 1; one of length 0, or that is not finite, becomes 0."""
        finite = torch.nan_to_num(perturbations, nan=0.0, posinf=0.0, neginf=0.0)
        return rescale(finite, 1 / self.lengths(finite).clamp(min=1e-30))

    def ascent(self, slope: Tensor, images: Tensor, *, box: bool) -> Tensor:
        """A direction of length 1 in which a function with this slope rises fast.

        In the l2-ball it is the slope itself. In the l1-ball a few numbers of the steepest slope share the step; in the
        `box` only those that a step against the slope leaves in [0, 1].
        """
        if self.order == 2:
            return self.unit(slope)
        steep = torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)
        if box:
            stuck = ((steep > 0) & (images <= 0)) | ((steep < 0) & (images >= 1))
            steep = steep.masked_fill(stuck, 0)
        heights = steep.flatten(1).abs()
        count = max(1, round(_SPARSITY * heights.shape[1]))
        least = heights.topk(count, dim=1).values[:, -1:].view(-1, *(1 for _ in slope.shape[1:]))
        return self.unit(torch.where((steep.abs() >= least) & (steep != 0), steep.sign(), 0))

    def project(self, clean: Tensor, images: Tensor, radius: Tensor, *, box: bool, sphere: bool = False) -> Tensor:
        """The images moved until their distance from the clean ones, computed from their float32 values, is in R.

        The `radius` is (P,) float64. In the `box` images also stay in [0, 1]; to the `sphere` shorter perturbations are
        stretched.
        """
        perturbations = images - clean
        if sphere:
            perturbations = rescale(self.unit(perturbations), radius)
        if box:
            perturbations = (clean + perturbations).clamp(0, 1) - clean
        inward = torch.full_like(radius, _INWARD)
        while True:
            projected = clean + self._shrink(perturbations, radius * (1 - inward).clamp(min=0))
            outside = self.distances(clean, projected) > radius
            if not bool(outside.any()):
                return projected
            inward = torch.where(outside, 2 * inward, inward)

    def _shrink(self, perturbations: Tensor, radius: Tensor) -> Tensor:
        """The nearest perturbations, in the l2-norm, whose own norm is in the radius."""
        if self.order == 2:
            return rescale(perturbations, (radius / self.lengths(perturbations).clamp(min=1e-30)).clamp(max=1.0))
        flat = perturbations.flatten(1).to(torch.float64)
        # Every absolute value is lowered by the same number, down to 0: by which, the sorted values say.
        falling = flat.abs().sort(dim=1, descending=True).values
        counts = torch.arange(1, flat.shape[1] + 1, device=flat.device)
        lowered = (falling.cumsum(dim=1) - radius[:, None]) / counts
        last = (falling > lowered).sum(dim=1, keepdim=True).clamp(min=1) - 1
        by = lowered.gather(1, last).clamp(min=0)
        return (flat.sign() * (flat.abs() - by).clamp(min=0)).to(perturbations.dtype).view_as(perturbations)


def rescale(perturbations: Tensor, factors: Tensor) -> Tensor:
    """Each perturbation times its own factor."""
    return perturbations * factors.to(perturbations.dtype).view(-1, *(1 for _ in perturbations.shape[1:]))
