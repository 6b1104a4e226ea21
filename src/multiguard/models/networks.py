"""The built-in networks: a small CNN, EfficientNet-Lite with timm's names of tensors, and a U-Net in front."""

from collections.abc import Mapping
from math import ceil

import torch
from torch import Tensor, nn
from torch.nn import functional

from multiguard.errors import ModelError

_SCALES: Mapping[int, tuple[float, float]] = {0: (1.0, 1.0), 1: (1.0, 1.1), 2: (1.1, 1.2), 3: (1.2, 1.4), 4: (1.4, 1.8)}
_STEM, _HEAD = 32, 1280  # channels that no variant scales
_STAGES = (  # expansion, channels, blocks, stride, kernel
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
_EPSILON = 1e-3  # of the batch norms
_FOLD = 4  # pixels per side that become channels
_MULTIPLE = 16  # of the sides: the folding, and two levels of half the size each
_CHANNELS = 3 * _FOLD**2


class SmallCnn(nn.Module):
    """A convolutional network of about 300,000 weights that a CPU trains in a minute or two.

    A wide first layer averages out noise. A label is present if any part of the image shows it, so features are
    pooled by their maximum as well as their mean. The first stage has `width` channels, the last four times as many.
    """

    def __init__(self, classes: int, width: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        self.stages = nn.Sequential(
            *_cnn_block(3, width, kernel=5),
            *_cnn_block(width, 2 * width, stride=2),
            *_cnn_block(2 * width, 2 * width),
            *_cnn_block(2 * width, 4 * width, stride=2),
            *_cnn_block(4 * width, 4 * width),
        )
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(8 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """One logit per label for each image, (B, 3, height, width) to (B, c)."""
        features = self.stages(images).flatten(2)
        pooled = torch.cat((features.amax(2), features.mean(2)), dim=1)
        scores: Tensor = self.head(self.dropout(pooled))
        return scores


def _cnn_block(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> tuple[nn.Module, ...]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite0 to Lite4: mobile inverted bottlenecks with ReLU6, without squeeze-and-excitation.

    With the same weights its logits equal timm's `tf_efficientnet_lite0` to `lite4`, and the tensors have the same
    names. It takes images of any size from 32 pixels on, normalised with mean and standard deviation 0.5.

    >>> network = EfficientNetLite(80).eval()
    >>> network(torch.zeros(2, 3, 64, 64)).shape, sum(weights.numel() for weights in network.parameters())
    (torch.Size([2, 80]), 3473488)

    Args:
        classes: The number of labels c.
        variant: 0 to 4; a higher one is wider and deeper.
        dropout: The fraction of the head's inputs that a training step drops.
        size: The height and width to which images are resized first; None to take them as they are.
    """

    def __init__(self, classes: int, variant: int = 0, *, dropout: float = 0.0, size: int | None = None) -> None:
        super().__init__()
        self.size = size
        self.conv_stem = _conv(3, _STEM, 3, stride=2)
        self.bn1 = _norm(_STEM)
        self.blocks, channels = _stages(*_SCALES[variant])
        self.conv_head = _conv(channels, _HEAD)
        self.bn2 = _norm(_HEAD)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(_HEAD, classes)

    def features(self, images: Tensor) -> Tensor:
        """The last feature map, (B, 3, height, width) to (B, 1280, height / 32, width / 32), rounded up."""
        if self.size is not None:
            images = functional.interpolate(images, size=(self.size, self.size), mode="bilinear", align_corners=False)
        stem = functional.relu6(self.bn1(self.conv_stem(images)))
        return functional.relu6(self.bn2(self.conv_head(self.blocks(stem))))

    def forward(self, images: Tensor) -> Tensor:
        """One logit per label for each image, (B, 3, height, width) to (B, c)."""
        scores: Tensor = self.classifier(self.dropout(self.features(images).mean((2, 3))))
        return scores


class SeparableBlock(nn.Module):
    """A depthwise convolution, then a pointwise one: the first block, which expands nothing."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv_dw = _conv(inputs, inputs, kernel, stride=stride, groups=inputs)
        self.bn1 = _norm(inputs)
        self.conv_pw = _conv(inputs, outputs)
        self.bn2 = _norm(outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """The block's output; it has no residual connection, as input and output differ in channels."""
        result: Tensor = self.bn2(self.conv_pw(functional.relu6(self.bn1(self.conv_dw(inputs)))))
        return result


class InvertedBlock(nn.Module):
    """A pointwise expansion, a depthwise convolution and a pointwise projection, with a residual where shapes allow."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.residual, self.drop_path = stride == 1 and inputs == outputs, 0.0
        self.conv_pw = _conv(inputs, inner)
        self.bn1 = _norm(inner)
        self.conv_dw = _conv(inner, inner, kernel, stride=stride, groups=inner)
        self.bn2 = _norm(inner)
        self.conv_pwl = _conv(inner, outputs)
        self.bn3 = _norm(outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """The block's output, added to its input where they have the same shape."""
        inner = functional.relu6(self.bn1(self.conv_pw(inputs)))
        inner = functional.relu6(self.bn2(self.conv_dw(inner)))
        result: Tensor = self.bn3(self.conv_pwl(inner))
        return inputs + self._skip_some(result) if self.residual else result

    def _skip_some(self, branch: Tensor) -> Tensor:
        """In training, the branch set to zero for a random part of the images and scaled up for the others."""
        if not self.training or self.drop_path == 0:
            return branch
        kept = torch.rand(len(branch), 1, 1, 1, device=branch.device, dtype=branch.dtype) >= self.drop_path
        return branch * (kept / (1 - self.drop_path)).to(branch.dtype)


class SameConv2d(nn.Conv2d):
    """A convolution whose output has 1/stride of the input's size, rounded up; odd padding goes right and below."""

    def forward(self, inputs: Tensor) -> Tensor:
        """The convolution, (B, inputs, height, width) to (B, outputs, height / stride, width / stride)."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        totals = [max((ceil(side / stride) - 1) * stride + kernel - side, 0) for side in inputs.shape[-2:]]
        (top, bottom), (left, right) = [(total // 2, total - total // 2) for total in totals]
        return super().forward(functional.pad(inputs, (left, right, top, bottom)))


def set_drop_path(network: nn.Module, probability: float) -> None:
    """Let training skip residual blocks of the network's EfficientNet-Lite: the last with about this probability.

    It rises linearly from block to block, up to the given one. A network without such blocks raises `ModelError`,
    unless the probability is 0.
    """
    blocks = [module for module in network.modules() if isinstance(module, InvertedBlock)]
    if probability and not blocks:
        raise ModelError(f"drop_path is {probability}; only lite networks can skip blocks, so leave it at 0")
    for number, block in enumerate(blocks, start=1):
        block.drop_path = probability * number / (len(blocks) + 1)


def _stages(width: float, depth: float) -> tuple[nn.Sequential, int]:
    """The stages of blocks, and the channels of the last one. The first and the last stage are not deepened."""
    last = len(_STAGES) - 1
    counts = [blocks if i in (0, last) else ceil(blocks * depth) for i, (_, _, blocks, _, _) in enumerate(_STAGES)]
    channels, stages = _STEM, []
    for (expansion, base, _, stride, kernel), count in zip(_STAGES, counts, strict=True):
        blocks, outputs = [], _round_channels(base * width)
        for i in range(count):
            step = stride if i == 0 else 1
            first = SeparableBlock(channels, outputs, kernel, step) if expansion == 1 else None
            blocks.append(first or InvertedBlock(channels, outputs, expansion, kernel, step))
            channels = outputs
        stages.append(nn.Sequential(*blocks))
    return nn.Sequential(*stages), channels


def _round_channels(channels: float) -> int:
    """The nearest multiple of 8, or the one above it where that is more than a tenth too few."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def _conv(inputs: int, outputs: int, kernel: int = 1, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    if stride > 1:
        return SameConv2d(inputs, outputs, kernel, stride=stride, groups=groups, bias=False)
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=_EPSILON)


class UNet(nn.Module):
    """A denoiser of images with mean about 0: `width` channels at 1/4 of the size, two and three times as many below.

    Pixels are folded into channels first, so that it costs a fraction of a U-Net at full size.

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
