"""The noise seed: random, recorded, kept by whatever resumes, and named by the commands that a report prints."""

import html
import re
import shlex

import pytest
import torch
import yaml
from tests.pipeline.tiny_run import command, state

from multiguard.run.arms import read_record
from multiguard.votes import read_votes
from multiguard.votes.folder import with_seeds

RECIPE = f"""
data: {{name: digits, images: 5, size: 16, seed: 4}}
sigma: 0.5
model: {{spec: "{__name__}:linear", output: logits}}
vote: {{draws: 20, shard_images: 2, device: cpu}}
certify: {{k: 3, k_prime: 2, alpha: 0.05, methods: [joint]}}
sweep: {{sigma: [0.25]}}
"""
MODEL = ["--model", f"{__name__}:linear", "--output", "logits", "--device", "cpu"]
VOTE = ["vote", *MODEL, "--data", "digits", "--images", 5, "--size", 16, "--sigma", 0.5, "--set", "shard_images=2"]


def linear():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 10))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty current folder with a recipe beside it."""
    (tmp_path / "mine.yaml").write_text(RECIPE)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def done(*arguments):
    code, out, err = command(*arguments)
    assert code == 0, err
    return out


def run(*more):
    return command("run", "../mine.yaml", "--out", "run", "--until", "vote", *more)


def noise_seeds(folder="run"):
    return [read_votes(f"{folder}/{arm}votes").provenance.noise_seed for arm in ("", "arms/sigma-0.25/")]


def votes_of(folder):
    """The provenance and all votes of a folder."""
    votes = read_votes(folder)
    return votes.provenance, [votes.ranked(position, adaptive=True).tolist() for position in range(len(votes))]


def commands_on(page):
    text = page.read_text(encoding="utf-8")
    (found,) = re.findall("<pre[^>]*><code>(multiguard .*?)</code>", text, re.DOTALL)
    return html.unescape(found).splitlines()


def repeat(home, monkeypatch, commands):
    """Run these command lines in another folder."""
    (home / "there").mkdir()
    monkeypatch.chdir(home / "there")
    for line in commands:
        assert shlex.split(line)[0] == "multiguard"
        done(*shlex.split(line)[1:])


def test_run_noise_seed(home):
    """A run without a noise seed draws one for all its arms and writes it into its recipe; each run has its own."""
    assert run()[0] == 0
    main, arm = noise_seeds()
    assert main == arm == yaml.safe_load((home / "here/run/recipe.yaml").read_text())["vote"]["noise_seed"]
    done("run", "../mine.yaml", "--out", "other", "--until", "vote")
    assert noise_seeds("other")[0] != main
    assert read_votes("other/votes").ids == read_votes("run/votes").ids


def test_run_again(home):
    """The same votes stand with no noise seed and with the recorded one; another one is refused with both numbers."""
    assert run()[0] == 0
    before, (drawn, _) = state(home / "here/run/votes"), noise_seeds()
    for more in ([], ["--set", f"vote.noise_seed={drawn}"]):
        code, out, err = run(*more)
        assert (code, out.count("skipped (unchanged)")) == (0, 2), err
    code, _, err = run("--set", f"vote.noise_seed={drawn ^ 1}")
    assert (code, "holds the votes of another run: noise_seed differs" in err) == (2, True), err
    assert state(home / "here/run/votes") == before


def test_run_resumed(home):
    """A run that lost a shard makes it again with its own noise, bit for bit."""
    assert run()[0] == 0
    before = [votes_of("run/votes"), votes_of("run/arms/sigma-0.25/votes")]
    for folder in ("run/votes", "run/arms/sigma-0.25/votes"):
        (home / "here" / folder / "votes-00001.parquet").unlink()
    assert run()[0] == 0
    assert [votes_of("run/votes"), votes_of("run/arms/sigma-0.25/votes")] == before


def test_run_with_other_images(home):
    """Other images get noise that is not known yet, in every arm; other draws on the same images keep the seed."""
    assert run()[0] == 0
    (drawn, _), other = noise_seeds(), ["--set", "data.seed=5", "--force"]
    assert run("--set", "vote.draws=30")[0] == 0
    assert noise_seeds() == [drawn, drawn]
    code, out, err = run(*other)
    assert (code, "vote: running" in out) == (0, True), err
    main, arm = noise_seeds()
    assert main == arm != drawn
    assert yaml.safe_load((home / "here/run/recipe.yaml").read_text())["vote"]["noise_seed"] == main
    assert read_record(home / "here/run").command.endswith(f" --set vote.noise_seed={main}")
    assert run(*other)[1].count("skipped (unchanged)") == 2
    assert run("--set", "data.seed=6", "--set", f"vote.noise_seed={main}", "--force")[0] == 0
    assert noise_seeds() == [main, main], "a given one is taken"


def test_printed_run_command(home, monkeypatch):
    """The command on the page of a run names both seeds, and makes the same votes elsewhere, in every arm."""
    done("run", "../mine.yaml", "--out", "run")
    (line,) = printed = commands_on(home / "here/run/report.html")
    found = [votes_of("run/votes"), votes_of("run/arms/sigma-0.25/votes")]
    assert line.endswith(f" --set data.seed=4 --set vote.noise_seed={found[0][0].noise_seed}")
    repeat(home, monkeypatch, printed)
    assert [votes_of("run/votes"), votes_of("run/arms/sigma-0.25/votes")] == found


def test_printed_vote_command(home, monkeypatch):
    """The commands on the page of a vote name both seeds, and make the same votes elsewhere."""
    done(*VOTE, "--draws", 20, "--out", "votes")
    done("certify", "votes", "--k", 3, "--k-prime", 2, "--out", "certificates")
    done("report", "certificates", "--out", "page.html")
    printed, found = commands_on(home / "here/page.html"), votes_of("votes")
    assert printed[0].endswith(f" --draws 20 --out votes --seed 0 --noise-seed {found[0].noise_seed}")
    repeat(home, monkeypatch, printed)
    assert votes_of("votes") == found
    assert commands_on(home / "there/page.html") == printed


def test_resumed_vote(home):
    """A vote resumes with the noise seed of its folder, also where the seed of the sample is typed."""
    asked = [*VOTE, "--draws", 20, "--out", "votes"]
    done(*asked)
    before = votes_of("votes")
    for more in ([], ["--seed", 0]):
        (home / "here/votes/votes-00001.parquet").unlink()
        done(*asked, *more)
        assert votes_of("votes") == before
    code, _, err = command(*asked, "--noise-seed", 7)
    assert (code, "holds the votes of another run: noise_seed differs" in err) == (2, True), err
    code, _, err = command(*asked, "--seed", 7)
    assert (code, "--noise-seed" in err, "holds the votes of another run" in err) == (2, False, True), err


@pytest.mark.parametrize(
    ("line", "added"),
    [
        ("multiguard vote --out 'my votes' --noise-seed=7", " --seed 3"),
        ("multiguard vote --seed=3 --noise-seed 7", ""),
        ("multiguard run x.yaml --set vote.noise_seed=7 --set data.seed=3", ""),
        ("multiguard run x.yaml --set vote.noise_seed=null", " --set data.seed=3 --set vote.noise_seed=7"),
        ("multiguard certify runs/votes", ""),
        ("", ""),
    ],
)
def test_named_seeds(line, added):
    """A command is completed by the seeds that it leaves open, in the words that it has for them."""
    assert with_seeds(line, seed=3, noise_seed=7) == line + added
