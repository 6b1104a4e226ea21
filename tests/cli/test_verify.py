"""`multiguard verify`: what agrees passes, and every kind of forgery is found."""

import hashlib
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.pipeline.tiny_run import command

from multiguard.errors import ImageFailure
from multiguard.evaluate import read_calibration, read_certificates, write_certificates
from multiguard.evaluate.results import CERTIFICATES_NAME
from multiguard.io.config import to_tree
from multiguard.io.records import encode_checked
from multiguard.votes import read_votes
from multiguard.votes.shards import load_manifest, write_shard

MODEL = ["--model", "tests.cli.test_verify:linear_model", "--output", "logits"]
VOTE = ["vote", *MODEL, "--size", 16, "--data", "digits", "--images", 20, "--sigma", 0.5]
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
        assert command(*VOTE, "--draws", 40, "--noise-seed", 0, "--out", "votes")[0] == 0
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
    adaptive += ["--radius", 0.2, "--set", "threshold=0.5"]
    code, _, err = command(*VOTE, *adaptive, "--no-labels", "--out", "a/votes")
    assert code == 0, err
    certify = ["certify", "a/votes", "--threshold", 0.5, "--no-labels"]
    assert command(*certify, "--out", "a/certificates")[0] == 0
    code, out, err = command("verify", "a/certificates", *MODEL, "--images", 2, "--set", "draws=9")
    assert (code, err) == (0, ""), out
    assert "36 draws, drawn again: all equal" in out  # 9 that certify and 9 pilot draws of each image


def test_calibration(home):
    """Certificates of the images that did not calibrate are verified, the calibration is made again, and compared."""
    calibrate = ["calibrate", "votes", "--recall", 0.5, "--radius", 0.01]
    code, _, err = command(*calibrate, "--out", "calibration.json")
    assert code == 0, err
    certify = ["certify", "votes", "--calibration", "calibration.json", "--out", "certificates", "--force"]
    code, _, err = command(*certify)
    assert code == 0, err
    code, out, err = command("verify", "certificates")
    assert (code, err) == (0, ""), out
    assert "4 of 20 images: by the record the others calibrated; which they are is not checked" in out
    code, out, err = command("verify", "certificates", "--calibration", "calibration.json")
    assert (code, err) == (0, ""), out
    assert "4 of 20 images: all that had no part in calibration.json" in out
    code, _, err = command(*calibrate, "--seed", 1, "--out", "other.json")
    assert code == 0, err
    assert verified("--calibration", "other.json")[1][0].startswith("FAILED  other.json has Threshold(")


@pytest.mark.parametrize("change", [{"least_hits": 1}, {"used": ("image",)}, {"achieved": 1.0}, {"offers": ()}])
def test_forged_calibration(home, change):
    """A calibration with other hits, images or numbers than the votes give is found, and so is one beside a page."""
    code, _, err = command("calibrate", "votes", "--recall", 0.5, "--radius", 0.01)
    assert code == 0, err
    assert command("verify", "certificates")[0] == 0
    forged = to_tree(read_calibration("calibration.json").replace(**change))
    Path("calibration.json").write_bytes(encode_checked(forged, format="multiguard-calibration", version=4))
    assert verified() == (1, ["FAILED  calibration.json: not what these votes calibrate"])


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
    assert verified()[1] == ["FAILED  certificates/curves.csv is not what the certificates say"]
    for path in (home / "votes/votes-00000.parquet", home / "certificates" / CERTIFICATES_NAME):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        code, failed = verified()
        assert code == 1
        assert path.name in failed[-1]


def rewrite(rows, provenance=None, failures=(), force=()):
    """Write the votes again with these rows, as a forger would, and everything that is made of them."""
    votes = load_manifest(Path("votes"))
    run = replace(votes.provenance if provenance is None else provenance, image_ids=ids_of(rows, failures, votes))
    manifest = replace(votes, provenance=run, shards=None)
    shard = write_shard(Path("votes"), manifest, 0, rows, failures)
    replace(manifest, shards=(shard,)).save(Path("votes"))
    assert command(*CERTIFY, "--force")[0] == 0
    assert verified() == (0, [])


def ids_of(rows, failures, votes):
    kept = {*(row.image_id for row in rows), *(failure.image_id for failure in failures)}
    return tuple(name for name in votes.provenance.image_ids if name in kept)


def finding(*options):
    code, failed = verified(*options)
    assert (code, len(failed)) == (1, 1), failed
    return failed[0]


def by_radius():
    """The votes, those of the images of the largest radii last."""
    radii = read_certificates("certificates").certificates.radii["joint"]
    votes = read_votes("votes")
    return [votes.row(int(position)) for position in np.argsort([each.sum() for each in radii])]


def test_own_images(home):
    """Images, labels and names are compared without a model, and what is not checked is listed."""
    code, out, err = command("verify", "certificates", "--data", "digits")
    assert (code, err) == (0, "")
    assert "the ids match its images, with their labels, all of them and in order" in out
    assert "not checked: certificates: whether the model tests.cli.test_verify:linear_model casts these votes" in out
    assert "not checked: that the config and the sample of images were chosen before the votes were seen" in out
    code, out, err = command("verify", "certificates", *MODEL, "--data", "digits", "--images", 3)
    assert (code, err) == (0, "")
    assert "3 images without noise, classified again: all equal" in out
    assert "not checked: the votes of the other 17 images, and the other draws of these" in out


@pytest.mark.parametrize("renamed", [False, True])
def test_dropped_images(home, renamed):
    """The 7 worst of 20 images are dropped and the shards rewritten, as 20 random images or as 13 of them."""
    run = load_manifest(Path("votes")).provenance
    kept = sorted(by_radius()[7:], key=lambda row: run.image_ids.index(row.image_id))
    if renamed:
        run = replace(run, dataset=run.dataset.replace("20 random", "13 random"))
        source = json.loads(Path("votes/source.json").read_text())
        source["data"]["images"] = 13
        Path("votes/source.json").write_text(json.dumps(source))
    rewrite(kept, run)
    for options in (["--data", "digits"], MODEL):
        text = f"the votes are not of the images of {run.dataset}, in order: "
        assert f"FAILED  {text}" in finding(*options)


def test_failed_images(home):
    """An image that is recorded as failed, and can be read, is found."""
    *rows, last = read_votes("votes")
    rewrite(rows, failures=[ImageFailure(last.image_id, "the file is empty; replace it")])
    assert f"recorded as failed, but can be read: {last.image_id}" in finding("--data", "digits")


@pytest.mark.parametrize("part", ["data", "labels"])
def test_forged_data(home, part):
    """Another dataset's name, and true labels that were replaced by those that stay, are found."""
    run, rows = load_manifest(Path("votes")).provenance, [*read_votes("votes")]
    if part == "data":
        rewrite(rows, replace(run, dataset=run.dataset.replace("digits", "coco")))
        assert "the votes name digits (coco test" in finding("--data", "digits")
        return
    rows[4] = replace(rows[4], labels=tuple(sorted({*rows[4].ranked[0][:2].tolist()})))
    rewrite(rows)
    assert f"other labels than in the votes: {rows[4].image_id}" in finding("--data", "digits")


@pytest.mark.parametrize("part", ["provenance", "source"])
def test_forged_model_name(home, part):
    """Another model's name, in the votes or where the page takes it from, is found."""
    run, rows = load_manifest(Path("votes")).provenance, [*read_votes("votes")]
    if part == "source":
        source = json.loads(Path("votes/source.json").read_text())
        source["model"]["spec"] = "coco"
        Path("votes/source.json").write_text(json.dumps(source))
    rewrite(rows, replace(run, model="resnet50") if part == "provenance" else run)
    name = "resnet50 (resnet50)" if part == "provenance" else "coco (tests.cli.test_verify:linear_model)"
    assert f"the votes name the model {name}, but it is tests.cli.test_verify:linear_model" in finding(*MODEL)


@pytest.mark.parametrize("part", ["votes", "bare"])
def test_altered_votes(home, part):
    """Votes that the model does not cast, with noise or without, are found when they are drawn again."""
    rows = [replace(row, **{part: getattr(row, part)[:, [1, 0, *range(2, 10)]]}) for row in read_votes("votes")]
    rewrite(rows)
    text = finding(*MODEL, "--images", 2, "--set", "draws=5")
    if part == "bare":
        assert "2 of 2 images without noise have other labels than the votes say" in text
    else:
        assert "10 of 10 draws, drawn again, have other labels, though device, precision and versions are" in text


def test_page_and_tables(home):
    """The page and its tables are made again: an edited number, sentence or table is found."""
    assert command("report", "certificates", "--title", "Mine", "--out", "report.html")[0] == 0
    code, out, _ = command("verify", "certificates")
    assert code == 0, out
    assert "report.html: every number and sentence is made from the certificates" in out
    assert "tables, made again: equal" in out
    assert "not checked: report.html: its title, its commands and its thumbnails" in out
    page, table = Path("report.html"), Path("tables/methods.csv")
    text = page.read_text()
    statement = re.search(r'<span data-score="recall">([0-9.]+)</span>', text)[0]
    sizes = re.search(r'"recall":\[[0-9.]+', text)[0]
    for old, new in ((statement, statement[:27] + "99.9</span>"), (sizes, '"recall":[0.999'), (text, "no page")):
        page.write_text(text.replace(old, new))
        assert page.read_text() != text
        assert "report.html" in finding()
    page.write_text(text)
    table.write_text(table.read_text().replace("0.", "1.", 1))
    assert "not what the certificates say: methods.csv" in finding()


def test_other_model(home):
    """Votes are drawn again with the model that voted, or not at all."""
    code, _, err = command("verify", "certificates", "--model", "tests.cli.test_verify:other_model", *MODEL[2:])
    assert (code, err.count("\n"), "is not the classifier that" in err) == (2, 1, True), err
