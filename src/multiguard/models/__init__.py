"""Base classifiers: any callable or module, timm name, Hugging Face folder, ONNX file or trained model folder."""

from multiguard.models.classifier import Classifier, Output
from multiguard.models.denoiser import denoise_first
from multiguard.models.loading import load

__all__ = ["Classifier", "Output", "denoise_first", "load"]
