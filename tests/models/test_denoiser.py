"""FFDNet, and a denoiser before a classifier."""

import pytest
import torch
from safetensors.torch import save_file

from multiguard.data import load_pixels, open_dataset, subset
from multiguard.errors import ModelError
from multiguard.models.classifier import Classifier
from multiguard.models.denoiser import FFDNet, denoise_first, load_ffdnet


def psnr(images, truth):
    return float((-10 * (images - truth).square().flatten(1).mean(1).log10()).mean())


def test_psnr_of_real_images(coco_root, ffdnet_weights):
    """FFDNet raises the PSNR of real images."""
    pixels = load_pixels(subset(open_dataset("coco", root=coco_root, split="val", size=224), 3))
    truth = torch.from_numpy(pixels.images).float() / 255
    noisy = truth + 0.5 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        clean = load_ffdnet(ffdnet_weights)(noisy, 0.5)
    assert psnr(noisy, truth) == pytest.approx(6.0, abs=0.1)
    assert psnr(clean, truth) == pytest.approx(23.6, abs=1.5)


def test_sizes_and_file_formats(tmp_path):
    """FFDNet accepts any size, and its own weights in either format."""
    torch.manual_seed(0)
    network = FFDNet().eval()
    save_file(network.state_dict(), tmp_path / "d.safetensors")
    torch.save(network.state_dict(), tmp_path / "d.pth")
    images = torch.rand(2, 3, 9, 14)
    with torch.no_grad():
        out = network(images, 0.3)
        assert out.shape == images.shape
        for name in ("d.safetensors", "d.pth"):
            torch.testing.assert_close(load_ffdnet(tmp_path / name)(images, 0.3), out)
    save_file({"conv.weight": torch.zeros(2)}, tmp_path / "x.safetensors")
    with pytest.raises(ModelError, match="not the weights of a colour FFDNet"):
        load_ffdnet(tmp_path / "x.safetensors")


class Half(FFDNet):
    def forward(self, images, sigma):
        return images * 0.5 + sigma


def test_denoise_first():
    """The classifier receives the clean image, clamped to [0, 1]."""
    inner = Classifier(lambda x: x.mean((2, 3)), "rgb", output="logits", mean=[0.5] * 3, std=[2.0] * 3, name="mean")
    images = torch.tensor([[0.2, 0.4, 3.0]]).view(1, 3, 1, 1)
    composed = denoise_first(inner, Half(), 0.25)
    torch.testing.assert_close(composed(images), (torch.tensor([[0.35, 0.45, 1.0]]) - 0.5) / 2)
    assert composed.label_names == ("r", "g", "b")
    assert composed.mean is None
