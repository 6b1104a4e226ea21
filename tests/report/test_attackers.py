"""What people see of an attacker: its name, its unit and its size, and never two attackers on one axis."""

import json
import re

import pytest
from tests.report.studies import make_run

from multiguard.certify import BandAblation, Gaussian, PixelAblation, Uniform
from multiguard.errors import InvalidInputError
from multiguard.report import ReportConfig, Study, compare_runs, write_comparison, write_page
from multiguard.report.words import closing_sentence, config_words

NOISES = [Gaussian(0.5), Uniform(0.5), PixelAblation(10, 64), BandAblation(2, 12)]
UNITS = {
    "l2-norm": "R is the l2-norm of the perturbation; a pixel from black to white has 1.73",
    "l1-norm": "R is the l1-norm of the perturbation; a pixel from black to white has 3",
    "pixels": "R pixels may change, any of 64 and in any way; one is 1.5 % of the image",
    "patch": "R is the side of one patch, anywhere, any content; images are 12 pixels wide",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    home = tmp_path_factory.mktemp("attackers")
    return {noise.attacker: make_run(home / noise.attacker, noise=noise) for noise in NOISES}


def test_units():
    """Every attacker says what R measures, and how large that is."""
    for noise in NOISES:
        assert noise.unit_words == UNITS[noise.attacker]
        assert len(noise.unit_words) <= 80, "a line of a terminal"


def test_threats():
    """What the attacker may do, with a number or with R."""
    assert [noise.threat_words(3.0) for noise in NOISES] == [
        "any perturbation of \u2113\u2082-norm up to R = 3",
        "any perturbation of \u2113\u2081-norm up to R = 3",
        "any change of at most 3 pixels",
        "any change inside one 3 x 3 patch, wherever it is",
    ]
    assert BandAblation(2, 12).threat_words() == "any change inside one R x R patch, wherever it is"


def test_page(runs, tmp_path):
    """The page names the attacker and what it may do at every radius; bands need no probability."""
    for noise in NOISES:
        study, path = Study(runs[noise.attacker]), tmp_path / f"{noise.kind}.html"
        write_page(study, path)
        text = path.read_text()
        data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])
        assert UNITS[noise.attacker] in text
        assert f"labels per {'band' if noise.kind == 'band' else 'draw'}, k = " in text
        assert data["axis"] == noise.axis_label
        assert data["threats"] == [noise.threat_words(radius) for radius in data["grid"]]
        assert data["threats"][data["start"]] in text
        assert ("error probability</dt><dd>none" in text) == (noise.kind == "band")
        assert ("with probability at least" in text) == (noise.kind != "band")
        for choice, _ in noise.look_words(data["grid"][data["start"]]).values():
            assert choice in text


def test_closing_sentence(runs):
    """The closing sentence and the parameters have the unit."""
    assert closing_sentence(runs["patch"]).startswith("At R = 3 (any 3 x 3 patch) at least ")
    assert closing_sentence(runs["pixels"]).startswith("At R = 2 (any 2 pixels) at least ")
    assert closing_sentence(runs["l1-norm"]).startswith("At R = 0.25 (l1-norm) at least ")
    assert config_words(runs["patch"]) == {"k_prime": "k\u2032 = 2", "k": "k = 5", "noise": "bands of 2 of 12 columns"}


def test_mixed_attackers(runs):
    """Runs of two attackers are never compared: the same R is not the same attack."""
    with pytest.raises(InvalidInputError, match=r"different attackers .*: this run pixels, other patch"):
        Study(runs["pixels"], {"other": runs["patch"]})
    with pytest.raises(InvalidInputError, match=r"different attackers .*: one l2-norm, two l1-norm"):
        compare_runs(ReportConfig(), {"one": runs["l2-norm"], "two": runs["l1-norm"]})


def test_comparison(runs, tmp_path):
    """Runs of one attacker are compared in its unit, and the records name it."""
    board = compare_runs(ReportConfig(), {"one": runs["patch"], "two": runs["patch"]})
    assert board.radius == (0.0, 2.0, 3.0)
    write_comparison(board, tmp_path / "comparison.html")
    records = list(board.records())
    assert {(each["noise"], each["attacker"]) for each in records} == {("band:2/12", "patch")}
    text = (tmp_path / "comparison.html").read_text()
    assert UNITS["patch"] in text
    assert "Patch side <i>R</i>" in text
    assert not any("draws" in note or "α" in note for note in board.notes)
