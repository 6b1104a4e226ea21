"""A pipeline that no certificate can be about is refused in Python, before any vote, with the reason."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toy import Images

from multiguard import Threshold, TopK
from multiguard.errors import ModelError, MultiGuardError
from multiguard.models import load
from multiguard.smooth import LivePrediction, Smoother, vote_dataset
from multiguard.smooth.dataset import VoteRun

LABELS = list("abcde")
WEIGHTS = torch.randn(48, 5, generator=torch.Generator().manual_seed(0))
RULE = TopK(1, k_prime=1)


def good(images: Tensor) -> Tensor:
    """A fixed function of each image alone."""
    return images.flatten(1) @ WEIGHTS


class Stubborn(nn.Module):
    """A module that stays in train mode."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.3)

    def train(self, mode: bool = True) -> "Stubborn":
        """Ignores eval()."""
        return super().train(True)

    def forward(self, images: Tensor) -> Tensor:
        """Scores with units dropped."""
        return self.dropout(good(images))


class Counting(nn.Module):
    """A module that counts its calls, and whose scores do not show it."""

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self.calls, self.after = 0, after
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        """The scores, with the count in a buffer."""
        self.calls += 1
        if self.calls > self.after:
            self.seen += 1
        return good(images)


class Normalised(nn.Module):
    """A network whose normalisation takes its statistics from the batch, hidden in a closure by its caller."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(48)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of images normalised by their batch."""
        return self.norm(images.flatten(1)) @ WEIGHTS


def sequence(images: Tensor, calls: list[int] = []) -> Tensor:  # noqa: B006 - state is the point
    """Scores that drift from call to call."""
    calls.append(1)
    return good(images) + 0.1 * len(calls)


TRAINING, DROPPING = Normalised().train(), nn.Dropout(0.05).train()
BAD = {
    "train mode": (Stubborn(), "is in train mode after eval()"),
    "train mode in a closure": (lambda x: TRAINING(x), "fails on some batches of images"),
    "dropout in a closure": (lambda x: DROPPING(x.flatten(1)) @ WEIGHTS, "answers the same batch differently"),
    "randomness": (lambda x: good(x) + 0.1 * torch.randn(len(x), 5), "answers the same batch differently"),
    "state": (Counting(), "changes its own parameters or buffers"),
    "hidden state": (sequence, "answers the same batch differently"),
    "batch statistics": (lambda x: good(x) - good(x).mean(0), "depends on the other images of the batch"),
    "place in the batch": (lambda x: good(x) * torch.linspace(1, 3, len(x))[:, None], "depends on the other images"),
    "statistics of large batches": (
        lambda x: good(x) - good(x).mean(0) if len(x) > 16 else good(x),
        "depends on the other images",
    ),
    "size of the batch": (lambda x: good(x) * len(x), "depends on the other images"),
}
WAYS = {
    "vote_dataset": lambda one, out: vote_dataset(one, Images(9), out / "votes", draws=5, noise_seed=0),
    "memory": lambda one, out: VoteRun(one, Images(9), draws=5, noise_seed=0).votes(),
    "certify": lambda one, out: one.certify(Images(3), RULE, draws=20, progress=False),  # too few to judge their labels
    "predict": lambda one, out: one.predict(Images(1)[0].image, RULE, draws=20),
    "live": lambda one, out: LivePrediction(one, Images(1)[0].image, RULE),
    "votes": lambda one, out: one.votes(Images(1)[0].image, 5, image_id="a"),
}


@pytest.mark.parametrize(
    ("kind", "way"),
    [*((kind, way) for kind in BAD for way in ("vote_dataset", "predict")), *(("randomness", way) for way in WAYS)],
)
def test_no_fixed_function(tmp_path, kind, way):
    """A model that is no fixed function of one image is refused, whichever way it is to vote; no shard is written."""
    model, message = BAD[kind]
    one = Smoother(load(model, labels=LABELS, name=kind), sigma=0.5, device="cpu")
    with pytest.raises(ModelError, match=message):
        WAYS[way](one, tmp_path)
    assert not list(tmp_path.glob("votes/*.parquet"))


@pytest.mark.parametrize("rows", [32, 2048])
def test_full_batch(rows):
    """A model that depends on its batch only in batches as large as those that run is refused before they run."""

    def centred(x: Tensor) -> Tensor:
        return x - x.mean(0) if len(x) > rows - 1 else x.clone()

    inputs = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    one, other = (Smoother(centred, 0.5, labels=LABELS, device="cpu", batch_size=size) for size in (rows, rows - 1))
    with pytest.raises(ModelError, match="depends on the other images"):
        one.certify((inputs, np.eye(5)[:4]), RULE, draws=20, progress=False)
    other.certify((inputs, np.eye(5)[:4]), RULE, draws=20, progress=False)
    another = Smoother(centred, 0.5, labels=LABELS, device="cpu", batch_size=rows)
    another.votes(inputs[0], 5, image_id="a")
    with pytest.raises(ModelError, match="depends on the other images"):
        another.votes(inputs[0], rows, image_id="a")


def test_full_batch_out_of_memory():
    """A batch that does not fit is halved in the probe as in the run."""
    sizes: list[int] = []

    def small(x: Tensor) -> Tensor:
        sizes.append(len(x))
        if len(x) > 64:
            raise torch.OutOfMemoryError
        return x - x.mean(0) if len(x) > 16 else x.clone()

    one = Smoother(small, 0.5, labels=LABELS, device="cpu", batch_size=256)
    with pytest.raises(ModelError, match="depends on the other images"):
        one.probe([np.arange(5, dtype=np.float32)])
    assert sizes[-3:] == [256, 128, 64]


def drawn(one, out):
    live = WAYS["live"](one, out)
    live.draw(200)
    return live.prediction()


@pytest.mark.parametrize("way", WAYS)
def test_late_state(tmp_path, way):
    """A model that changes itself later is refused at the end, and none of its votes are kept as finished."""
    one = Smoother(load(Counting(after=7), labels=LABELS, name="late"), sigma=0.5, device="cpu", batch_size=2)
    with pytest.raises(ModelError, match="has changed its own parameters or buffers since its votes began"):
        (drawn if way == "live" else WAYS[way])(one, tmp_path)
    assert not list(tmp_path.glob("votes/*.parquet"))


def test_state_since_the_record(tmp_path):
    """Weights that change between the record of a run and its first votes are refused, and no shard is written."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    one = Smoother(load(model, labels=LABELS, name="a"), sigma=0.5, device="cpu")
    run = VoteRun(one, Images(4), draws=5, noise_seed=0)
    assert run.provenance.model == "a"
    with torch.no_grad():
        model[1].weight.neg_()
    with pytest.raises(ModelError, match="have changed since its run was recorded"):
        run.write(tmp_path / "votes")
    assert not list(tmp_path.glob("votes/*.parquet"))


def test_new_weights():
    """New weights between two predictions are no state of the model's own: they are probed and predicted."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 5))
    one, image = Smoother(model, sigma=0.5, labels=LABELS, device="cpu"), Images(1)[0].image
    before = one.predict(image, RULE, draws=50, noise_seed=0)
    with torch.no_grad():
        model[1].weight.neg_()
        model[1].bias.neg_()
    assert one.predict(image, RULE, draws=50, noise_seed=0).labels != before.labels


@pytest.mark.parametrize(
    ("scores", "output", "message"),
    [
        (good, "probabilities", "are no probabilities; if they are logits"),
        (lambda x: good(x).softmax(1), "logits", "the threshold would return every label"),
        (lambda x: good(x).sigmoid(), "logits", "the threshold would return every label"),
    ],
)
def test_impossible_kind(tmp_path, scores, output, message):
    """Scores that cannot be what they are declared to be are refused under the threshold rule.

    Of a single image, scores in [0, 1] may be weak logits: they are refused if they sum to 1, and warned of otherwise.
    """
    one = Smoother(load(scores, labels=LABELS, output=output, name="a"), 0.5, score_threshold=0.5, device="cpu")
    with pytest.raises(ModelError, match=message):
        WAYS["vote_dataset"](one, tmp_path)
    sure = output == "probabilities" or "softmax" in scores.__code__.co_names
    with pytest.raises(ModelError, match=message) if sure else pytest.warns(UserWarning, match=r"all lie in \[0, 1\]"):
        one.predict(Images(1)[0].image, Threshold(0.5))


def test_divided_again(tmp_path):
    """A model that divides by 255 again hardly depends on the image, which is warned of."""

    def divides(images: Tensor) -> Tensor:
        return good(images / 255) + torch.arange(5.0)

    one = Smoother(load(divides, labels=LABELS, name="a"), 0.5, device="cpu")
    with pytest.warns(UserWarning, match="does the model expect pixels in 0..255, or divide by 255 again"):
        WAYS["vote_dataset"](one, tmp_path)


@pytest.mark.parametrize("way", ["certify", "predict", "votes"])
@pytest.mark.parametrize("image_size", [None, (4, 4)])
def test_bytes_as_floats(way, image_size):
    """Float images in 0..255 are refused: sigma and radii would not be in pixels; uint8 is what they should be."""
    image = Images(1)[0].image
    one = Smoother(good, 0.5, labels=LABELS, device="cpu", image_size=image_size)
    ways = {
        "certify": lambda x: one.certify((x[None], [["a"]]), RULE, draws=20, progress=False),
        "predict": lambda x: one.predict(x, RULE, draws=20),
        "votes": lambda x: one.votes(x, 5, image_id="a"),
    }
    with pytest.raises(MultiGuardError, match=r"must lie in \[0, 1\]"):
        ways[way](image.astype(np.float32))
    ways[way](image)
