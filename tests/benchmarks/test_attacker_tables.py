"""The tables of other attackers: every number is what the votes prove, rounded down."""

import numpy as np
import pytest
from tests.evaluate.votes_cases import random_votes

from benchmarks import attackers
from multiguard.certify import BandAblation, PixelAblation, Threshold, Uniform
from multiguard.evaluate import CertifyConfig, Scores, curves, make_certificates

BANDS = BandAblation(3, 24)


def cells(table):
    """The rows of a Markdown table by their first cell."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {row[0]: row[1:] for row in rows}


@pytest.fixture(scope="module")
def votes(tmp_path_factory):
    return random_votes(tmp_path_factory.mktemp("bands"), draws=BANDS.columns, noise=BANDS)


def test_rules(votes, monkeypatch):
    """The table of rules has the certified scores of the library."""
    monkeypatch.setattr(attackers, "TOP_K", ((2, 3),))
    monkeypatch.setattr(attackers, "SIDES", (0, 2, 32))
    every = list(attackers.top_k_candidates(votes))
    found = make_certificates(CertifyConfig(3, 2), votes)
    mean, pooled = (each.scores for each in curves(found, [0, 2, 32]))
    heads, (row,) = attackers.rules_table(every)
    assert len(heads) == len(row) == 8
    assert row.pop(0) == "k' = 2, k = 3"
    for text, value in zip(row[:3], (mean.recall[0], mean.precision[0], mean.recall[1]), strict=True):
        assert 0 <= 100 * value - float(text) < 0.1
    assert every[0].scores["pooled"].precision.tolist() == pooled.precision.tolist()


def test_sets(votes, monkeypatch):
    """Ranked votes are sets of k' labels, too."""
    monkeypatch.setattr(attackers, "RANKS", (2,))
    monkeypatch.setattr(attackers, "SHARES", (0.4,))
    (one,) = attackers.set_candidates(votes, [])
    hits = [attackers._hits(row.ranked, 2, votes) for row in votes]
    assert all(np.all(each.sum(axis=1) == 2) for each in hits)
    expected = attackers.certified_scores(votes, hits, Threshold(0.4), "enumerated", attackers.SIDES)
    assert one.name == "k' = 2, t = 0.4"
    assert one.scores["mean"].recall.tolist() == expected["mean"].recall.tolist()


def test_pairs(monkeypatch):
    """At each recall the rule of largest precision among those that reach it, or none."""
    monkeypatch.setattr(attackers, "PATCHDEMUX", {0.5: 0.5, 0.75: 0.22})

    def one(name, recall, precision):
        values = [np.full(len(attackers.SIDES), value) for value in (precision, recall, 0, 0, 0)]
        scores = Scores(np.array(attackers.SIDES), *values, images=1, without_labels=0)
        return attackers.Candidate(name, {"pooled": scores})

    rows = cells(attackers.pairs_table([one("a", 0.6, 0.2), one("b", 0.5, 0.3), one("c", 0.4, 0.9)]))
    assert rows["50%"] == ["b", "50.0", "30.0", "about 50%"]
    assert rows["75%"] == ["none", "", "", "about 22%"]


def test_l1(tmp_path):
    """A row per method; norms are said in words."""
    run = random_votes(tmp_path, draws=40, noise=Uniform(1.0))
    rows = cells(attackers.l1_table(run, tmp_path))
    assert next(iter(rows)) == "method"
    assert set(attackers.L1_METHODS) < set(rows)
    assert "one pixel by 16 % of its range" in (tmp_path / "results" / "attackers-l1.csv").read_text()
    assert attackers.share_words(PixelAblation(4, 1024), 20) == "1.9 % of the pixels"
    assert attackers.share_words(BandAblation(40, 224), 32) == "2 % of the image"
