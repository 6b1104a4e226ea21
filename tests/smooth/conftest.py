"""What the tests of smoothing share."""

import pytest
import torch
from toy import linear

from multiguard.models import Classifier

torch.set_num_threads(1)  # tiny nets: more threads only wait for each other


@pytest.fixture
def classifier() -> Classifier:
    return linear()
