"""One command from images to the page; run again, nothing is done twice and nothing is lost."""

import re
import shutil
import sys

import pytest
import yaml
from tests.pipeline.tiny_run import RECIPE, command, state

from multiguard.evaluate import read_certificates
from multiguard.run import parse_recipe
from multiguard.run.arms import RunRecord, find_certificates, read_record
from multiguard.votes import read_votes

STEPS = ["train", "vote", "certify", "report"]


def rerun(home, *more):
    return command("run", home / "tiny.yaml", "--out", home / "run", *more)


def skipped(out):
    return [line.split(":")[0] for line in out.splitlines() if "skipped (unchanged)" in line]


def runs(out):
    return dict(line.split(": ", 1) for line in out.splitlines() if re.search(": (running|resuming)", line))


def test_run_folder(finished):
    """Everything is in the run folder."""
    home, out = finished
    run = home / "run"
    assert runs(out) == dict.fromkeys(STEPS, "running")
    assert f"report: {run / 'report.html'}" in out
    assert len(read_votes(run / "votes")) == 6
    assert {curve.config.rule.k for curve in read_certificates(run / "certificates").curves} == {2, 3}
    assert {curve.config.draws for curve in read_certificates(run / "certificates").curves} == {30, 60}
    assert "plotly" in (run / "report.html").read_text(encoding="utf-8")
    assert list((run / "figures").iterdir())
    assert list((run / "tables").iterdir())
    seeds = "--set data.seed=0 --set vote.noise_seed=0"
    assert read_record(run) == RunRecord(f"multiguard run {home / 'tiny.yaml'} --out {run} {seeds}", certified=True)


def test_written_recipe(home):
    """The recipe in the run folder is complete, and repeats the run: every step is skipped, and no file is touched."""
    written = (home / "run" / "recipe.yaml").read_text()
    assert parse_recipe(written, "x").train.lr == 0.002
    assert yaml.safe_load(written)["data"]["split"] == "test"
    before = state(home / "run")
    for recipe in (home / "run" / "recipe.yaml", home / "tiny.yaml"):
        code, out, _ = command("run", recipe, "--out", home / "run")
        assert (code, skipped(out)) == (0, STEPS)
        assert state(home / "run") == before


def test_other_k_same_votes(home):
    """Another k takes the votes that are there."""
    before = state(home / "run" / "votes")
    code, out, _ = rerun(home, "--set", "certify.k=4", "--until", "certify")
    assert (code, skipped(out)) == (0, ["train", "vote"])
    assert list(runs(out)) == ["certify"]
    assert state(home / "run" / "votes") == before
    assert read_certificates(home / "run" / "certificates").certificates.config.rule.k == 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("sigma=0.25", 'holds a run with other settings: noise was "gaussian:0.5" and is "gaussian:0.25"'),
        ("data.images=5", "votes holds the votes of another run: "),
    ],
)
def test_costly_outputs_kept(home, change, told):
    """A model or votes with other inputs are not replaced without --force."""
    before = costly(home / "run")
    code, out, err = rerun(home, "--set", change)
    assert code == 2
    assert told in err
    assert "--force" in err
    assert err.count("\n") == 1
    assert "%" not in out
    assert costly(home / "run") == before


def costly(run):
    return state(run / "model"), state(run / "votes")


@pytest.mark.parametrize("harmed", ["votes/votes-00001.parquet", "model/model.safetensors"])
def test_missing_files(home, harmed):
    """What is missing is made again, bit for bit."""
    before = state(home / "run")
    (home / "run" / harmed).unlink()
    code, _, err = rerun(home)
    assert code == 0, err
    assert state(home / "run")[harmed][0] == before[harmed][0]


@pytest.mark.parametrize("harmed", ["certificates/certificates.parquet", "report.html"])
def test_altered_results(home, harmed):
    """A result that was altered is not replaced; one that is missing is made again."""
    (home / "run" / harmed).write_bytes(b"no longer what it was")
    code, _, err = rerun(home)
    assert (code, harmed.split("/")[-1] in err, err.count("\n")) == (2, True, 1), err
    (home / "run" / harmed).unlink()
    code, _, err = rerun(home)
    assert code == 0, err
    assert (home / "run" / harmed).stat().st_size > 1000


def test_more_draws(home):
    """More draws extend the votes."""
    code, out, err = rerun(home, "--set", "vote.draws=70", "--until", "vote")
    assert code == 0, err
    assert list(runs(out)) == ["vote"]
    assert read_votes(home / "run" / "votes").provenance.draws == 70


def test_until(tmp_path, home):
    """Until stops after that step."""
    shutil.rmtree(home / "run" / "certificates")
    (home / "run" / "report.html").unlink()
    code, out, _ = rerun(home, "--until", "vote")
    assert (code, skipped(out)) == (0, ["train", "vote"])
    assert f"vote: {home / 'run' / 'votes'}" in out
    assert not (home / "run" / "certificates").exists()
    code, _, err = rerun(home, "--until", "votes")
    assert code == 2
    assert "'votes' is none of train, vote, calibrate, certify, report" in err


def test_arms(home):
    """Arms for other noise lie in folders of their own."""
    more = ["--set", "sweep.sigma=[0.25, 0.5]", "--set", "sweep.training_noise=[0]"]
    code, out, err = rerun(home, *more)
    assert code == 0, err
    assert skipped(out) == ["train", "vote", "certify"]
    arms = home / "run" / "arms"
    assert sorted(arm.name for arm in arms.iterdir()) == ["sigma-0.25", "training-noise-0"]
    found = {arm.name: read_certificates(arm / "certificates") for arm in arms.iterdir()}
    assert found["sigma-0.25"].provenance["noise"] == found["sigma-0.25"].provenance["trained_noise"] == "gaussian:0.25"
    assert found["training-noise-0"].provenance["noise"] == "gaussian:0.5"
    assert found["training-noise-0"].provenance["trained_noise"] == "none"
    figures = {path.stem for path in (home / "run" / "figures").iterdir()}
    assert any("noise" in name for name in figures)
    assert any("training" in name for name in figures)
    code, out, _ = rerun(home, *more)
    assert (code, len(skipped(out))) == (0, 10)
    check_report_of_run(home)


TITLED = ["--set", "report.title=A tiny run", "--set", "report.gallery=2", "--set", "report.images=false"]


def check_report_of_run(home):
    """A report made again has the title, gallery, images and command of the last run, and no figure of its arms."""
    run = home / "run"
    code, _, err = rerun(home, *TITLED)
    assert code == 0, err
    page, files = (run / "report.html").read_bytes(), drawn(run)
    assert "figures/noise.pdf" not in files
    code, _, err = command("report", run, "--force")
    assert code == 0, err
    assert (run / "report.html").read_bytes() == page
    assert drawn(run) == files
    text = page.decode()
    assert "<title>A tiny run</title>" in text
    assert "only the 2 weakest of 6 images" in text
    assert "made without images" in text
    assert "multiguard run tiny.yaml --out run" in text.split('id="provenance"')[1]


def drawn(run):
    return {path.relative_to(run).as_posix() for name in ("figures", "tables") for path in (run / name).iterdir()}


def test_fewer_sweeps(home):
    """A report with fewer sweeps leaves nothing of the old one."""
    run = home / "run"
    assert {"figures/n.png", "figures/k.svg", "tables/k.tex"} <= drawn(run)
    for name in ("figures/mine.png", "tables/n.txt"):
        (run / name).write_text("mine")
    code, _, err = rerun(home, "--set", "sweep.n=[]", "--set", "sweep.k=[]")
    assert code == 0, err
    kept = {"figures/mine.png", "tables/n.txt"}
    assert {name.split(".")[0] for name in drawn(run) - kept} == {
        "figures/methods",
        *("tables/methods", "tables/labels"),
    }
    assert kept <= drawn(run)


@pytest.mark.parametrize("change", [["vote.draws=70", "--until", "vote"], ["sweep.sigma=[0.25]", "--until", "train"]])
def test_unfinished_run_report(home, change):
    """A run folder whose certificates are not yet those of its recipe is not reported as a run."""
    before = state(home / "run")["report.html"]
    code, _, err = rerun(home, "--force", "--set", *change)
    assert code == 0, err
    code, _, err = command("report", home / "run", "--force")
    assert (code, err.count("\n")) == (2, 1)
    assert f"multiguard run {home / 'run' / 'recipe.yaml'} --out {home / 'run'}" in err
    assert state(home / "run")["report.html"] == before
    assert find_certificates(home / "run/certificates")[""] == home / "run/certificates"
    code, _, err = rerun(home, "--force", "--until", "certify")
    assert code == 0, err
    assert find_certificates(home / "run")[""] == home / "run/certificates"


def test_recipe_of_skipped_steps(home):
    """The recipe beside skipped steps is the one that skipped them."""
    code, _, err = rerun(home, "--set", "sweep.sigma=[0.25]", "--until", "certify")
    assert code == 0, err
    code, out, err = rerun(home, "--until", "certify")
    assert (code, skipped(out)) == (0, STEPS[:3]), err
    assert "0.25" not in (home / "run/recipe.yaml").read_text()
    assert [*find_certificates(home / "run")] == [""]


def test_edited_model_code(tmp_path, monkeypatch):
    """A model whose code was edited needs new votes."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    own = 'model: {spec: "own_classifier:build", output: logits}\n'
    (tmp_path / "own.yaml").write_text(RECIPE.replace(RECIPE[RECIPE.index("train:") : RECIPE.index("vote:")], own))

    def run(sign, *more):
        code = f"def build(): return lambda images: {sign}images.flatten(1)[:, :10]\n"
        (tmp_path / "own_classifier.py").write_text(code)
        sys.modules.pop("own_classifier", None)
        return command("run", tmp_path / "own.yaml", "--out", tmp_path / "run", "--until", "vote", *more)

    code, _, err = run("")
    assert code == 0, err
    code, out, _ = run("")
    assert (code, skipped(out)) == (0, ["vote"])
    code, _, err = run("-")
    assert code == 2
    assert "code_hash differs" in err
    code, out, err = run("-", "--force")
    assert code == 0, err
    assert list(runs(out)) == ["vote"]


def test_run_of_existing_model(home, tmp_path):
    """A recipe certifies a model that exists."""
    recipe = RECIPE.replace(RECIPE[RECIPE.index("train:") : RECIPE.index("vote:")], f"model: {home / 'run/model'}\n")
    (tmp_path / "given.yaml").write_text(recipe)
    code, out, err = command("run", tmp_path / "given.yaml", "--out", tmp_path / "out", "--until", "certify")
    assert code == 0, err
    assert list(runs(out)) == ["vote", "certify"]
    same = "votes-00000.parquet"
    assert (tmp_path / "out/votes" / same).read_bytes() == (home / "run/votes" / same).read_bytes()


def test_foreign_folder(tmp_path):
    """A folder that is no run is left alone."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.txt").write_text("mine")
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    code, _, err = command("run", tmp_path / "tiny.yaml", "--out", tmp_path, "--force")
    assert code == 2
    assert "is not a run folder; name another with --out" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "tiny.yaml"]


def test_calibrate(home):
    """A section `calibrate` writes a calibration, which the page shows; nothing to promise leaves none."""
    run, section = home / "run", ["--set", "calibrate.radius=0", "--set"]
    code, out, err = rerun(home, *section, "calibrate.recall=0.3")
    assert code == 0, err
    assert "calibrate: On average the returned labels hold at least 30 % of the true labels" in out
    assert skipped(out) == ["train", "vote", "certify"]
    assert "What you can promise" in (run / "report.html").read_text(encoding="utf-8")
    assert rerun(home, *section, "calibrate.recall=0.3", "--until", "calibrate")[1].count("skipped") == 3
    code, out, _ = command("verify", run)
    assert code == 0, out
    code, out, _ = rerun(home, *section, "calibrate.recall=0.9")
    assert code == 0
    assert "calibrate: recall: a promise of 90 % takes at least" in out
    assert not (run / "calibration.json").exists()
    assert "What you can promise" not in (run / "report.html").read_text(encoding="utf-8")
    code, _, err = rerun(home, "--until", "calibrate")
    assert (code, "no section of that name" in err) == (2, True)
