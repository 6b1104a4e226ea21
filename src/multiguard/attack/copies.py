"""Noisy copies of images for gradients: the noise that the classifier is smoothed with, keyed draw by draw."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from multiguard.smooth.noise import HOST_PHILOX, HostNoise, key_words
from multiguard.smooth.philox import standard_normal
from multiguard.smooth.settings import Settings


class NoisyCopies:
    """Makes copies whose noise is a function of the image's key and the draw, from the source of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._host = HostNoise(torch.get_num_threads()) if settings.noise == HOST_PHILOX else None

    def of(self, images: Tensor, keys: Sequence[bytes], first_draw: int, copies: int) -> Tensor:
        """(P copies, ...) float32 on the device: the copies of the first image, then those of the next."""
        draws = list(range(first_draw, first_draw + copies)) * len(images)
        each = [key for key in keys for _ in range(copies)]
        if self._host is None:
            return self._on_device(images.repeat_interleave(copies, dim=0), each, draws)
        out = np.empty((len(draws), *images.shape[1:]), dtype=np.float32)
        rows = [row for row in images.cpu().numpy() for _ in range(copies)]
        self._host.perturb(rows, each, draws, self._settings.sigma, out)
        return torch.from_numpy(out).to(images.device)

    def _on_device(self, rows: Tensor, keys: Sequence[bytes], draws: Sequence[int]) -> Tensor:
        words = torch.tensor([key_words(key) for key in keys], dtype=torch.int32, device=rows.device)
        index = torch.tensor(draws, dtype=torch.int64, device=rows.device)
        return rows + self._settings.sigma * standard_normal(words, index, rows.shape[1:])
