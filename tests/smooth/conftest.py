"""Fixtures that the tests of smoothing share."""

import pytest
import torch
from toy import linear

from multiguard.models import Classifier
from multiguard.smooth.engine import ArrayEngine

torch.set_num_threads(1)  # tiny networks: more threads only wait for each other


@pytest.fixture
def classifier() -> Classifier:
    return linear()


@pytest.fixture
def eager_backend(monkeypatch) -> None:
    """Graphs are captured as always but not translated to machine code, which takes seconds per graph."""
    whole = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *given, **options: whole(*given, **options | {"backend": "eager"}))


class _Arrived:
    """An event that has happened."""

    def synchronize(self) -> None:
        pass


@pytest.fixture
def late_votes(monkeypatch) -> None:
    """Votes reach the host some batches later, as from an accelerator."""
    launch = ArrayEngine.launch
    monkeypatch.setattr(ArrayEngine, "launch", lambda *given: (launch(*given)[0], _Arrived()))
