"""`multiguard attack`: from a run folder to a figure, and what it refuses."""

import shutil
import sys
from dataclasses import replace

import pyarrow as pa
import pytest
from PIL import Image
from tests.evaluate.stored_metadata import forge, load_metadata
from tests.pipeline.tiny_run import RECIPE, command

from multiguard.attack.outcomes import execution_notes, voted_classifier, voted_smoother
from multiguard.data import DataConfig, DigitsDataset
from multiguard.evaluate import read_attacks, read_certificates, write_certificates
from multiguard.io.config import from_tree

QUICK = [word for setting in ("steps=2", "copies=2", "starts=1", "tries=2") for word in ("--set", setting)]
QUICK += ["--draws", "60", "--radius", "0.25"]
OWN = ["--model", "blind:make", "--output", "logits"]  # code is named again by whoever attacks


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A tiny run up to its certificates; not to be changed."""
    home = tmp_path_factory.mktemp("attacked")
    (home / "tiny.yaml").write_text(RECIPE)
    code, _, err = command("run", home / "tiny.yaml", "--out", home / "run", "--until", "certify")
    assert code == 0, err
    return home / "run"


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it; its model is still the one that its votes name."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def claim_too_much(run):
    """Certificates that claim every label up to radius 5, whatever the votes say."""
    found = read_certificates(run / "certificates")
    table = found.certificates.table
    rows = [{method: [5.0] * len(own) for method, own in each.items()} for each in table["radii"].to_pylist()]
    at = table.column_names.index("radii")
    claimed = table.set_column(at, "radii", pa.array(rows, table.schema.types[at]))
    write_certificates(
        replace(found, certificates=replace(found.certificates, table=claimed)), run / "certificates", force=True
    )


def test_attack_of_run(run):
    """It draws what is reached and what is certified."""
    code, out, err = command("attack", run, *QUICK)
    assert code == 0, err
    assert "no certificate was broken: 0 of " in out
    assert "certified, joint" in out
    assert "reached, best" in out
    names = {path.name for path in (run / "attack").iterdir() if not path.name.startswith(".")}
    assert names == {f"attack.{kind}" for kind in ("parquet", "csv", "tex", "png", "svg", "pdf")}
    attacks = read_attacks(run / "attack")
    assert attacks.radii == (0.0, 0.25)
    assert {found.attack for image in attacks.images for found in image.outcomes} == {"none", "pgd", "random"}


def test_repeated_attack(run):
    """The same command finds the same and replaces only by force."""
    code, out, _ = command("attack", run, *QUICK, "--images", "7", "--out", run / "all")
    assert (code, "note: 7 images requested, and there are 6: all of them are taken" in out) == (0, True)
    assert command("attack", run, *QUICK, "--images", "3", "--set", "own_radii=true")[0] == 0
    before = read_attacks(run / "attack").images
    code, _, err = command("attack", run, *QUICK)
    assert (code, "--force" in err) == (2, True)
    assert command("attack", run, *QUICK, "--images", "3", "--set", "own_radii=true", "--force")[0] == 0
    again = read_attacks(run / "attack").images
    assert [(image.id, image.outcomes) for image in again] == [(image.id, image.outcomes) for image in before]
    assert len(again) == 3


def test_broken_certificate(run):
    """A false certificate is reported with exit code 1."""
    claim_too_much(run)
    code, out, _ = command("attack", run / "certificates", *QUICK, "--draws", "400", "--out", run / "found")
    assert code == 1
    assert "of 6 certified images, attacked inside their radius (joint, paper)" in out
    assert "if every certificate is sound" in out
    assert read_attacks(run / "found").broken("joint")


@pytest.fixture
def blind(tmp_path, monkeypatch):
    """A model of your own whose scores carry no gradients, by its name."""
    (tmp_path / "blind.py").write_text(
        "import torch\n"
        "def make():\n"
        "    weights = torch.linspace(-1, 1, 7680).view(768, 10)\n"
        "    return lambda images: images.detach().flatten(1) @ weights\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "blind", raising=False)
    return "blind:make"


@pytest.fixture
def own_run(tmp_path, blind):
    """Four images of one's own in a folder, voted on with that model and certified."""
    images, digits = tmp_path / "images", DigitsDataset("test", size=16, images=4)
    images.mkdir()
    rows = [f"{i}.png,{';'.join(str(label) for label in digits.labels[i])}" for i in range(4)]
    (images / "labels.csv").write_text("\n".join(["file,labels", *rows]) + "\n")
    (tmp_path / "names.txt").write_text("\n".join(digits.label_names) + "\n")
    for i in range(4):
        Image.fromarray(digits[i].image[0]).save(images / f"{i}.png")
    return _certified(tmp_path, blind, [], ["--k", "3", "--k-prime", "2"])


def _certified(home, model, voted, certified):
    """The certificates of the folder of images, with these options of `vote` and `certify`."""
    given = ["--data", "folder", "--root", home / "images", "--size", "16"]
    if "--noise" not in voted:
        given += ["--sigma", "0.5"]
    if "band:4" not in voted:
        given += ["--draws", "60"]
    how = ["--output", "logits", "--labels", home / "names.txt", "--out", home / "own" / "votes", "--force"]
    code, _, err = command("vote", "--model", model, *given, *how, *voted)
    assert code == 0, err
    code, _, err = command("certify", home / "own" / "votes", *certified, "--force")
    assert code == 0, err
    return home / "own" / "certificates"


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        ("uniform:0.5", "R is the l1-norm of the perturbation"),
        ("pixels:60", "R pixels may change, any of 256"),
        ("band:4", "all 16 bands evaluate each perturbation"),
    ],
)
def test_other_attackers(own_run, tmp_path, blind, noise, words):
    """The noise of the certificates decides what the attacker may do, and nothing it finds breaks them."""
    folder = _certified(tmp_path, blind, ["--noise", noise], ["--k", "3", "--k-prime", "2"])
    code, out, err = command("attack", folder, *QUICK[:-1], "1", *OWN)
    assert code == 0, out + err
    assert words in out
    attacks = read_attacks(tmp_path / "own" / "attack")
    assert str(attacks.noise).startswith(noise)
    assert attacks.radii == (0.0, 1.0)
    if attacks.noise.whole:
        assert {found.norm for image in attacks.images for found in image.outcomes} <= {0.0, 1.0}
        code, _, err = command("attack", folder, *OWN, "--radius", "0.5", "--force")
        assert code == 2
        assert "give whole numbers" in err


def test_no_gradients(own_run):
    """A model without gradients is searched at random."""
    code, out, err = command("attack", own_run, *QUICK, *OWN)
    assert code == 0, err
    assert "blind:make has no gradients (its scores carry no gradient): random search replaces pgd" in out
    assert read_attacks(own_run.parent / "attack").names == ("random",)
    code, out, err = command("attack", own_run, *QUICK, *OWN)
    assert (code, "has no gradients" in out) == (0, False), "the same attack finds its work done"


def test_recorded_code_not_run(own_run, monkeypatch):
    """Code that certificates name is imported only where the user names it."""
    monkeypatch.delitem(sys.modules, "blind")
    code, _, err = command("attack", own_run, *QUICK)
    assert (code, "name it yourself: --model blind:make" in err) == (2, True), err
    assert "blind" not in sys.modules


@pytest.fixture
def told(run):
    """Changes what the certificates say about their model, and attacks them."""
    path = run / "certificates" / "certificates.parquet"

    def attack(spec, **more):
        metadata = load_metadata(path)
        metadata["source"]["model"] = {"spec": spec, **more}
        forge(path, metadata=metadata)
        return command("attack", path.parent, *QUICK, "--images", "1", "--attack", "random")

    return attack


def test_moved_model(run, told):
    """A model folder that moved is found next to the certificates, or --model is needed."""
    code, _, err = told(str(run / "gone" / "model"))
    assert code == 0, err
    shutil.rmtree(run / "attack")
    shutil.rmtree(run / "model")
    code, _, err = told(str(run / "gone" / "model"))
    assert (code, "which is gone; --model names where it is now" in err, "code" in err) == (2, True, False), err


def test_hash_before_loading(told, tmp_path):
    """A recorded folder with another hash is refused before any of its files is taken for a model."""
    (tmp_path / "config.json").write_text('{"model_type": "unknown"}')
    (tmp_path / "preprocessor_config.json").write_text("{}")
    (tmp_path / "weights.pth").write_bytes(b"no weights")
    for said in ({"spec": f"hf:{tmp_path}"}, {"spec": "timm:resnet10t", "weights": str(tmp_path / "weights.pth")}):
        code, _, err = told(**said)
        assert (code, "is not the classifier that" in err) == (2, True), err


def test_execution_notes(run):
    """A classifier that runs differently than when it voted is noted."""
    folder, certified = run / "certificates", read_certificates(run / "certificates")
    data = from_tree(DataConfig, certified.source["data"], "data")
    classifier = voted_classifier(folder, certified, None, data)
    smoother = voted_smoother(certified, classifier, "cpu")
    assert execution_notes(certified, smoother) == ()
    altered = {**certified.provenance, "compiled": True, "device": "NVIDIA H200"}
    (note,) = execution_notes(replace(certified, provenance=altered), smoother)
    assert "device NVIDIA H200, here cpu" in note
    assert "compiled True, here False" in note


def test_replaced_image(own_run, tmp_path):
    """An image that is not the one voted on is refused."""
    other = DigitsDataset("test", size=16, images=9)[8].image[0]
    Image.fromarray(other).save(tmp_path / "images" / "2.png")
    code, _, err = command("attack", own_run, *QUICK, *OWN)
    assert (code, "2.png is not the one that was voted on" in err) == (2, True), err


def test_other_model(run, blind):
    """Another model is refused, and the same one elsewhere is taken."""
    code, _, err = command("attack", run, *QUICK, *OWN)
    assert (code, "is not the classifier that" in err) == (2, True)
    shutil.copytree(run / "model", run / "other")
    assert command("attack", run, *QUICK, "--images", "1", "--model", run / "other")[0] == 0
