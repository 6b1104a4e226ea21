"""A small U-Net that cleans noisy images, and a network behind it; both are trained together."""

from torch import Tensor, nn
from torch.nn import functional

_FOLD = 4  # pixels per side that become channels
_MULTIPLE = 16  # of the sides: the folding, and two levels of half the size each
_CHANNELS = 3 * _FOLD**2


class UNet(nn.Module):
    """A denoiser of images with mean about 0: `width` channels at 1/4 of the size, two and three times as many below.

    Pixels are folded into channels first, so that it costs a fraction of a U-Net at full size.

    >>> import torch
    >>> UNet(8).eval()(torch.zeros(1, 3, 50, 70)).shape
    torch.Size([1, 3, 50, 70])

    Args:
        width: The number of channels at the top.
        pool: With 2, the mean of each 2 x 2 pixels is taken first, which halves the noise; the clean images are that
            much smaller.
    """

    def __init__(self, width: int, pool: int = 1) -> None:
        super().__init__()
        self.pool, wide, widest = pool, 2 * width, 3 * width
        self.enter, self.down0 = _Step(_CHANNELS, width), _Residual(width)
        self.to1, self.down1 = _Step(width, wide, stride=2), _Residual(wide)
        self.to2, self.middle = _Step(wide, widest, stride=2), nn.Sequential(_Residual(widest), _Residual(widest))
        self.from2, self.up1 = nn.Conv2d(widest, wide, 1), _Residual(wide)
        self.from1, self.up0 = nn.Conv2d(wide, width, 1), _Residual(width)
        self.leave = nn.Conv2d(width, _CHANNELS, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        """The clean images, each side divided by `pool`, rounded up; the edge is repeated up to a multiple of 16."""
        if self.pool > 1:
            images = functional.avg_pool2d(images, self.pool, ceil_mode=True)
        height, width = images.shape[-2:]
        padded = functional.pad(images, (0, -width % _MULTIPLE, 0, -height % _MULTIPLE), mode="replicate")
        top = self.down0(self.enter(functional.pixel_unshuffle(padded, _FOLD)))
        middle = self.down1(self.to1(top))
        bottom = self.middle(self.to2(middle))
        middle = self.up1(middle + _double(self.from2(bottom)))
        top = self.up0(top + _double(self.from1(middle)))
        return functional.pixel_shuffle(self.leave(top), _FOLD)[..., :height, :width]


class DenoisingNetwork(nn.Module):
    """A U-Net, then a network on the images that it cleaned; one training changes both."""

    def __init__(self, denoiser: UNet, network: nn.Module) -> None:
        super().__init__()
        self.denoiser, self.network = denoiser, network

    def forward(self, images: Tensor) -> Tensor:
        """One logit per label for each noisy image."""
        logits: Tensor = self.network(self.denoiser(images))
        return logits


class _Step(nn.Module):
    def __init__(self, inputs: int, outputs: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.relu(self.bn(self.conv(inputs)))


class _Residual(nn.Module):
    """Two convolutions whose result is added to the input; it starts as the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        nn.init.zeros_(self.bn2.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        inner = functional.relu(self.bn1(self.conv1(inputs)))
        return functional.relu(inputs + self.bn2(self.conv2(inner)))


def _double(features: Tensor) -> Tensor:
    return functional.interpolate(features, scale_factor=2.0, mode="nearest")
