"""Base classifiers: any callable or module, timm name, Hugging Face folder, ONNX file or trained model folder."""

from typing import TYPE_CHECKING

from multiguard.lazy import lazy_names

if TYPE_CHECKING:
    from multiguard.models.classifier import Classifier, Output
    from multiguard.models.denoiser import denoise_first
    from multiguard.models.loading import load

__all__ = ["Classifier", "Output", "denoise_first", "load"]

__getattr__ = lazy_names(
    __name__,
    {
        "classifier": ["Classifier", "Output"],
        "denoiser": ["denoise_first"],
        "loading": ["load"],
    },
)
