"""From votes to a choice to the certificates of the other images, by the commands as they are printed."""

import re
import shlex

import pytest
from tests.evaluate.votes_cases import KINDS, random_votes, votes_of_kind
from tests.pipeline.tiny_run import command

from multiguard.certify import Threshold, TopK
from multiguard.evaluate import read_certificates, read_tuned
from multiguard.votes import read_votes


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random_votes(tmp_path / "runs/votes", images=20)
    random_votes(tmp_path / "weak/votes", images=20, sigma=0.1)
    votes_of_kind(tmp_path / "sets/votes", images=20, **KINDS["threshold"])
    votes_of_kind(tmp_path / "adaptive/votes", **KINDS["adaptive"])
    votes_of_kind(tmp_path / "unlabelled/votes", **KINDS["unlabelled"])
    return tmp_path


def done(*arguments):
    code, out, err = command(*arguments)
    assert (code, err) == (0, ""), err
    return out


def printed_command(out):
    """The words after `multiguard` in the command that tune prints."""
    return shlex.split(re.search(r"multiguard (certify .*)", out)[1])


@pytest.mark.parametrize("more", [[], ["--set", "method=betting", "--set", "alpha=0.01", "--set", "draws=150"]])
def test_printed_command(home, more):
    """The printed command certifies the other images with the choice, at the same alpha."""
    out = done("tune", "runs/votes", "--k", 6, "--radius", 0.2, *more)
    assert max(map(len, out.splitlines()[:8])) <= 80
    tuned = read_tuned("runs/tuned.json")
    assert f"chosen: k' = {tuned.best.config.rule.k_prime}, k = 6, sigma = 0.5" in out
    assert f"{tuned.best.config.rule.k_prime} " in next(line for line in out.splitlines() if line.endswith("chosen"))
    text = done(*printed_command(out))
    assert f"10 images chose k' = {tuned.best.config.rule.k_prime}, k = 6, and are not certified" in text
    found = read_certificates("runs/certificates")
    whole = read_votes("runs/votes")
    assert not set(found.certificates.ids) & set(tuned.ids)
    assert len(found.certificates.ids) == len(whole) - len(tuned.ids) == 10
    assert found.certificates.config.rule == tuned.best.config.rule
    assert found.certificates.config.alpha == tuned.config.alpha
    assert found.certificates.methods == (
        (tuned.config.method,) if more else ("coupled",)
    )  # joint chooses in less time
    assert found.certificates.config.draws == (150 if more else 200)
    assert found.source["tuned"] == {"left_out": 10, "radius": 0.2}
    assert done(*printed_command(out)) == text  # its work is done
    assert "report.html" in done("report", "runs/certificates")


def test_chosen_model(home):
    """Of two votes folders the command names the better one."""
    out = done("tune", "weak/votes", "runs/votes", "--k", 6, "--radius", 0.2, "--out", "tuned.json")
    assert printed_command(out)[1:] == ["runs/votes", "--tuned", "tuned.json"]
    assert re.search(r"weak/votes +gaussian:0\.1 +1 ", out)
    code, _, err = command("certify", "weak/votes", "--tuned", "tuned.json")
    assert (code, err.count("\n")) == (2, 1)
    assert "was chosen for noise gaussian:0.5, not for that of these votes" in err


def test_tuned_threshold(home):
    """Votes of sets choose t by F1; certify takes the rule from the record."""
    out = done("tune", "sets/votes", "--radius", 0, "--set", "alpha=0.1")
    assert "certified F1 at R = 0" in out
    done(*printed_command(out))
    assert isinstance(read_certificates("sets/certificates").certificates.config.rule, Threshold)


def test_no_image_left(home):
    """Where all images chose, the command leaves the votes open, and these votes are refused."""
    out = done("tune", "runs/votes", "--k", 6, "--radius", 0.2, "--set", "images=50")
    assert "no image is left to certify: vote on others, then multiguard certify VOTES --tuned runs/tuned.json" in out
    code, _, err = command("certify", "runs/votes", "--tuned", "runs/tuned.json")
    assert (code, "all 20 images of these votes chose" in err) == (2, True)


def test_own_folder(home):
    """Certificates of all images stay beside those of the others."""
    out = done("tune", "runs/votes", "--k", 6, "--radius", 0.2)
    k_prime = read_tuned("runs/tuned.json").best.config.rule.k_prime
    done("certify", "runs/votes", "--k", 6, "--k-prime", k_prime)
    assert f"runs/certificates-k-6-k-prime-{k_prime}-tuned" in done(*printed_command(out))
    assert len(read_certificates("runs/certificates").certificates.ids) == 20


def test_two_rules(home):
    """A rule beside the record is refused."""
    done("tune", "runs/votes", "--k", 6, "--radius", 0.2)
    code, _, err = command("certify", "runs/votes", "--tuned", "runs/tuned.json", "--k-prime", 2)
    assert (code, err.count("\n")) == (2, 1)
    assert "is given beside a tuned choice" in err
    assert read_tuned("runs/tuned.json").best.config.rule.k == TopK(6, 1).k
