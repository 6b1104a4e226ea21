"""A server for all tests of the room, one of the threshold rule, and a browser with a camera."""

from collections.abc import Iterator

import numpy as np
import pytest
from tests.report.browsing import launched
from tests.serve.colours import SIZE, Running, encode, make_calibrated, make_predictor, serve


@pytest.fixture(scope="package")
def running() -> Iterator[Running]:
    yield from serve(make_predictor(), queue=4, megabytes=0.2, megapixels=1)


@pytest.fixture(scope="package")
def threshold() -> Iterator[Running]:
    yield from serve(make_predictor("threshold"))


@pytest.fixture(scope="package")
def calibrated() -> Iterator[Running]:
    yield from serve(make_calibrated())


@pytest.fixture(scope="module")
def browser() -> Iterator:
    yield from launched("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")


@pytest.fixture
def orange() -> bytes:
    return encode()


@pytest.fixture
def orange_pixels() -> np.ndarray:
    return np.broadcast_to(np.array([230, 90, 20], np.uint8)[:, None, None], (3, SIZE, SIZE)).copy()
