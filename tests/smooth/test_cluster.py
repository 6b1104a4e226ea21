"""Ray actors write the files of one process, whatever is killed on the way."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ray = pytest.importorskip("ray")

from multiguard.certify import TopK  # noqa: E402
from multiguard.data import DataConfig  # noqa: E402
from multiguard.errors import InvalidInputError, MultiGuardError  # noqa: E402
from multiguard.evaluate import CertifyConfig  # noqa: E402
from multiguard.models.config import ModelConfig  # noqa: E402
from multiguard.smooth.cluster import _connect  # noqa: E402
from multiguard.smooth.config import ClusterConfig, VoteConfig  # noqa: E402
from multiguard.smooth.vote import vote  # noqa: E402

MODEL = f"{Path(__file__).with_name('clustered.py')}:scores"
FIXED = VoteConfig(draws=40, noise_seed=0, shard_images=1)
ADAPTIVE = FIXED.replace(draws="adaptive", max_draws=100, radii=(0.5,))
DIGITS = DataConfig("digits", images=8)
PATH = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))


@pytest.fixture(scope="module")
def cluster():
    """A real Ray on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "1")
        patch.setenv("PYTHONPATH", PATH)
        on_term = signal.getsignal(signal.SIGTERM)
        _connect("local", 2)
        assert signal.getsignal(signal.SIGTERM) is on_term
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        yield
    ray.shutdown()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory; libraries that other tests imported are not recorded, as in an actor."""
    monkeypatch.chdir(tmp_path)
    for name in ("timm", "transformers", "onnxruntime"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def voted(config=FIXED, actors=None, data=DIGITS, out="votes", labels=None):
    """The files of a run, by one process or by actors."""
    cluster = None if actors is None else ClusterConfig("local", actors)
    target = CertifyConfig().with_rule(TopK(3, k_prime=2)) if config.adaptive else None
    model = ModelConfig(MODEL, output="logits", size=16, labels=labels)
    vote(config, data, model, noise="gaussian:0.5", target=target, out=Path(out), cluster=cluster)
    return contents(Path(out))


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "source.json"}


def test_adaptive_draws(cluster, place):
    """Two actors write the files of one process, also of adaptive draws."""
    assert voted(ADAPTIVE, 2, out="many") == voted(ADAPTIVE, out="one")


def test_killed_actor(cluster, place):
    """An actor that is killed in the middle is started again, and its shards are voted on again."""
    (place / "kill").touch()
    many = voted(FIXED, 1, out="many")
    assert not (place / "kill").exists()
    assert many == voted(out="one")


def test_killed_driver(cluster, place):
    """The same command resumes after the driver was killed: finished shards stay, and the files are the same."""
    (place / "slow").touch()
    options = ["--model", MODEL, "--output", "logits", "--size", 16, "--sigma", 0.5, "--data", "digits", "--images", 8]
    options += ["--draws", 40, "--noise-seed", 0, "--set", "shard_images=1", "--out", "votes", "--cluster", "local"]
    command = [sys.executable, "-m", "multiguard", "vote", *map(str, options), "--set", "actors=1"]
    environment = {**os.environ, "PYTHONPATH": PATH}
    driver = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while len(done := list(Path("votes").glob("*.parquet"))) < 2 and driver.poll() is None:
        time.sleep(0.02)
    driver.kill()
    _, told = driver.communicate()
    assert done, told
    before = {path: path.stat().st_mtime_ns for path in done}
    (place / "slow").unlink()
    assert voted(FIXED, 1) == voted(out="one")
    assert {path: path.stat().st_mtime_ns for path in done} == before


def test_bad_image(cluster, place):
    """A bad image stops the run by its name, or is recorded as by one process."""
    (place / "images").mkdir()
    for index in range(3):
        pixels = np.full((8, 8, 3), 40 * index, np.uint8)
        Image.fromarray(pixels).save(place / "images" / f"{index}.png")
    (place / "images" / "1.png").write_bytes(b"no image")
    (place / "images.csv").write_text("file,labels\n" + "".join(f"{index}.png,{index}\n" for index in range(3)))
    (place / "labels.txt").write_text("".join(f"{label}\n" for label in range(10)))
    options = {"data": DataConfig("folder", root=place / "images", table=place / "images.csv")}
    options["labels"] = place / "labels.txt"
    with pytest.raises(MultiGuardError, match=r"^[^\n]*1\.png[^\n]*$"):
        voted(actors=1, **options)
    config = FIXED.replace(on_error="record")
    assert voted(config, 1, **options) == voted(config, out="one", **options)


def test_refused():
    """Actors need a cluster, and a cluster a folder."""
    with pytest.raises(InvalidInputError, match="actors belong to a cluster"):
        ClusterConfig(actors=2)
    with pytest.raises(InvalidInputError, match="a cluster votes into a folder"):
        vote(FIXED, DIGITS, ModelConfig(MODEL), cluster=ClusterConfig("local"))
