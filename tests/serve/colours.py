"""A server in this process around a small linear classifier."""

import io
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from PIL import Image
from tests.calibrations import calibration_of
from tests.serve.client import Client
from torch import nn

from multiguard.certify import Gaussian, Threshold, TopK
from multiguard.serve import ServeConfig, Service
from multiguard.serve.access import listen
from multiguard.serve.app import make_server
from multiguard.smooth import Smoother
from multiguard.smooth.config import PredictConfig
from multiguard.smooth.predictor import Calibrated, Predictor

LABELS = ("red", "green", "blue", "grey")
SIZE = 8


class Colours(nn.Module):
    """The score of a colour is the mean of its channel over the four middle pixels; grey has half their sum."""

    def forward(self, images):
        means = images[:, :, 3:5, 3:5].mean(dim=(2, 3))
        return torch.cat([means, means.sum(dim=1, keepdim=True) / 2], dim=1)


def make_predictor(rule="top-k", noise=Gaussian(0.5), **options) -> Predictor:  # noqa: B008 (frozen)
    votes = {"k_max": 1} if rule == "top-k" else {"score_threshold": 0.5}
    how = {"labels": LABELS, "output": "probabilities", "image_size": (SIZE, SIZE), "device": "cpu", **votes}
    smoother = Smoother(Colours(), noise=noise, **how)
    how = TopK(2, 1) if rule == "top-k" else Threshold(0.5)
    return Predictor(smoother, how, SIZE, "colours", PredictConfig(pilot_draws=50, **options))


def make_calibrated() -> Predictor:
    """The same classifier with a calibration, that 12 of 60 draws must have a colour as their best."""
    one = make_predictor()
    own = calibration_of(one.smoother)
    return replace(one, rule=own.rule, calibrated=Calibrated(one.smoother, own))


def encode(colour=(230, 90, 20), size=(SIZE, SIZE), kind="PNG") -> bytes:
    """The file of an image of one colour."""
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, kind)
    return file.getvalue()


@dataclass
class Running:
    """A server that runs, and a client of it."""

    service: Service
    address: str
    client: Client


def serve(predictor: Predictor, **options) -> Iterator[Running]:
    part = ServeConfig(port=0, draws=200, **options)
    service = Service(predictor, part, (("orange", encode(), "data:,"),))
    listening, address = listen(part)
    ready = threading.Event()
    server = make_server(service, ready.set)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    assert ready.wait(20)
    yield Running(service, address, Client(address))
    server.handle_exit(2, None)
    thread.join(20)
    assert not thread.is_alive()
