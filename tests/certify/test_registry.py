"""Methods of users: known wherever a method is named, and checked for their form."""

import numpy as np
import pytest

from multiguard import MultiGuardError, Threshold, TopK, certified_radii, certified_radii_batch, exact_radii
from multiguard.certify import PixelAblation, Uniform, register_method

RANKED = np.argsort(np.random.default_rng(0).normal([2.0, 1.0, 0.5, 0.0], 1.0, (250, 4)), axis=1)[:, ::-1]
SETS = np.random.default_rng(1).random((250, 4)) < [0.9, 0.8, 0.2, 0.1]


def like_joint(hits, labels, rule, *, noise, alpha):
    """The joint certificate under another name."""
    radii = certified_radii(hits, labels, rule, noise=noise, alpha=alpha, method="joint")
    return radii.true if radii.false is None else (radii.true, radii.false)


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr("multiguard.certify.rules._OWN", {})
    register_method("mine", like_joint, guarantee="that of joint", rules=("top-k", "threshold"))


@pytest.mark.parametrize(("votes", "rule"), [(RANKED, TopK(2, 1)), (RANKED, TopK(3, 2)), (SETS, Threshold(0.5))])
def test_same_function(votes, rule):
    """A function that computes joint gives joint's radii, of one image and of many."""
    options = {"sigma": 0.5, "num_labels": 4}
    known = certified_radii(votes, [0, 1], rule, method="joint", **options)
    own = certified_radii(votes, [0, 1], rule, method="mine", **options)
    (batch,) = certified_radii_batch([votes], [[0, 1]], rule, method="mine", **options)
    for found in (own, batch):
        np.testing.assert_array_equal(found.true, known.true)
        np.testing.assert_array_equal(found.false, known.false)


def test_results(tmp_path):
    """Results of a registered method are stored, read back, drawn and reported."""
    rows = np.random.default_rng(0).normal(size=(5, 3))
    smoother = pytest.importorskip("multiguard.smooth.smoother").Smoother(
        lambda x: x.clone(), 0.5, labels=list("abc"), device="cpu"
    )
    data, options = (rows, rows.argmax(axis=1)), {"methods": ("mine", "joint"), "draws": 100, "progress": False}
    results = smoother.certify(data, TopK(1, k_prime=1), **options)
    assert results.recall(0.2) == results.recall(0.2, method="joint")
    assert [line.get_label() for line in results.plot().lines] == ["mine", "joint"]
    assert "mine" in results.report(tmp_path / "page.html").read_text(encoding="utf-8")


def test_lowered_claims():
    """Radii that rise with e are lowered, never raised."""
    register_method("rising", lambda *_, **__: [0.1, 0.3], guarantee="none")
    found = certified_radii(RANKED, [0, 1], TopK(2, 1), sigma=0.5, num_labels=4, method="rising")
    assert found.true.tolist() == [0.1, 0.1]


def test_whole_radii():
    """Radii that count pixels are rounded down to whole numbers."""
    register_method("parts", lambda *_, **__: [2.7, -np.inf], guarantee="none", noises=("pixels",))
    found = certified_radii(RANKED, [0, 1], TopK(2, 1), noise=PixelAblation(3, 20), num_labels=4, method="parts")
    assert found.true.tolist() == [2.0, -np.inf]


@pytest.mark.parametrize("returned", [[0.1], [0.1, np.nan], [0.1, -0.2], [[0.1, 0.2]]])
def test_wrong_form(returned):
    """What is not one radius per claim is refused by the method's name."""
    register_method("wrong", lambda *_, **__: returned, guarantee="none")
    with pytest.raises(MultiGuardError, match=r"the method 'wrong' returned .* expected 2 radii"):
        certified_radii(RANKED, [0, 1], TopK(2, 1), sigma=0.5, num_labels=4, method="wrong")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "joint"}, "no built-in method"),
        ({"name": "My method"}, "expected lower-case"),
        ({"name": "all"}, "no built-in method"),
        ({"guarantee": " "}, "say what holds"),
        ({"rules": ("top",)}, "rules must be some of top-k, threshold"),
        ({"noises": ("l2",)}, "noises must be some of gaussian, uniform, pixels, band"),
    ],
)
def test_refusals(change, message):
    """A name, a guarantee and a rule are needed."""
    given = {"name": "other", "guarantee": "some", "rules": ("top-k",), **change}
    with pytest.raises(MultiGuardError, match=message):
        register_method(given.pop("name"), like_joint, **given)


def test_unknown_method():
    """An unknown method is refused with the known ones; a registered one only where its rule is meant."""
    register_method("ranks-only", like_joint, guarantee="that of joint")
    with pytest.raises(MultiGuardError, match="jia, enumerated, mine, ranks-only"):
        certified_radii(RANKED, [0], TopK(2, 1), sigma=0.5, num_labels=4, method="other")
    with pytest.raises(MultiGuardError, match="method of the threshold rule 'ranks-only'"):
        certified_radii(SETS, [0], Threshold(0.5), sigma=0.5, method="ranks-only")
    with pytest.raises(MultiGuardError, match=r"'mine' was registered for gaussian noise, not uniform:0\.5"):
        certified_radii(RANKED, [0], TopK(2, 1), noise=Uniform(0.5), num_labels=4, method="mine")
    with pytest.raises(MultiGuardError, match="no exact radii"):
        exact_radii(np.eye(2, dtype=bool), [0.9, 0.1], [0], TopK(1, 1), sigma=1.0, method="mine")
