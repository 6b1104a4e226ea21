"""The built-in networks: EfficientNet-Lite with timm's logits, and the U-Net denoiser in front of it."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from multiguard.certify import Gaussian
from multiguard.models.backbone import build_backbone
from multiguard.models.card import ModelCard
from multiguard.models.model_folder import load_folder, save_folder
from multiguard.models.networks import (
    DenoisingNetwork,
    EfficientNetLite,
    InvertedBlock,
    UNet,
)


def timm_network(variant: int, **options) -> nn.Module:
    timm = pytest.importorskip("timm")
    return timm.create_model(f"tf_efficientnet_lite{variant}", **options).eval()


def randomise_norms(network: nn.Module) -> None:
    """Batch norms as after training: a fresh one would hide a wrong epsilon or order."""
    generator = torch.Generator().manual_seed(0)
    for norm in (module for module in network.modules() if isinstance(module, nn.BatchNorm2d)):
        for tensor, low in ((norm.weight, 0.5), (norm.bias, -0.5), (norm.running_mean, -0.5), (norm.running_var, 0.01)):
            tensor.data = low + torch.rand(tensor.shape, generator=generator)


@pytest.mark.parametrize(("variant", "size"), [(0, 64), (0, 75), (2, 64)])
@torch.no_grad()
def test_timm_logits(variant, size):
    """The logits are timm's for the same weights, also where strides do not divide the size."""
    torch.manual_seed(variant)
    reference, network = timm_network(variant, num_classes=7), EfficientNetLite(7, variant).eval()
    randomise_norms(reference)
    network.load_state_dict(reference.state_dict())
    images = torch.randn(2, 3, size, size)
    expected = reference(images)
    assert expected.std() > 0.01
    torch.testing.assert_close(network(images), expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_size():
    """lite:N@SIZE is lite:N on the resized image, with the same tensors; so it is behind a U-Net."""
    torch.manual_seed(0)
    plain, sized = (build_backbone(name, 3).network.eval() for name in ("lite:0", "lite:0@64"))
    sized.load_state_dict(plain.state_dict())
    images = torch.randn(1, 3, 48, 40)
    resized = functional.interpolate(images, size=(64, 64), mode="bilinear")
    torch.testing.assert_close(sized(images), plain(resized))
    behind = build_backbone("unet:8+lite:0@64", 3).network.eval()
    cleaned = behind.denoiser(images)
    torch.testing.assert_close(behind(images), behind.network(cleaned))
    assert behind.network.size == 64


def test_drop_path():
    """Training skips a block for some images and scales the others up, so that its mean stays; eval skips nothing."""
    torch.manual_seed(0)
    block = InvertedBlock(8, 8, 6, kernel=3, stride=1)
    block.drop_path = 0.25
    block.bn3.requires_grad_(False)
    images = torch.randn(1, 8, 4, 4).expand(400, -1, -1, -1)
    with torch.no_grad():
        branch = (block.train()(images) - images).flatten(1)
    kept = branch.abs().amax(1) > 0
    full = branch[kept][0]
    torch.testing.assert_close(branch[kept], full.expand_as(branch[kept]))
    assert 260 < kept.sum() < 340  # 300 expected, standard deviation 8.7
    block.drop_path = 0.0
    with torch.no_grad():
        torch.testing.assert_close(full * 0.75, (block(images) - images).flatten(1)[0], atol=1e-5, rtol=1e-4)
    block.drop_path, images = 0.9, images[:4]
    with torch.no_grad():
        assert torch.equal(block.eval()(images)[0], block(images)[1])


@pytest.mark.parametrize("size", [(16, 16), (224, 208), (37, 50), (5, 9)])
def test_sizes_of_unet(size):
    """Any size of the input is the size of the output, and multiples of 16 are not padded."""
    torch.manual_seed(0)
    network = UNet(8).eval()
    images = torch.randn(1, 3, *size)
    with torch.no_grad():
        clean = network(images)
        whole = network(nn.functional.pad(images, (0, -size[1] % 16, 0, -size[0] % 16), mode="replicate"))
    assert clean.shape == images.shape
    torch.testing.assert_close(clean, whole[..., : size[0], : size[1]])


@pytest.mark.parametrize("size", [(32, 64), (33, 50)])
def test_pool(size):
    """With pool=2 it is the same network on the means of 2 x 2 pixels; at an odd edge, of those that there are."""
    torch.manual_seed(0)
    pooled, plain = UNet(8, pool=2).eval(), UNet(8).eval()
    plain.load_state_dict(pooled.state_dict())
    images = torch.randn(2, 3, *size)
    rows = [images[:, :, y : y + 2].mean(2) for y in range(0, size[0], 2)]
    means = torch.stack(
        [torch.stack([row[..., x : x + 2].mean(-1) for x in range(0, size[1], 2)], -1) for row in rows], 2
    )
    with torch.no_grad():
        torch.testing.assert_close(pooled(images), plain(means))


def test_model_folder(tmp_path):
    """A model folder restores the U-Net with the network behind it, and both are trained."""
    torch.manual_seed(0)
    network = build_backbone("unet:8+lite:0", 2).network
    assert isinstance(network, DenoisingNetwork)
    images = torch.rand(2, 3, 64, 64)
    network.train()(images).sum().backward()
    assert all(weights.grad is not None for weights in network.parameters())
    save_folder(tmp_path, ModelCard("unet:8+lite:0", ("a", "b"), (64, 64), (0.5,), (0.5,), Gaussian(0.5)), network)
    with torch.no_grad():
        torch.testing.assert_close(load_folder(tmp_path)(images), network.eval()((images - 0.5) / 0.5))
