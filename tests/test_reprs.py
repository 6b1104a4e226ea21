"""No repr of a public type is longer than a screen, however much it holds."""

import dataclasses
import importlib

import numpy as np
import pytest
import torch

from multiguard import Classifier, Smoother, read_votes, vote_dataset
from multiguard.data import as_dataset, open_dataset
from multiguard.smooth import Prediction

ROOMS = ("attack", "certify", "data", "evaluate", "models", "report", "smooth", "train", "votes")
MANY = ("tuple[", "list[", "dict[", "Mapping", "Sequence", "Floats", "NDArray", "Tensor", "Pixels", "Ints", "Labels")
CONFIGS = {"AdaptivePlan", "Looks"}  # what people write down themselves
OWN = {"Results", "Prediction", "AdversarialBatch"}  # these say more than their fields; tested by what they hold


def large_types():
    """The public dataclasses that may hold much."""
    found = {}
    for room in ROOMS:
        module = importlib.import_module(f"multiguard.{room}")
        for name in module.__all__:
            kind = getattr(module, name)
            held = dataclasses.fields(kind) if isinstance(kind, type) and dataclasses.is_dataclass(kind) else ()
            many = any(word in str(field.type) for field in held for word in MANY)
            if many and name not in OWN | CONFIGS:
                found[name] = kind
    return found


def fits(text: str) -> bool:
    return len(text) <= 3000 and len(text.splitlines()) <= 24


@pytest.mark.parametrize("kind", large_types().values(), ids=large_types())
def test_large_types(kind):
    """A hundred thousand values in each field still fit a screen."""
    held = object.__new__(kind)
    for number, field in enumerate(dataclasses.fields(kind)):
        many = tuple("value" * 9 for _ in range(100_000)) if number % 2 else np.zeros((300, 300))
        object.__setattr__(held, field.name, many)
    assert fits(repr(held))


def test_enough_types():
    """Many types are covered, among them those that users see first."""
    assert len(large_types()) > 15
    assert {"Certificates", "VoteRow", "Provenance", "Sample", "Scores", "Radii"} <= set(large_types())


def test_classifier():
    """A deep network and a thousand labels are one line."""
    network = torch.nn.Sequential(*(torch.nn.Linear(9, 9) for _ in range(200)))
    classifier = Classifier(network, [f"label {i}" for i in range(1000)], output="logits", name="deep")
    for shown in (classifier, Smoother(classifier, 0.5, device="cpu")):
        assert len(repr(shown).splitlines()) == 1
        assert fits(repr(shown))
        assert "1000 labels" in repr(shown)


def test_datasets():
    """Datasets are one line."""
    rows = as_dataset((np.zeros((1000, 50)), [[0]] * 1000), [f"label {i}" for i in range(1000)])
    for dataset in (rows, open_dataset("digits", split="test")):
        assert len(repr(dataset).splitlines()) == 1
        assert fits(repr(dataset))


def test_prediction():
    """A prediction of many labels shows the first of them."""
    many = tuple(range(500))
    shown = repr(Prediction(many, (0.5,) * 500, (0.4,) * 500, names=tuple(f"label {i}" for i in many), noise_seed=1))
    assert fits(shown)
    assert "and 492 more" in shown


def test_votes(tmp_path):
    """Votes are one line that says how many, of what."""
    classifier = Classifier(lambda x: x.clone(), list("abc"), name="own")
    vote_dataset(Smoother(classifier, 0.5, device="cpu"), (np.eye(3), [0, 1, 2]), tmp_path, draws=20)
    assert repr(read_votes(tmp_path)) == "Votes(own, 3 images, top-k, 20 draws, noise=gaussian:0.5)"
