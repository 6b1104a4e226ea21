"""Base classifiers: any callable or module, timm name, Hugging Face folder, ONNX file or trained model folder."""

from multiguard.models.classifier import Classifier, Output
from multiguard.models.loading import load_classifier

__all__ = ["Classifier", "Output", "load_classifier"]
