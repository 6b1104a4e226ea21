"""Options of a smoother are checked by name, and resolved to what really runs."""

import re

import numpy as np
import pytest
import torch
from toy import linear

from multiguard.certify import Gaussian, Threshold, TopK
from multiguard.errors import InvalidInputError
from multiguard.models import Classifier
from multiguard.models.denoiser import denoise_first
from multiguard.models.onnx import OnnxNetwork
from multiguard.smooth import Smoother
from multiguard.smooth.config import resolve_settings

OPTIONS = ("k_max", "score_threshold", "device", "precision", "compile", "noise_source")


def smoother(**options) -> Smoother:
    return Smoother(linear(), **{"sigma": 0.5, "device": "cpu", **options})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("sigma", value) for value in (0, -1.0, float("nan"), float("inf"), "x", 1e-39, 1e39)],
        *[("k_max", value) for value in (0, 6, 2.5)],
        *[("score_threshold", value) for value in (0.0, 1, float("nan"), "x")],
        *[("batch_size", value) for value in (0, 2.5, "big")],
        *[("precision", "int8"), ("noise_source", "dice")],
    ],
)
def test_refused_options(name, value):
    """A value that makes no sense is refused by its name."""
    with pytest.raises(InvalidInputError, match=f"^{name} .*{re.escape(repr(value))}"):
        smoother(**{name: value})


def test_default_ranks():
    """Ten labels per draw are kept, or all of fewer; NumPy's integers are accepted."""
    assert smoother().settings.k_max == 5
    assert Smoother(linear(labels=30), sigma=1.0, device="cpu").settings.k_max == 10
    assert smoother(k_max=np.int64(2), batch_size=np.int64(8)).settings.k_max == 2
    assert smoother(score_threshold=0.5).settings.k_max is None


def test_label_limit():
    """More labels than votes can hold are refused."""
    f = Classifier(lambda x: x, list(map(str, range(65537))), output="logits", name="wide")
    with pytest.raises(InvalidInputError, match="between 1 and 65536 labels, not 65537"):
        Smoother(f, sigma=0.5, device="cpu")


@pytest.mark.parametrize(
    ("options", "rule", "message"),
    [
        ({}, Threshold(0.5), "whose votes are ranked labels"),
        ({"score_threshold": 0.5}, TopK(1, 1), "whose votes are sets of labels"),
        ({"k_max": 2}, TopK(3, 3), "k_prime"),
        ({}, TopK(6, 1), "k must"),
    ],
)
def test_rule_of_votes(options, rule, message):
    """Only a rule that the votes can certify passes."""
    settings = smoother(**options).settings
    with pytest.raises(InvalidInputError, match=message):
        settings.check_rule(rule, 5)


def onnx_classifier(behind_denoiser: bool) -> Classifier:
    f = Classifier(OnnxNetwork.__new__(OnnxNetwork), list("abcde"), output="logits", name="onnx:x", weights_hash="0")
    return denoise_first(f) if behind_denoiser else f


@pytest.mark.parametrize("behind_denoiser", [False, True])
def test_onnx_defaults(monkeypatch, behind_denoiser):
    """Options that onnxruntime ignores are not recorded, whatever the device."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    settings = resolve_settings(onnx_classifier(behind_denoiser), Gaussian(0.5), clamp=False, **dict.fromkeys(OPTIONS))
    assert settings.device == ("cuda" if behind_denoiser else "cpu")
    assert (settings.precision, settings.channels_last, settings.compiled) == ("float32", False, False)


@pytest.mark.parametrize("option", [{"precision": "bfloat16"}, {"compile": True}])
def test_onnx_refusals(option):
    """Options that onnxruntime ignores are refused."""
    with pytest.raises(InvalidInputError, match=f"onnxruntime.*leave out {next(iter(option))}"):
        Smoother(onnx_classifier(False), sigma=0.5, device="cpu", **option)
    Smoother(onnx_classifier(False), sigma=0.5, device="cpu", precision="float32", compile=False)
