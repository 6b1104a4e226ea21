"""The U-Net denoiser, and a network behind it."""

import pytest
import torch
from torch import nn

from multiguard.certify import Gaussian
from multiguard.models.backbone import build_backbone
from multiguard.models.model_folder import ModelCard, load_folder, save_folder
from multiguard.models.networks import DenoisingNetwork, UNet


@pytest.mark.parametrize("size", [(16, 16), (224, 208), (37, 50), (5, 9)])
def test_sizes(size):
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
