"""Crashes, races and files of others: every command that writes leaves one consistent set, and only its own."""

import csv
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import torch
from PIL import Image
from tests.crash import crash_states, names_and_sizes, put
from tests.evaluate.attack_cases import top_k_attacks
from tests.evaluate.votes_cases import random_votes
from tests.pipeline.cheap_commands import MODEL, Commands
from tests.pipeline.tiny_run import command, state

from multiguard.attack import outcomes as attack_outcomes
from multiguard.errors import FolderInUseError
from multiguard.evaluate import CertifyConfig, certify_votes, read_attacks, read_certificates
from multiguard.io.files import write_atomically
from multiguard.report import reports
from multiguard.votes import read_votes

MEMORY = Path("/dev/shm")
COMMANDS = ["certify", "report", "attack", "vote"]
SLOW = ["report", "compare", "run"]  # a minute or more of crashes


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Votes, and two sets of certificates made from them."""
    home = tmp_path_factory.mktemp("inputs")
    random_votes(home / "votes", images=2, draws=20)
    random_votes(home / "more", images=20, draws=20)
    for k in (3, 4):
        certify_votes(CertifyConfig(k=k, k_prime=2), read_votes(home / "votes"), out=home / f"certificates-{k}")
    return home


@pytest.fixture
def memory_folder():
    """A folder in memory if possible: only the order of the changes matters."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder).resolve()


@pytest.fixture
def commands(inputs, monkeypatch):
    """Each command by name: writes the result of config k into a folder. Figures, attacks and choices are cheap."""

    def two_files(kind):
        def write(made, folder, **_):
            folder.mkdir()
            for name in ("one", "two"):
                write_atomically(folder / f"{name}.{kind}", lambda file: file.write(repr(made).encode()))

        return write

    def k_of(study):
        return study.main.certificates.config.rule.k

    monkeypatch.setattr(reports, "draw_figures", lambda study, folder: two_files("png")(k_of(study), folder))
    monkeypatch.setattr(reports, "write_tables", lambda study, folder: two_files("csv")(k_of(study), folder))
    monkeypatch.setattr(attack_outcomes, "draw_attack", lambda attacks, folder: None)
    monkeypatch.setattr(attack_outcomes, "_prepare", lambda config, *_: (config, None, None))
    monkeypatch.setattr(attack_outcomes, "attack_results", lambda *_: top_k_attacks())

    made = Commands(inputs)
    return {name: getattr(made, name) for name in (*COMMANDS, "calibrate", "compare", "run")}


def contents(out):
    """The files of a finished result, by name; no partial file, no lock and no private folder is left."""
    paths = [path for path in out.rglob("*") if path.name not in ("figures", "tables")]
    assert not [path for path in paths if path.name.endswith((".part", ".lock"))]
    files = {path.relative_to(out).as_posix(): path for path in paths if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items()}


def check_consistent(out):
    """What a reader finds is of one result: a file made from another never lies beside it."""
    if (out / "certificates.parquet").exists():
        k = read_certificates(out).certificates.config.rule.k
        if (out / "curves.csv").exists():
            rows = csv.DictReader((out / "curves.csv").read_text().splitlines())
            assert {int(row["k"]) for row in rows} == {k}
    if (out / "attack.parquet").exists():
        read_attacks(out)
    made = [path for name in ("figures", "tables") for path in (out / name).glob("[!.]*") if path.is_file()]
    assert len({path.read_text() for path in made}) <= 1
    if made:
        assert f"k = {made[0].read_text()}" in (out / "report.html").read_text()


@pytest.mark.parametrize("older", [False, True], ids=["new", "replaced"])
@pytest.mark.parametrize(
    "name",
    [*("certify", "attack", "calibrate"), *(pytest.param(slow, marks=pytest.mark.soak) for slow in SLOW)],
)
def test_every_crash_state(memory_folder, commands, monkeypatch, name, older):
    """What a crash or a power cut leaves is of one result, and the same command ends with the same files."""
    work, complete, before = commands[name], memory_folder / "complete", memory_folder / "before"
    work(complete, 3)
    before.mkdir()
    if older:
        work(before / "out", 4)
    for number, left in enumerate(crash_states(monkeypatch, before, lambda: work(before / "out", 3, force=older), 30)):
        out = put(memory_folder / str(number), left) / "out"
        if out.exists():
            check_consistent(out)
        work(out, 3, force=older)
        assert contents(out) == contents(complete), names_and_sizes(left)


READERS = {
    "models": ("models",),
    "vote": ("vote", "--dry-run", "--model", MODEL, "--data", "digits", "--images", 4, "--size", 16, "--sigma", 0.5),
    "predict": ("predict", "a.png", "--model", MODEL, "--labels", "labels.txt", "--size", 16, "--sigma", 0.5),
}


@pytest.mark.parametrize("name", READERS)
def test_nothing_written(tmp_path, monkeypatch, name):
    """Commands that only look leave every folder as it was."""
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (16, 16)).save("a.png")
    Path("labels.txt").write_text("\n".join(map(str, range(10))))
    before = state(tmp_path)
    code, _, err = command(*READERS[name])
    assert code == 0, err
    assert state(tmp_path) == before


def ten_scores():
    """A classifier of ten labels."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 10))


class Blocked:
    """Work in a thread, which waits before it moves a file of this name until it may go on."""

    def __init__(self, monkeypatch, work, at) -> None:
        self._reached, self._go, move = threading.Event(), threading.Event(), os.replace
        self._thread = threading.Thread(target=self._run, args=(work,))
        self.error = None

        def replace(source, target, **more):
            if threading.current_thread() is self._thread and Path(target).name == at:
                self._reached.set()
                self._go.wait(60)
            return move(source, target, **more)

        monkeypatch.setattr(os, "replace", replace)
        self._thread.start()
        assert self._reached.wait(60)

    def _run(self, work):
        try:
            work()
        except OSError as error:
            self.error = error

    def finish(self):
        self._go.set()
        self._thread.join(60)


HEADS = {
    "certify": "certificates.parquet",
    "report": "report.html",
    "attack": "attack.parquet",
    "vote": "manifest.json",
}
LAST = {"certify": "curves.csv", "report": "two.csv", "attack": "attack.tex"}


@pytest.mark.parametrize("name", COMMANDS)
def test_two_writers(tmp_path, commands, monkeypatch, name):
    """The second of two commands in one folder is refused while the first one writes."""
    work = commands[name]
    first = Blocked(monkeypatch, lambda: work(tmp_path, 3), HEADS[name])
    with pytest.raises(FolderInUseError):
        work(tmp_path, 4, force=True)
    first.finish()
    check_consistent(tmp_path)
    before = state(tmp_path)
    work(tmp_path, 3)
    assert state(tmp_path).keys() == before.keys()


SECOND = """
import os, sys
from pathlib import Path
from multiguard.evaluate import CertifyConfig, certify_votes
from multiguard.votes import read_votes

move = os.replace

def replace(source, target, **more):
    if Path(target).name == "certificates.parquet":
        print("blocked", flush=True)
        sys.stdin.readline()
    return move(source, target, **more)

os.replace = replace
certify_votes(CertifyConfig(k=3, k_prime=2, alpha=0.4), read_votes(sys.argv[1]), out=sys.argv[2])
"""


def test_two_processes(inputs, tmp_path):
    """No interleaving of two processes leaves the radii of one alpha under another."""
    asked = [sys.executable, "-c", SECOND, inputs / "votes", tmp_path / "out"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(list(map(str, asked)), env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)
    assert process.stdout.readline() == "blocked\n"
    typed = ["certify", inputs / "votes", "--k", 3, "--k-prime", 2, "--alpha", 1e-9, "--out", tmp_path / "out"]
    code, _, err = command(*typed, "--force")
    assert (code, "another run is writing into " in err) == (2, True), err
    process.communicate("go on\n", timeout=60)
    assert process.returncode == 0
    assert read_certificates(tmp_path / "out").certificates.config.alpha == 0.4
    code, _, err = command(*typed, "--force")
    assert code == 0, err
    again = certify_votes(CertifyConfig(k=3, k_prime=2, alpha=1e-9), read_votes(inputs / "votes"))
    for one, other in zip(
        read_certificates(tmp_path / "out").certificates.radii["joint"],
        again.certificates.radii["joint"],
        strict=True,
    ):
        assert one.tolist() == other.tolist()


# ---------------------------------------------------------------------------------------- files of somebody else

TRAIN = ["--data", "digits", "--model", "cnn:2", "--size", 16, "--images", 8, "--set", "val_images=8", "--epochs", 0]
VOTE = ["--model", MODEL, "--output", "logits", "--size", 16, "--sigma", 0.5, "--data", "digits"]


@pytest.fixture
def typed(inputs, tmp_path):
    """Each command as it is typed, with the folder to write to."""
    return {
        "certify": ["certify", inputs / "votes", "--k", 3, "--k-prime", 2],
        "attack": ["attack", inputs / "certificates-3"],
        "train": ["train", *TRAIN],
        "vote": ["vote", *VOTE, "--images", 2, "--draws", 4],
        "run": ["run", "digits"],
    }


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("certify", "curves.csv"),
        ("certify", "certificates.parquet"),
        ("attack", "attack.csv"),
        ("attack", "attack.parquet"),
        ("train", "model.safetensors"),
        ("train", "curve.png"),
        ("train", "log.jsonl"),
        ("train", "state/last.safetensors"),
        ("train", "model.json"),
        ("vote", "manifest.json"),
        ("vote", "source.json"),
        ("vote", "votes-00000.parquet"),
        ("run", "report.html"),
    ],
)
def test_foreign_file_in_the_way(typed, tmp_path, name, file, force):
    """A file of somebody else that has the name of one of ours is never replaced or removed."""
    path = tmp_path / "out" / file
    path.parent.mkdir(parents=True)
    path.write_text('{"mine": 1}')
    code, _, err = command(*typed[name], "--out", tmp_path / "out", *force)
    assert (code, err.count("\n")) == (2, 1), err
    assert path.name in err
    assert [found.read_text() for found in (tmp_path / "out").rglob("*") if found.is_file()] == ['{"mine": 1}']


@pytest.mark.parametrize("name", ["certify", "train", "vote", "run", "attack"])
def test_foreign_files_beside(typed, tmp_path, name):
    """A folder that holds something else is not written to without --force."""
    (tmp_path / "photo.jpg").write_text("mine")
    code, _, err = command(*typed[name], "--out", tmp_path)
    assert (code, "holds photo.jpg, which is not of this command; --force writes next to it" in err) == (2, True), err
    assert list(tmp_path.iterdir()) == [tmp_path / "photo.jpg"]


@pytest.mark.parametrize("name", ["certify", "train", "vote"])
def test_forced_beside(typed, tmp_path, name):
    """With --force a command writes beside other files, which stay; then the folder is its own."""
    (tmp_path / "photo.jpg").write_text("mine")
    code, _, err = command(*typed[name], "--out", tmp_path, "--force")
    assert code == 0, err
    code, _, err = command(*typed[name], "--out", tmp_path)
    assert code == 0, err
    assert (tmp_path / "photo.jpg").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "link"),
    [
        *((name, ".multiguard.lock") for name in ("certify", "train", "vote", "run", "attack")),
        *(("train", link) for link in ("state", "curve.png", "model.safetensors")),
    ],
)
def test_links(typed, tmp_path, name, link):
    """No link in the folder leads a writer out of it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / link).symlink_to(tmp_path / "mine" if link == "state" else tmp_path / "mine" / "file")
    code, _, err = command(*typed[name], "--out", tmp_path / "out", "--force")
    assert (code, err.count("\n"), link in err) == (2, 1, True), err
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["mine"]


def test_repeated_certify(typed, tmp_path):
    """The same command finds its work done; another config needs --force."""
    code, said, err = command(*typed["certify"], "--out", tmp_path / "out")
    assert code == 0, err
    before = state(tmp_path)
    assert command(*typed["certify"], "--out", tmp_path / "out") == (0, said, "")
    assert state(tmp_path) == before
    code, _, err = command(*typed["certify"], "--alpha", 0.1, "--out", tmp_path / "out")
    assert (code, "holds certificates already, made with other settings; --force" in err) == (2, True), err


def test_arguments_before_folders(inputs, tmp_path):
    """A mistake in an option is named before anything about folders; a votes folder that is missing is named."""
    (tmp_path / "photo.jpg").write_text("mine")
    code, _, err = command("certify", inputs / "votes", "--k", 3, "--out", tmp_path)
    assert (code, "photo.jpg" not in err, "--k-prime is missing" in err) == (2, True, True), err
    code, _, err = command("certify", tmp_path / "gone", "--k", 3, "--k-prime", 2, "--out", tmp_path)
    assert (code, f"{tmp_path / 'gone'} does not exist; name a votes folder" in err) == (2, True), err
