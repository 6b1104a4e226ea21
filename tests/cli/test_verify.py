"""`multiguard verify`: what agrees passes, and every kind of forgery is found."""

import hashlib
import subprocess
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.pipeline.tiny_run import command

from multiguard.evaluate import read_certificates, write_certificates
from multiguard.evaluate.certificate_files import CERTIFICATES_NAME
from multiguard.votes import read_votes
from multiguard.votes.shards import load_manifest, write_shard

MODEL = ["--model", "tests.cli.test_verify:linear_model", "--output", "logits"]
VOTE = ["vote", *MODEL, "--size", 16, "--data", "digits", "--images", 4, "--sigma", 0.5]
CERTIFY = ["certify", "votes", "--k", 3, "--k-prime", 1, "--out", "certificates"]


def linear_model():
    """A linear classifier of ten labels."""
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 10))


def other_model():
    """A classifier that answers otherwise."""
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 10))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Votes of both rules with their certificates."""
    home = tmp_path_factory.mktemp("verify")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        assert command(*VOTE, "--draws", 40, "--out", "votes")[0] == 0
        more = ["--method", "joint,betting", "--set", "bands=0.9", "--sweep", "k=2", "--sweep", "n=20"]
        assert command(*CERTIFY, *more)[0] == 0
    return home


@pytest.fixture
def home(made, tmp_path, monkeypatch):
    """A copy to forge."""
    subprocess.run(["cp", "-r", f"{made}/.", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def verified(*options):
    code, out, err = command("verify", "certificates", *options)
    assert not err, err
    return code, [line for line in out.splitlines() if line.startswith("FAILED")]


def forge(change):
    """Write the certificates again as a forger would, with checksums that agree."""
    results = read_certificates("certificates")
    certificates, curves = change(results.certificates, results.curves)
    write_certificates(replace(results, certificates=certificates, curves=curves), "certificates", force=True)


def test_agreement(home):
    """Honest certificates pass, with a sample of the votes drawn again."""
    code, out, _ = command("verify", "certificates")
    digest = hashlib.sha256((home / "certificates" / CERTIFICATES_NAME).read_bytes()).hexdigest()
    assert (code, "FAILED" in out) == (0, False)
    assert f"certificates.parquet is intact, sha256 {digest}" in out
    assert verified(*MODEL, "--images", 2, "--set", "draws=15") == (0, [])


def test_adaptive_sets_without_truth(home):
    """Adaptive votes of sets, certified for labels that pilot draws chose, are verified in the same way."""
    adaptive = ["--rule", "threshold", "--draws", "adaptive", "--set", "max_draws=60"]
    adaptive += ["--radius", 0.2, "--threshold", 0.5]
    assert command(*VOTE, *adaptive, "--no-labels", "--out", "a/votes")[0] == 0
    certify = ["certify", "a/votes", "--threshold", 0.5, "--no-labels"]
    assert command(*certify, "--out", "a/certificates")[0] == 0
    code, out, err = command("verify", "a/certificates", *MODEL, "--images", 2, "--set", "draws=9")
    assert (code, err) == (0, ""), out
    assert "36 draws, drawn again: all equal" in out  # 9 that certify and 9 pilot draws of each image


def test_tuned(home):
    """Certificates of the images that did not choose the config are verified, and the others are counted."""
    code, _, err = command("tune", "votes", "--radius", 0.01, "--k", 9, "--out", "tuned.json")
    assert code == 0, err
    code, _, err = command("certify", "votes", "--tuned", "tuned.json", "--out", "certificates", "--force")
    assert code == 0, err
    code, out, err = command("verify", "certificates")
    assert (code, err) == (0, ""), out
    assert "2 of 4 images: by the record the others chose the config; which they are is not checked" in out
    code, out, err = command("verify", "certificates", "--tuned", "tuned.json")
    assert (code, err) == (0, ""), out
    assert "2 of 4 images: all that had no part in the choice of TopK(k=9, k_prime=" in out
    code, _, err = command("tune", "votes", "--radius", 0.01, "--k", 9, "--set", "seed=1", "--out", "other.json")
    assert code == 0, err
    code, out, err = command("verify", "certificates", "--tuned", "other.json")
    assert (code, err) == (1, ""), out
    assert "FAILED  other.json chose TopK(k=9, k_prime=" in out


def test_larger_radius(home):
    """A radius that was raised by one bit is found, and the image is named."""

    def raise_one(certificates, curves):
        column = certificates.table.column("radii")
        rows = column.to_pylist()
        rows[2]["joint"][0] = 5e-324 if rows[2]["joint"][0] < 0 else np.nextafter(rows[2]["joint"][0], np.inf)
        place = certificates.table.column_names.index("radii")
        table = certificates.table.set_column(place, "radii", pa.array(rows, column.type))
        return replace(certificates, table=table), curves

    forge(raise_one)
    name = read_votes("votes").ids[2]
    code, failed = verified()
    assert code == 1
    assert f"the votes prove something else: {name} (radii)" in failed[0]


def test_raised_curve(home):
    """A curve of a sweep that the votes do not prove is found."""

    def raise_recall(certificates, curves):
        curves[-1].scores.recall[:] = 1.0
        return certificates, curves

    forge(raise_recall)
    code, failed = verified()
    assert (code, len(failed)) == (1, 1)
    assert "curves that the votes do not prove" in failed[0]


def test_damage(home):
    """A flipped bit in the certificates or in the votes, and an edited copy, are findings, not mistakes."""
    copy = home / "certificates/curves.csv"
    copy.write_text(copy.read_text().replace("joint", "jolnt", 1))
    assert verified()[1] == ["FAILED  not what the certificates say, though it lies beside them: curves.csv"]
    for path in (home / "votes/votes-00000.parquet", home / "certificates" / CERTIFICATES_NAME):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        code, failed = verified()
        assert code == 1
        assert path.name in failed[-1]


def test_altered_votes(home):
    """Votes that the model does not cast are found when they are drawn again, though every checksum agrees."""
    manifest, votes = load_manifest(home / "votes"), read_votes("votes")
    rows = [replace(row, votes=row.ranked[:, [1, 0, *range(2, 10)]]) for row in votes]
    shard = write_shard(home / "votes", manifest, 0, rows, [])
    type(manifest)(manifest.provenance, manifest.shard_images, (shard,)).save(home / "votes")
    assert command(*CERTIFY, "--force")[0] == 0
    assert verified() == (0, [])
    code, failed = verified(*MODEL, "--images", 1, "--set", "draws=5")
    assert code == 1
    assert "5 of 5 draws, drawn again, have other labels, though device, precision and versions are those" in failed[0]


def test_other_model(home):
    """Votes are drawn again with the model that voted, or not at all."""
    code, _, err = command("verify", "certificates", "--model", "tests.cli.test_verify:other_model", *MODEL[2:])
    assert (code, err.count("\n"), "is not the classifier that" in err) == (2, 1, True), err
