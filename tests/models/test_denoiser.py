"""A denoiser before a classifier, and the one of the package."""

import pytest
import torch

from multiguard.certify import Gaussian
from multiguard.data import load_pixels, open_dataset, subset
from multiguard.errors import ModelError
from multiguard.models.backbone import build_backbone
from multiguard.models.card import ModelCard
from multiguard.models.classifier import Classifier
from multiguard.models.denoiser import denoise_first, denoised_checksum, load_denoiser
from multiguard.models.model_folder import save_folder
from multiguard.models.networks import UNet


def psnr(images, truth):
    return float((-10 * (images - truth).square().flatten(1).mean(1).log10()).mean())


@pytest.mark.parametrize(("sigma", "noisy_psnr", "clean_psnr"), [(0.25, 12.0, 25.0), (0.5, 6.0, 23.0)])
def test_psnr_of_real_images(coco_root, sigma, noisy_psnr, clean_psnr):
    """The built-in denoiser cleans real images of noise of any strength."""
    pixels = load_pixels(subset(open_dataset("coco", root=coco_root, split="val", size=224), 3))
    truth = torch.from_numpy(pixels.images).float() / 255
    noisy = truth + sigma * torch.randn(truth.shape, generator=torch.Generator().manual_seed(0))
    seen = []
    denoise_first(Classifier(lambda x: seen.append(x) or x.mean((2, 3)), "rgb", output="logits", name="mean"))(noisy)
    assert psnr(noisy, truth) == pytest.approx(noisy_psnr, abs=0.1)
    assert psnr(seen[0], truth) == pytest.approx(clean_psnr, abs=1.5)


class Half(UNet):
    """Halves its input, which is the image scaled to -1 to 1."""

    def forward(self, images):
        return images / 2


def test_denoise_first():
    """The classifier receives the clean image, clamped to [0, 1]."""
    inner = Classifier(lambda x: x.mean((2, 3)), "rgb", output="logits", mean=[0.5] * 3, std=[2.0] * 3, name="mean")
    images = torch.tensor([[0.2, 0.4, 3.0]]).view(1, 3, 1, 1)
    composed = denoise_first(inner, Half(8))
    torch.testing.assert_close(composed(images), (torch.tensor([[0.35, 0.45, 1.0]]) - 0.5) / 2)
    assert composed.label_names == ("r", "g", "b")
    assert composed.mean is None
    with pytest.raises(ModelError, match="has a denoiser already"):
        denoise_first(composed)


def test_trained_denoiser(tmp_path):
    """The U-Net of a model folder is a denoiser; a folder without one raises."""
    for name, architecture in (("own", "unet:8+lite:0"), ("pooled", "pool:2+unet:8+lite:0"), ("cnn", "cnn:2")):
        network = build_backbone(architecture, 2).network
        save_folder(
            tmp_path / name, ModelCard(architecture, ("a", "b"), (32, 32), (0.5,), (0.5,), Gaussian(0.5)), network
        )
        if name == "own":
            loaded, digest = load_denoiser(tmp_path / name)
            images = torch.rand(1, 3, 32, 32)
            torch.testing.assert_close(loaded(images), network.denoiser.eval()(images))
            assert denoised_checksum("a", tmp_path / name) != denoised_checksum("a", "built-in")
            assert len(digest) == 64
        else:
            with pytest.raises(ModelError, match="a denoiser is the U-Net of a network such as"):
                load_denoiser(tmp_path / name)
    assert denoised_checksum(None, "built-in") is None
