"""An argument of the wrong kind is refused by its name, and NumPy's whole numbers are whole numbers."""

import numpy as np
import pytest
from toy import Images, linear

from multiguard.errors import DataError, InvalidInputError
from multiguard.models import Classifier
from multiguard.smooth import Smoother, vote_dataset
from multiguard.votes import read_votes

IMAGE = np.random.default_rng(0).random((3, 4, 4), dtype=np.float32)


def smoother(**options) -> Smoother:
    return Smoother(linear(), **{"sigma": 0.5, "device": "cpu", **options})


def test_whole_numbers_of_numpy_are_whole_numbers(tmp_path):
    plain = smoother(k_max=2).votes(IMAGE, 5, seed=3, image_id="a", first_draw=1)
    eight = np.int64(8)
    numpy = smoother(k_max=np.int64(2), batch_size=eight)
    votes = numpy.votes(IMAGE, np.int32(5), seed=np.int64(3), image_id="a", first_draw=np.int64(1))
    assert np.array_equal(votes, plain)
    vote_dataset(smoother(), Images(2), tmp_path, draws=np.int64(5), seed=np.int64(3), shard_images=eight)
    assert read_votes(tmp_path).provenance.seed == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 0.5), ("seed", "x"), ("stream", "x"), ("draws", 5.0), ("draws", None), ("first_draw", 1.0)],
)
def test_an_argument_of_votes_that_will_not_do_is_named(name, value):
    arguments = {"draws": 5, "seed": 0, "image_id": "a", name: value}
    with pytest.raises(InvalidInputError, match=f"^{name} must be .*{value!r}"):
        smoother().votes(IMAGE, **arguments)


@pytest.mark.parametrize(("name", "value"), [("k_max", 2.5), ("sigma", "x"), ("sigma", None), ("batch_size", 2.5)])
def test_an_option_of_the_smoother_that_will_not_do_is_named(name, value):
    with pytest.raises(InvalidInputError, match=f"^{name} must be .*{value!r}"):
        smoother(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("k", 1.5), ("k_prime", "x"), ("alpha", "x")])
def test_an_argument_of_predict_that_will_not_do_is_named(name, value):
    with pytest.raises(InvalidInputError, match=f"^{name} must be .*{value!r}"):
        smoother().predict(IMAGE, **{"k": 1, "k_prime": 1, "seed": 0, "image_id": "a", name: value})


@pytest.mark.parametrize("image", [IMAGE.tolist(), np.full((3, 4, 4), "x"), np.full((3,), None)])
def test_an_image_that_is_no_array_of_numbers_is_named(image):
    with pytest.raises(InvalidInputError, match=r"image 'cat' must be a NumPy array or a tensor.*np.asarray"):
        smoother().votes(image, 5, seed=0, image_id="cat")


@pytest.mark.parametrize(
    ("name", "value"), [("readers", 0), ("readers", 1.5), ("draws", 5.0), ("seed", 0.5), ("shard_images", 2.5)]
)
def test_an_argument_of_vote_dataset_that_will_not_do_is_named(tmp_path, name, value):
    with pytest.raises(InvalidInputError, match=f"^{name} must be .*{value!r}"):
        vote_dataset(smoother(), Images(2), tmp_path, **{"draws": 5, "seed": 0, name: value})


def test_more_labels_than_votes_can_hold_are_refused():
    f = Classifier(lambda x: x, ["a"] * 65537, output="logits", name="wide")
    with pytest.raises(InvalidInputError, match="between 1 and 65536 labels, not 65537"):
        Smoother(f, sigma=0.5, device="cpu")


class Floats(Images):
    """The same images in float32, times a factor."""

    def __init__(self, count: int, factor: float) -> None:
        super().__init__(count)
        self._images = [image.astype(np.float32) * np.float32(factor) for image in self._images]


@pytest.mark.parametrize("factor", [1.0, -1 / 255, np.nan])
def test_a_image_whose_values_are_no_pixels_is_named(tmp_path, factor):
    with pytest.raises(DataError, match=r"image 'image-0': holds values from .* \[0, 1\]"):
        vote_dataset(smoother(), Floats(2, factor), tmp_path, draws=5, seed=0)
    vote_dataset(smoother(), Floats(2, 1 / 255), tmp_path / "pixels", draws=5, seed=0)
