"""One command from images to the page; run again, nothing is done twice and nothing is lost."""

import json
import re
import shutil
import sys

import pytest
import yaml
from tests.pipeline.tiny_run import RECIPE, command, state
from tests.votes.vote_runs import edit_manifest

from multiguard.evaluate import read_certificates
from multiguard.pipeline import arms, parse_recipe, read_record
from multiguard.pipeline.arms import find_certificates
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
    assert {curve.config.k for curve in read_certificates(run / "certificates").curves} == {2, 3}
    assert {curve.config.draws for curve in read_certificates(run / "certificates").curves} == {30, 60}
    assert "plotly" in (run / "report.html").read_text(encoding="utf-8")
    assert list((run / "figures").iterdir())
    assert list((run / "tables").iterdir())
    record = read_record(run)
    assert list(record.steps) == STEPS
    assert all(step.finished and step.seconds is not None for step in record.steps.values())
    assert all(step.device.endswith("cores") and step.device_memory is None for step in record.steps.values())
    seeds = "--set data.seed=0 --set vote.noise_seed=0"
    assert record.command == f"multiguard run {home / 'tiny.yaml'} --out {run} {seeds}"


def test_score_table(finished):
    """The table is that of the curves."""
    home, out = finished
    found = read_certificates(home / "run" / "certificates")
    for curve in found.curves:
        if curve.config == found.certificates.config and curve.averaging == "mean":
            line = next(line for line in out.splitlines() if line.startswith(f"{curve.method} "))
            assert [float(word.rstrip("%")) for word in line.split()[2:]] == pytest.approx(
                [100 * curve.scores.recall[place] for place in range(0, 61, 10)], abs=0.1
            )
    assert re.search(r"^6 images of digits.test$", out, re.MULTILINE)
    assert "k' = 2, k = 3, n = 60, alpha = 0.05, sigma = 0.5" in out
    assert "none left out" in out
    shown = [line for line in out.splitlines() if str(home) not in line and not line.startswith("vote: warning: ")]
    assert max(map(len, shown)) <= 80


def test_written_recipe(home):
    """The recipe in the run folder is complete and repeats the run."""
    written = (home / "run" / "recipe.yaml").read_text()
    assert parse_recipe(written, "x").train.lr == 0.002
    assert yaml.safe_load(written)["data"]["split"] == "test"
    before = state(home / "run")
    code, out, _ = command("run", home / "run" / "recipe.yaml", "--out", home / "run")
    assert (code, skipped(out)) == (0, STEPS)
    assert state(home / "run") == before


def test_unchanged_rerun(home):
    """A rerun skips every step and touches no file."""
    before = state(home / "run")
    code, out, _ = rerun(home)
    assert (code, skipped(out)) == (0, STEPS)
    assert state(home / "run") == before


def test_other_k_same_votes(home):
    """Another k takes the votes that are there."""
    before = state(home / "run" / "votes")
    code, out, _ = rerun(home, "--set", "certify.k=4", "--until", "certify")
    assert (code, skipped(out)) == (0, ["train", "vote"])
    assert runs(out)["certify"] == "running again: certify.k was 3 and is 4"
    assert state(home / "run" / "votes") == before
    assert read_certificates(home / "run" / "certificates").certificates.config.rule.k == 4


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("sigma=0.25", 'model was made with other inputs: train.noise was "gaussian:0.5" and is "gaussian:0.25"'),
        ("vote.draws=70", "votes was made with other inputs: vote.draws was 60 and is 70"),
        ("data.images=5", "votes was made with other inputs: data.files has changed; data.ids has changed"),
    ],
)
def test_costly_outputs_kept(home, change, told):
    """A model or votes with other inputs are not replaced without --force."""
    before = state(home / "run")
    code, out, err = rerun(home, "--set", change)
    assert code == 2
    assert told in err
    assert "--force" in err
    assert err.count("\n") == 1
    assert "%" not in out
    assert state(home / "run") == before


def test_forced_vote(home):
    """Force replaces them."""
    code, out, err = rerun(home, "--set", "vote.draws=70", "--force", "--until", "vote")
    assert code == 0, err
    assert list(runs(out)) == ["vote"]
    assert read_votes(home / "run" / "votes").provenance.draws == 70
    assert (home / "run" / "model" / "model.json").is_file()


@pytest.mark.parametrize(
    ("harmed", "step"),
    [
        ("votes/votes-00001.parquet", "vote"),
        ("votes/manifest.json", "vote"),
        ("votes/source.json", "vote"),
        ("model/model.safetensors", "train"),
        ("model/model.json", "train"),
        ("certificates/curves.csv", "certify"),
        ("report.html", "report"),
    ],
)
def test_altered_outputs(home, harmed, step):
    """Outputs that are missing or altered are made again."""
    before = state(home / "run")
    if step == "vote":
        (home / "run" / harmed).write_bytes(b"no longer what it was")
    else:
        (home / "run" / harmed).unlink()
    code, out, err = rerun(home, "--until", step)
    assert code == 0, err
    assert runs(out)[step] == f"running again: {harmed} is missing or altered"
    assert set(skipped(out)) >= set(STEPS[: STEPS.index(step)])
    after = state(home / "run")
    assert after.keys() == before.keys()
    again = [name for name in before if name.startswith(("model/model.safe", "votes/votes-", "certificates/curves"))]
    assert {name: after[name][0] for name in again} == {name: before[name][0] for name in again}


def test_interrupted_run(home):
    """A run that was interrupted resumes."""
    run = home / "run"
    whole = (run / "votes" / "votes-00001.parquet").read_bytes()
    record = json.loads((run / "run.json").read_text())
    record["steps"] = {name: record["steps"][name] for name in ("train", "vote")}
    record["steps"]["vote"].update(outputs=None, seconds=None)
    (run / "run.json").write_text(json.dumps(record))
    edit_manifest(run / "votes", lambda manifest: manifest.update(shards=None))
    (run / "votes" / "votes-00001.parquet").unlink()
    first = (run / "votes" / "votes-00000.parquet").stat().st_mtime_ns
    code, out, err = rerun(home, "--until", "vote")
    assert code == 0, err
    assert runs(out)["vote"] == "resuming after an interruption"
    assert (run / "votes" / "votes-00000.parquet").stat().st_mtime_ns == first
    assert (run / "votes" / "votes-00001.parquet").read_bytes() == whole


def test_until(tmp_path, home):
    """Until stops after that step."""
    shutil.rmtree(home / "run" / "certificates")
    (home / "run" / "report.html").unlink()
    code, out, _ = rerun(home, "--until", "vote")
    assert (code, skipped(out)) == (0, ["train", "vote"])
    assert f"vote.{home / 'run' / 'votes'}" in out
    assert not (home / "run" / "certificates").exists()
    code, _, err = rerun(home, "--until", "votes")
    assert code == 2
    assert "'votes' is none of train, vote, certify, report" in err


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
    assert f"multiguard run {home / 'tiny.yaml'} --out {run}" in text.split('id="provenance"')[1]


def drawn(run):
    return {path.relative_to(run).as_posix() for name in ("figures", "tables") for path in (run / name).iterdir()}


def test_fewer_sweeps(home):
    """A report with fewer sweeps leaves nothing of the old one."""
    run = home / "run"
    assert {"figures/n.png", "figures/k.svg", "tables/n.md", "tables/k.tex"} <= drawn(run)
    for name in ("figures/mine.png", "tables/n.txt"):
        (run / name).write_text("mine")
    code, _, err = rerun(home, "--set", "sweep.n=[]", "--set", "sweep.k=[]")
    assert code == 0, err
    kept = {"figures/mine.png", "tables/n.txt"}
    assert {name.split(".")[0] for name in drawn(run) - kept} == {
        *("figures/methods", "figures/labels"),
        *("tables/methods", "tables/labels"),
    }
    assert kept <= drawn(run)


def test_report_options(home):
    """Options of the report command override the recipe."""
    code, _, err = rerun(home, *TITLED, "--until", "certify")
    assert code == 0, err
    code, _, err = command("report", home / "run", "--force", "--title", "Another", "--gallery", 0)
    assert code == 0, err
    text = (home / "run/report.html").read_text(encoding="utf-8")
    assert "<title>Another</title>" in text
    assert "only the 0 weakest of 6 images" in text


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


def test_foreign_certificates_report(home):
    """A run whose certificates were replaced by hand is not reported as a run."""
    code, _, err = command("certify", home / "run/votes", "--k", 2, "--k-prime", 1, "--force")
    assert code == 0, err
    code, _, err = command("report", home / "run", "--force")
    assert (code, err.count("\n")) == (2, 1)
    assert "certificates" in err


@pytest.mark.parametrize("several", [False, True])
def test_certificates_replaced_after_the_check(home, monkeypatch, several):
    """Certificates that come in the place of a run's own, once these were found intact, are not taken for the run's."""
    code, _, err = command("certify", home / "run/votes", "--k", 2, "--k-prime", 1, "--out", home / "other")
    assert code == 0, err
    check = arms.altered_outputs

    def check_then_replace(run, step):
        altered = check(run, step)
        shutil.copytree(home / "other", home / "run/certificates", dirs_exist_ok=True)
        return altered

    monkeypatch.setattr(arms, "altered_outputs", check_then_replace)
    runs = [f"one={home / 'run'}", f"other={home / 'other'}"] if several else [home / "run", "--force"]
    code, _, err = command("report", *runs)
    assert (code, err.count("\n")) == (2, 1)
    assert "replaced" in err


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
    assert "model.code has changed" in err
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


def test_record_outside(home, tmp_path):
    """A record that points outside is refused."""
    (tmp_path / "victim").write_text("whole")
    record = json.loads((home / "run" / "run.json").read_text())
    record["steps"]["report"]["outputs"]["../../victim"] = "0" * 64
    (home / "run" / "run.json").write_text(json.dumps(record))
    code, _, err = rerun(home)
    assert code == 2
    assert "lies outside the run folder" in err
    assert (tmp_path / "victim").read_text() == "whole"
