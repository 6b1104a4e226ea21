"""One thread per test process, the fastest on few cores; small decoded splits and a small network."""

import pytest
import torch

from multiguard.data import DigitsDataset, load_pixels

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def pixels():
    return load_pixels(DigitsDataset("train", images=96, size=16))


@pytest.fixture(scope="session")
def val_pixels():
    return load_pixels(DigitsDataset("val", images=60, size=16))
