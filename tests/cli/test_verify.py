"""`multiguard verify`: what agrees passes, and every kind of forgery is found."""

import hashlib
import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.pipeline.tiny_run import command

from multiguard.evaluate import certificate_files, read_certificates, scores, signature_file, write_certificates
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
        more = ["--method", "joint,betting", "--bands", 0.9, "--sweep", "k=2", "--sweep", "n=20"]
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


def forge(monkeypatch, change):
    """Write the certificates again as a forger would, with checksums that agree."""
    results, votes = read_certificates("certificates"), read_votes("votes")
    certificates, curves = change(results.certificates, results.curves)
    monkeypatch.setattr(certificate_files, "_check_votes", lambda *given: None)
    radius = results.labels[0].radius
    write_certificates("certificates", certificates, curves, radius=radius, votes=votes, force=True)


def test_agreement(home):
    """Honest certificates pass, with a sample of the votes drawn again."""
    assert verified() == (0, [])
    assert verified(*MODEL, "--images", 2, "--draws", 15) == (0, [])


def test_adaptive_sets_without_truth(home):
    """Adaptive votes of sets, certified for labels that pilot draws chose, are verified in the same way."""
    adaptive = ["--rule", "threshold", "--draws", "adaptive", "--max-draws", 60, "--radius", 0.2, "--threshold", 0.5]
    assert command(*VOTE, *adaptive, "--no-labels", "--out", "a/votes")[0] == 0
    certify = ["certify", "a/votes", "--rule", "threshold", "--threshold", 0.5, "--no-labels"]
    assert command(*certify, "--out", "a/certificates")[0] == 0
    code, out, err = command("verify", "a/certificates", *MODEL, "--images", 2, "--draws", 9)
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
    code, _, err = command("tune", "votes", "--radius", 0.01, "--k", 9, "--seed", 1, "--out", "other.json")
    assert code == 0, err
    code, out, err = command("verify", "certificates", "--tuned", "other.json")
    assert (code, err) == (1, ""), out
    assert "FAILED  other.json chose TopK(k=9, k_prime=" in out


@pytest.mark.parametrize("together", [1, 2, 100])
def test_larger_radius(home, monkeypatch, together):
    """A radius that was raised by one bit is found, and the image is named, however many are compared at a time."""
    monkeypatch.setattr(scores, "IMAGES_AT_A_TIME", together)

    def raise_one(certificates, curves):
        rows = list(certificates.radii["joint"])
        rows[2] = np.where(rows[2] < 0, 5e-324, np.nextafter(rows[2], np.inf))
        return replace(certificates, radii={**certificates.radii, "joint": rows}), curves

    forge(monkeypatch, raise_one)
    name = read_votes("votes").ids[2]
    code, failed = verified()
    assert code == 1
    assert f"the votes prove something else: {name} (radii)" in failed[0]


def test_raised_curve(home, monkeypatch):
    """A curve of a sweep that the votes do not prove is found."""

    def raise_recall(certificates, curves):
        curves[-1].scores.recall[:] = 1.0
        return certificates, curves

    forge(monkeypatch, raise_recall)
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
    code, failed = verified(*MODEL, "--images", 1, "--draws", 5)
    assert code == 1
    assert "5 of 5 draws, drawn again, have other labels, though device, precision and versions are those" in failed[0]


def test_signature(home):
    """A signature passes with its own key only, and dies with any change of the certificates."""
    for name in ("key", "other"):
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", f"{name}.pem"], check=True)
        public = ["openssl", "pkey", "-in", f"{name}.pem", "-pubout", "-out", f"{name}.pub"]
        subprocess.run(public, check=True)
    assert verified("--public-key", "key.pub") == (1, ["FAILED  the certificates are not signed"])
    assert verified("--sign", "key.pem") == (0, [])
    assert verified() == (0, [])
    assert verified("--public-key", "key.pub") == (0, [])
    assert "signed by another key" in verified("--public-key", "other.pub")[1][0]
    path = home / "certificates/signature.json"
    record = json.loads(path.read_text())
    assert command(*CERTIFY, "--force")[0] == 0
    assert verified()[1] == ["FAILED  the signature is of other certificates"]
    path.write_text(json.dumps({**record, "signature": "00"}))
    assert command("verify", "certificates")[0] == 2  # its checksum says that it was edited


def test_certificates_replaced_before_signing(home, monkeypatch):
    """What is signed is what was verified, though other certificates came in its place."""
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", "key.pem"], check=True)
    path, read_key = home / "certificates" / CERTIFICATES_NAME, signature_file._private_key
    expected = hashlib.sha256(path.read_bytes()).hexdigest()

    def replace_certificates(key):
        path.write_bytes(path.read_bytes() + b"other")
        return read_key(key)

    monkeypatch.setattr(signature_file, "_private_key", replace_certificates)
    assert verified("--sign", "key.pem") == (0, [])
    assert signature_file.read_signature(home / "certificates").certificates_sha256 == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nowhere"], "nowhere holds no certificates"),
        (["certificates", "--votes", "nowhere"], "nowhere holds no votes to certify again; name their folder"),
        (["certificates", "--images", 3], "--images is about the votes to draw again; name --model too"),
        (["certificates", "--sign", "votes/manifest.json"], "not a private key in PEM"),
        (["certificates", "--public-key", "votes/manifest.json"], "not a public key in PEM"),
        (["certificates", "--model", "tests.cli.test_verify:other_model", "--output", "logits"], "is not the classif"),
    ],
)
def test_mistakes(home, options, message):
    """What cannot be checked is one line and exit code 2."""
    code, _, err = command("verify", *options)
    assert (code, err.count("\n")) == (2, 1), err
    assert message in err
