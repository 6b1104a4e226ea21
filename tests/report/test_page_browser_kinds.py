"""Pages of the threshold rule, of predicted labels and of adaptive draws, in a real browser."""

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.report.browsing import (
    COLUMNS,
    assert_all_fits,
    assert_quiet,
    cards,
    headline,
    radius_value,
    settle,
    shown_ids,
    slide_to,
    table,
)
from tests.report.studies import HOSTILE_IDS, HOSTILE_LABELS, changed, make_run

from multiguard.certify import certified_size
from multiguard.evaluate import CertifyConfig, Curve
from multiguard.io.rounding import percent_value, round_up
from multiguard.report import Study, write_page

MOST_CEILINGS = 4
CARD = {
    "sizes": ".ceilings .size",
    "ceilings": ".ceilings .value",
    "floors": ".floors .value",
    "count": ".count strong",
    "most": ".ceiling",
    "holding": ".floors .holds",
}


def shown(curve: Curve, columns: tuple[str, ...], index: int) -> list[str]:
    percents = [percent_value(float(getattr(curve.scores, column)[index])) for column in columns]
    return [*percents, round_up(float(curve.scores.false_ceiling[index]), 2)]


def test_slider_with_ceilings(threshold: Study, pages: dict[str, Path], opened) -> None:
    """The slider shows floors and ceilings of the curves."""
    page = opened(pages["threshold"]).page
    for averaging, index in product(("pooled", "mean"), (0, 4, 10, 30)):
        page.locator(f"[name=averaging][value={averaging}]").check()
        own = {method: threshold.main_curve(method, averaging) for method in threshold.main.certificates.methods}
        slide_to(page, index)
        assert table(page, "methods") == {method: shown(curve, COLUMNS, index) for method, curve in own.items()}
        found = headline(page, (*COLUMNS, "false_ceiling"))
        assert list(found.values()) == shown(own["joint"], COLUMNS, index)
        assert page.locator(".readings dd").all_inner_texts()[-1] == found["false_ceiling"]
    assert len({tuple(shown(own["joint"], COLUMNS, index)) for index in (0, 4, 10, 30)}) > 2


def test_both_rules(threshold: Study, pages: dict[str, Path], opened) -> None:
    """Both rules are compared."""
    page = opened(pages["threshold"]).page
    runs = {"threshold, t = 0.3": threshold.main, "top-k, k′ = 2, k = 5": threshold.beside["ranked"]}
    for index in (0, 10):
        slide_to(page, index)
        for name, run in runs.items():
            curve = next(curve for curve in run.curves if curve.config == run.certificates.config)
            assert table(page, "rules")[name] == shown(curve, COLUMNS, index)
    assert page.locator("#sweeps [role=tab]").all_inner_texts() == ["t", "n", "α"]


def ceilings(radii: np.ndarray, farthest: float) -> list[tuple[str, str]]:
    """The rows of ceilings that a card has room for: none is passed over that is smaller and says as much."""
    reached = next((m for m, radius in enumerate(radii) if radius >= farthest), len(radii) - 1)
    kept = radii[: reached + 1].tolist()
    unproved = kept.count(-math.inf)
    names = (
        [] if not unproved else [("≤\u20090" if unproved == 1 else f"≤\u20090\u2013{unproved - 1}", "not certified")]
    )
    new = [m for m in range(unproved, len(kept)) if m == 0 or kept[m] != kept[m - 1]]
    return names + [(f"≤\u2009{m}", radius_value(kept[m])) for m in new[:MOST_CEILINGS]]


@pytest.mark.parametrize("method", ["joint", "independent"])
def test_cards_with_ceilings(threshold: Study, pages: dict[str, Path], opened, method: str) -> None:
    """Cards show floors and ceilings."""
    page, certificates = opened(pages["threshold"]).page, threshold.main.certificates
    grid = threshold.main.curves[0].scores.radius
    page.locator("#method").select_option(method)
    for step in (0, 5, 20):
        slide_to(page, step)
        for card in cards(page, **CARD):
            index = certificates.ids.index(card["id"])
            true, false = certificates.radii[method][index], certificates.false_radii[method][index]
            sizes = [size.removeprefix("at most ") for size in card["sizes"]]
            assert list(zip(sizes, card["ceilings"], strict=True)) == ceilings(false, grid[-1])
            proved = [radius_value(float(radius)) for radius in true if radius > -np.inf]
            assert card["floors"][: len(proved)] == proved
            if not len(true):
                continue
            assert card["count"] == [f"{certified_size(true, grid[step])} of {len(true)}"]
            most = next((m for m, radius in enumerate(false) if radius >= grid[step]), None)
            words = {None: "any number of wrong labels", 1: "at most 1 wrong label"}
            assert card["most"] == [words.get(most, f"at most {most} wrong labels")]
            assert len(card["holding"]) == certified_size(true, grid[step])


def test_all_labels_true(threshold: Study, tmp_path: Path, opened) -> None:
    """If all labels are true, no other label is possible."""
    certificates = threshold.main.certificates
    every = tuple(range(len(certificates.label_names)))
    index = next(index for index, own in enumerate(certificates.labels) if own)
    full = {name: _with(values, index, np.zeros(len(every))) for name, values in certificates.radii.items()}
    none = {name: _with(values, index, np.empty(0)) for name, values in certificates.false_radii.items()}
    labels = _with(certificates.labels, index, every)
    alone = _with(certificates.label_radii, index, np.zeros(len(every)))
    main = changed(threshold.main, labels=labels, radii=full, false_radii=none, label_radii=alone)
    write_page(Study(main), tmp_path / "report.html")
    card = opened(tmp_path / "report.html").page.locator(f'.card[data-id="{certificates.ids[index]}"]')
    assert card.locator(".ceiling").text_content() == "no wrong label is possible"
    assert card.locator(".ceilings").count() == 0


def _with(values, index: int, value: object) -> list:
    return [value if at == index else own for at, own in enumerate(values)]


def test_predicted_labels(unlabelled: Study, pages: dict[str, Path], opened) -> None:
    """Predicted labels have radii of their own, and unconfirmed ones are marked."""
    page, certificates = opened(pages["unlabelled"]).page, unlabelled.main.certificates
    unconfirmed, radius = 0, float(page.locator("#radius-shown").inner_text())
    selectors = {"names": ".own .size", "values": ".own .value", "holding": ".own .holds", "true": ".true, .true-one"}
    for card in cards(page, **selectors, marks=".mark"):
        index = certificates.ids.index(card["id"])
        own = certificates.label_radii[index].tolist()
        assert card["names"] == [certificates.label_names[label] for label in certificates.labels[index]]
        words = ["unconfirmed" if each == -math.inf else radius_value(each) for each in own]
        assert card["values"] == words
        unconfirmed += words.count("unconfirmed")
        assert len(card["holding"]) == sum(each >= radius for each in own)
        assert card["true"] == card["marks"] == []
    total = sum(len(labels) for labels in certificates.labels)
    assert 0 < unconfirmed < total
    assert f"{unconfirmed} of {total}" in page.locator(".asides").inner_text()


def test_no_ground_truth(unlabelled: Study, pages: dict[str, Path], opened) -> None:
    """Without ground truth there is neither precision nor F1."""
    page = opened(pages["unlabelled"]).page
    words = "\n".join(page.locator("header, .instrument, main > section:not(#provenance)").all_inner_texts())
    assert not [word for word in ("precision", "F1", "true label", "recall") if word in words]
    assert "predicted labels, on average," in page.locator(".statement").inner_text()
    curve = unlabelled.main_curve("betting", "mean")
    for index in (0, 5):
        slide_to(page, index)
        assert table(page, "methods")["betting"] == shown(curve, ("recall",), index)
        assert headline(page, ("recall",))["recall"] == shown(curve, ("recall",), index)[0]
    page.locator("[name=averaging][value=pooled]").check()
    settle(page)
    assert "of all predicted labels together" in page.locator(".statement").inner_text()


def test_adaptive_draws(unlabelled: Study, pages: dict[str, Path], opened) -> None:
    """An adaptive run shows the draws of each image."""
    page, certificates = opened(pages["unlabelled"]).page, unlabelled.main.certificates
    assert page.locator("#radius-shown").inner_text() == "0.25", "the first radius that draws were spent for"
    counts = {draws: certificates.draws.count(draws) for draws in (40, 70, 100)}
    assert page.locator(".stops .name").all_text_contents() == [f"{draws} draws:" for draws in counts]
    assert page.locator(".stops .value").all_text_contents() == [f"{count} images" for count in counts.values()]
    for card in cards(page, draws="p.draws", percents=".prediction small"):
        index = certificates.ids.index(card["id"])
        draws = certificates.draws[index]
        assert card["draws"] == [f"{draws} draws"]
        percents = [int(text.split("\u00a0")[0]) for text in card["percents"]]
        assert percents == [math.floor(100 * hits / draws + 0.5) for hits in certificates.predicted_hits[index]]
    provenance = page.locator("#provenance").inner_text()
    assert "40, 70, 100" in provenance
    assert "mean_draws" in provenance


def test_hostile_names_unlabelled(hostile_unlabelled: Study, pages: dict[str, Path], opened) -> None:
    """Hostile names stay text without labels, and nothing is fetched, on a phone in the dark."""
    path, certificates = pages["hostile unlabelled"], hostile_unlabelled.main.certificates
    visited = opened(path, width=390, scheme="dark")
    page = visited.page
    assert_quiet(visited, path)
    assert_all_fits(page, 390)
    page.locator("#show-all").click()
    assert set(HOSTILE_IDS) <= set(shown_ids(page))
    names = set(page.locator(".own .size").all_text_contents())
    assert names == {HOSTILE_LABELS[label] for labels in certificates.labels for label in labels}
    assert len(names & set(HOSTILE_LABELS[:6])) > 2
    strangers = "document.querySelectorAll('main img, main script, [onerror], [onload]').length"
    assert page.evaluate(strangers) == 0


def test_labels_without_a_hit(tmp_path: Path, opened) -> None:
    """A card lists the labels that some draw returned, fewer than k, and ticks no other."""
    main = make_run(tmp_path, draws=4, config=CertifyConfig(k=5, k_prime=1), methods=("joint",))
    write_page(Study(main), tmp_path / "report.html")
    proved, unticked = main.certificates, 0
    for card in cards(opened(tmp_path / "report.html").page, percents=".prediction small", marks=".mark"):
        index = proved.ids.index(card["id"])
        assert card["percents"] == [f"{25 * hits}\u00a0%" for hits in proved.predicted_hits[index]]
        assert len(card["percents"]) < 5
        assert card["marks"] == ["✓" if label in proved.predicted[index] else "✗" for label in proved.labels[index]]
        unticked += card["marks"].count("✗")
    assert unticked


def test_full_alpha(pages: dict[str, Path], opened) -> None:
    """The radius of a single label is marked as taking the full alpha."""
    page = opened(pages["threshold"]).page
    heading = page.locator(".card .true li:first-child").first
    assert heading.locator("span").last.text_content() == "alone (full α) up to"
