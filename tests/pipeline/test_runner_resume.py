"""A run that was interrupted, or met bad images, resumes with what it has."""

import os
import signal

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from tests.pipeline.tiny_run import command

from multiguard.votes import read_votes

NAMES = [f"{number}.png" for number in range(6)]


class Means(torch.nn.Module):
    """The scores are the means of the colours."""

    def forward(self, images):
        return images.mean(dim=(2, 3))


def means():
    return Means()


def draw(path, number):
    pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder of six images, the first and the fourth of them torn, and a recipe that votes on them."""
    images = tmp_path / "images"
    images.mkdir()
    for number, name in enumerate(NAMES):
        draw(images / name, number)
    rows = "".join(f"{name},{'rgb'[number % 3]}\n" for number, name in enumerate(NAMES))
    (images / "labels.csv").write_text(f"file,labels\n{rows}")
    (images / "0.png").write_bytes(b"torn")
    (images / "3.png").write_bytes(b"torn")
    (tmp_path / "rgb.txt").write_text("r\ng\nb\n")
    recipe = {
        "data": {"name": "folder", "root": str(images), "split": "all"},
        "sigma": 0.5,
        "model": {"spec": f"{__name__}:means", "labels": str(tmp_path / "rgb.txt"), "output": "logits"},
        "vote": {"draws": 20, "shard_images": 2, "on_error": "record", "k_max": 2},
        "certify": {"k": 2, "k_prime": 1, "alpha": 0.05, "methods": ["joint"]},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return tmp_path


def run(home, *more, until="vote"):
    code, out, err = command("run", home / "recipe.yaml", "--out", home / "run", "--until", until, *more)
    return code, out + err


def mend(home, number):
    draw(home / "images" / NAMES[number], number)


STOP = ("--set", "vote.on_error=stop")


def test_failed_images_retried(home):
    """Failed images are tried again where the recipe does not record them, with the seed that the run has drawn."""
    code, said = run(home, until="certify")
    seed = read_votes(home / "run" / "votes").provenance.noise_seed
    assert (code, "2 of 6 images could not be voted on and are left out" in said) == (0, True), said
    assert "vote: skipped" in run(home)[1]
    code, said = run(home, *STOP)
    assert code == 2, said
    assert "0.png" in said
    mend(home, 0)
    code, said = run(home, *STOP)
    assert (code, "3.png" in said) == (2, True), said
    mend(home, 3)
    code, said = run(home, *STOP, until="certify")
    assert (code, "vote: running" in said) == (0, True), said
    votes = read_votes(home / "run" / "votes")
    assert (len(votes), votes.failures, votes.provenance.noise_seed) == (6, (), seed)
    assert "none left out" in said
    assert "vote: skipped" in run(home, *STOP)[1]


def test_replaced_image_files(home):
    """Repaired and copied files leave the votes valid; another image does not, and is voted on with a new seed."""
    assert run(home)[0] == 0
    seed = read_votes(home / "run" / "votes").provenance.noise_seed
    mend(home, 0)
    os.utime(home / "images" / "1.png", (1, 1))
    for _ in range(2):
        code, said = run(home)
        assert (code, "vote: skipped" in said) == (0, True), said
    draw(home / "images" / "1.png", 77)
    code, said = run(home)
    assert (code, "holds votes on other images: files of" in said) == (2, True), said
    code, said = run(home, "--force")
    assert (code, "1 of 6 images could not be voted on and is left out, 3.png: " in said) == (0, True), said
    assert read_votes(home / "run" / "votes").provenance.noise_seed != seed


def kill_in_first_batch(home):
    """Run it in its own process, which is killed in its first vote, before its first shard is complete."""
    child, manifest, forward = os.fork(), home / "run" / "votes" / "manifest.json", Means.forward
    if child == 0:
        torch.set_num_threads(1)  # the threads of the parent's OpenMP are not there after a fork
        Means.forward = lambda self, images: (
            os.kill(os.getpid(), signal.SIGKILL) if manifest.exists() else forward(self, images)
        )
        run(home)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_killed_before_first_shard(home):
    """A run killed before its first shard takes other options."""
    kill_in_first_batch(home)
    votes = home / "run" / "votes"
    (votes / ".votes-00000.parquet.ab12.part").write_bytes(b"PAR1")
    assert {path.name for path in votes.iterdir()} >= {"manifest.json", ".multiguard.lock"}
    code, said = run(home, "--set", "vote.draws=30")
    assert code == 0, said
    assert read_votes(votes).provenance.draws == 30


def test_forced_restart(home):
    """With --force a run starts again if its manifest is damaged."""
    mend(home, 0)
    assert run(home, *STOP)[0] == 2, "at the fourth image"
    manifest = home / "run" / "votes" / "manifest.json"
    manifest.write_text(manifest.read_text()[:100])
    code, said = run(home)
    assert (code, "or vote with --force" in said) == (2, True), said
    code, said = run(home, "--force")
    assert code == 0, said
