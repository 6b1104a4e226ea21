"""The results page is made of run folders by the builder, and says of other statistics what they are."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from benchmarks.results import blocks
from benchmarks.results.__main__ import digits_blocks
from benchmarks.results.runs import open_run
from benchmarks.results.statistics import Images, claims_beyond, false_claim_chances, statistics
from multiguard.certify.group import Setting
from tests.certify import literal
from tests.certify.cases import random_ranked
from tests.pipeline.tiny_run import command, state

from multiguard.report.rounding import percent_value

ROOT = Path(__file__).parents[2]
PUBLIC, KINDLY = "public code: n k' trials, without the cap", "Eq. 5 as printed, read kindly (not sound)"


def test_page_blocks():
    """A block is replaced and nothing else."""
    page = "a\n<!-- results: x -->\nold\n<!-- end: x -->\nb\n<!-- results: y -->\nkept\n<!-- end: y -->\n"
    assert blocks.names(page) == ["x", "y"]
    assert blocks.filled(page, {"x": "new | \\1\n"}) == page.replace("old", "new | \\1")
    assert blocks.filled(page, {}) == page
    with pytest.raises(ValueError, match="no block 'z'; it has x, y"):
        blocks.filled(page, {"z": ""})


def test_digits_blocks(home, tmp_path):
    """A run without certificates fills its part of the page."""
    run = home / "run"
    shutil.rmtree(run / "certificates")
    opened = open_run(run)
    made = digits_blocks(opened, tmp_path, "abc")
    assert set(made) == {f"digits-{name}" for name in ("facts", "methods", "k", "n", "cost")}
    assert set(made) <= set(blocks.names((ROOT / "docs" / "results.md").read_text(encoding="utf-8")))
    assert sorted(path.name for path in tmp_path.glob("images/results/*")) == [
        f"digits-{name}.svg" for name in ("k", "methods", "n")
    ]
    recall = opened.study.main_curve("paper", "mean").scores.recall
    shown = [percent_value(float(recall[place])) for place in (0, 10, 20, 30, 40, 50)]
    assert f"| paper | recall | {' | '.join(shown)} |" in made["digits-methods"]
    assert "| commit | abc |" in made["digits-facts"]
    before = state(run)
    open_run(run)
    assert state(run) == before
    assert command("run", home / "tiny.yaml", "--out", run)[1].count("skipped (unchanged)") == 4


def public_size(counts, labels, *, draws, k, k_prime, alpha, r):
    """Theorem 1 as the public code asks it, term by term: n k' trials, no cap."""
    trials, level = draws * k_prime, alpha / len(counts)
    a = sorted((literal.lower(counts[i], trials, level) for i in labels), reverse=True)
    b = sorted((literal.upper(n, trials, level) for j, n in enumerate(counts) if j not in labels), reverse=True)
    for e in range(min(len(a), k), 0, -1):
        s = k - e + 1
        left = [k_prime / u * literal.down(sum(a[e - 1 : e - 1 + u]) / k_prime, r) for u in range(1, len(a) - e + 2)]
        right = [k_prime / v * literal.up(sum(b[s - v : s]) / k_prime, r) for v in range(1, s + 1)]
        if max(literal.down(a[e - 1], r), *left) > min(literal.up(b[s - 1], r), *right):
            return e
    return 0


@pytest.mark.parametrize("seed", range(4))
def test_public_code_formula(seed):
    """The public codes statistics are those of its formula."""
    asked = {"draws": 300, "k": 3, "k_prime": 2, "alpha": 0.01}
    ranked = random_ranked(np.random.default_rng(seed), labels=12, depth=4, draws=300, spread=3.0)
    counts = np.bincount(ranked[:, :2].ravel(), minlength=12)
    labels = [int(label) for label in np.argsort(-counts)[:3]]
    radii = Images([ranked], [labels], 12, 1.0).radii(Setting(3, 2, 0.01), statistics(2)[PUBLIC])[0]
    proved = [float(r) for r in radii if r > 0]
    assert proved
    for r in proved:
        assert public_size(counts.tolist(), labels, **asked, r=r * (1 - 1e-6)) >= np.sum(radii >= r)
        assert public_size(counts.tolist(), labels, **asked, r=r * (1 + 1e-6)) < np.sum(radii >= r)


def test_printed_bound():
    """Only the printed bound claims more often than alpha."""
    rival, alpha = np.geomspace(1e-4, 0.4, 2000), 0.05
    worst = {
        name: false_claim_chances(solver, draws=120, alpha=alpha, rival=rival).max()
        for name, solver in statistics(1).items()
    }
    assert all((chance > alpha) == ("not sound" in name) for name, chance in worst.items()), worst
    assert worst[KINDLY] < 0.1


def test_claims_beyond():
    """Claims beyond are counted label by label."""
    more, right = [np.array([np.inf, 0.6, 0.4])], [np.array([0.5, 0.4, -np.inf])]
    assert [claims_beyond(more, right, radius) for radius in (0.0, 0.4, 0.5, 0.7)] == [1, 1, 1, 1]
