"""Base classifiers: any callable, module, timm name, Hugging Face folder or ONNX file."""

from multiguard.models.classifier import Classifier, Output
from multiguard.models.loading import load_classifier

__all__ = ["Classifier", "Output", "load_classifier"]
