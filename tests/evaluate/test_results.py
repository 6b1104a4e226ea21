"""Results: scores at exactly the radius requested, and the same numbers in the plot, the table and the page."""

import builtins

import numpy as np
import pytest
from matplotlib.figure import Figure
from tests.evaluate.votes_cases import set_radii
from tests.report.studies import make_run

from multiguard import MultiGuardError, Threshold, TopK, read_certificates
from multiguard.evaluate import set_scores

RADII = [0.0, 0.1, 0.3, 0.37, 0.8, 2.0]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    make_run(folder, images=6, draws=60, methods=("joint", "paper"))
    return read_certificates(folder / "certificates")


@pytest.fixture(scope="module")
def threshold_results():
    smoother = pytest.importorskip("multiguard.smooth.smoother").Smoother(
        lambda rows: rows.clone(), 0.5, output="logits", score_threshold=0.5, device="cpu"
    )
    rows = np.random.default_rng(0).normal(size=(8, 5))
    return smoother.certify((rows, (rows > 0).astype(int)), Threshold(0.5), draws=200, noise_seed=0, progress=False)


@pytest.mark.parametrize("averaging", ["mean", "pooled"])
@pytest.mark.parametrize("method", ["joint", "paper"])
def test_scores(results, method, averaging):
    """Each score is that of the radii of the images, one by one."""
    proved = results.certificates
    num_true = [len(own) for own in proved.labels]
    expected = set_scores(
        set_radii(proved, method), proved.config.rule, num_true=num_true, radius=RADII, averaging=averaging
    )
    for name in ("recall", "precision", "f1"):
        score = getattr(results, name)
        np.testing.assert_array_equal(score(RADII, method=method, averaging=averaging), getattr(expected, name))
        assert score(0.3, method=method, averaging=averaging) == getattr(expected, name)[2]
    assert isinstance(results.recall(0.3), float)


def test_first_method(results):
    """Without a method, the first one of the certificates counts; an unknown one is refused."""
    assert results.recall(0.3) == results.recall(0.3, method="joint")
    with pytest.raises(MultiGuardError, match="were proved with joint, paper"):
        results.recall(0.3, method="jia")


def drawn(line, radius):
    """The height of a line of steps at a radius: that of the first point that is not before it."""
    assert line.get_drawstyle() == "steps-pre"
    x, y = line.get_data()
    return y[np.searchsorted(x, radius, side="left")]


@pytest.mark.parametrize("score", ["recall", "precision", "f1"])
@pytest.mark.parametrize("kind", ["results", "threshold_results"])
def test_plot(kind, score, request):
    """At every radius, also just after a step, the line is exactly as high as the score."""
    results = request.getfixturevalue(kind)
    axes = Figure().subplots()
    assert results.plot(axes, score=score) is axes
    assert len(axes.lines) == len(results.certificates.methods)
    falls = np.concatenate([radii.row for radii in set_radii(results.certificates, "joint")])
    falls = falls[np.isfinite(falls)]
    last = axes.lines[0].get_xdata()[-1]
    for radius in (*falls, *np.nextafter(falls, np.inf), *np.linspace(0, last, 50)):
        if radius <= last:
            assert drawn(axes.lines[0], radius) == pytest.approx(getattr(results, score)(radius), rel=1e-12)


def test_frame(results):
    """One row per image: its labels by name, its radii, and what is certified at a radius."""
    pytest.importorskip("pandas")
    frame, proved = results.to_frame(0.3), results.certificates
    assert list(frame.index) == list(proved.ids)
    assert frame["labels"].tolist() == [[proved.label_names[i] for i in own] for own in proved.labels]
    assert frame["radii"].tolist() == [radii.tolist() for radii in proved.radii["joint"]]
    assert frame["recall"].mean() == pytest.approx(results.recall(0.3))
    assert "certified" not in results.to_frame().columns


def test_frame_without_pandas(results, monkeypatch):
    """Without pandas the message says what to install."""
    real = builtins.__import__

    def without_pandas(name, *args, **kwargs):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(MultiGuardError, match="pip install pandas"):
        results.to_frame()


def test_page(threshold_results, tmp_path):
    """The page of rows of a table is complete, without pictures and without a complaint about files."""
    page = threshold_results.report(tmp_path / "page.html", title="Rows")
    text = page.read_text(encoding="utf-8")
    assert "Rows" in text
    assert "made without images" in text
    assert "shown without pixels" not in text.split("<script")[0]


def test_page_images(tmp_path):
    """Images in memory are shown on the page, grey ones too."""
    images = np.random.default_rng(0).integers(0, 256, (3, 1, 8, 8), dtype=np.uint8)
    smoother = pytest.importorskip("multiguard.smooth.smoother").Smoother(
        lambda x: x.flatten(1)[:, :3], 0.5, device="cpu"
    )
    results = smoother.certify((images, [0, 1, 2]), TopK(1, k_prime=1), draws=50, noise_seed=0, progress=False)
    text = results.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.count("data:image/") >= 3


def test_reprs(results):
    """The summary fits a screen, says what was certified, and never rounds up; the HTML is escaped."""
    text = repr(results)
    assert len(text.splitlines()) <= 8
    assert max(map(len, text.splitlines())) <= 120
    assert "k = " in text
    assert "<table>" in results._repr_html_()
    for line in text.splitlines()[1:]:
        radius, recall = float(line.split()[2]), float(line.split("recall ")[1].split("%")[0])
        assert results.recall(radius) - 0.001 < recall / 100 <= results.recall(radius)
