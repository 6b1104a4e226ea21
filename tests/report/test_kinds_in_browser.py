"""Pages of the threshold rule, of predicted labels and of adaptive draws, in a real browser."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.report.browsing import COLUMNS, assert_all_fits, assert_quiet, headline, settle, shown_ids, slide_to, table
from tests.report.studies import HOSTILE_IDS, HOSTILE_LABELS, NoiseImages, make_run

from multiguard.certify import certified_size
from multiguard.evaluate import Curve
from multiguard.report import Study, write_page
from multiguard.report.rounding import percent_value, radius_text, round_up

MOST_CEILINGS = 4


FILLING = "fills up k, 0\u00a0draws"


@pytest.fixture(scope="module")
def paths(of_threshold: Study, unlabelled: Study, hostile_unlabelled: Study, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("kinds")
    studies = {"threshold": of_threshold, "unlabelled": unlabelled, "hostile": hostile_unlabelled}
    for name, study in studies.items():
        images = NoiseImages(study.main.certificates.ids, side=40) if name == "threshold" else None
        write_page(study, folder / f"{name}.html", images=images)
    return {name: folder / f"{name}.html" for name in studies}


def shown(curve: Curve, columns: tuple[str, ...], index: int) -> list[str]:
    shares = [percent_value(float(getattr(curve.scores, column)[index])) for column in columns]
    return [*shares, round_up(float(curve.scores.false_ceiling[index]), 2)]


@pytest.mark.parametrize("averaging", ["mean", "pooled"])
def test_the_slider_shows_floors_and_ceilings_of_the_curves(
    of_threshold: Study, paths: dict[str, Path], opened, averaging: str
) -> None:
    page = opened(paths["threshold"]).page
    page.locator(f"[name=averaging][value={averaging}]").check()
    own = {
        curve.method: curve
        for curve in of_threshold.main.curves
        if (curve.setting, curve.averaging) == (of_threshold.setting, averaging)
    }
    for index in (0, 4, 10, 30):
        slide_to(page, index)
        assert table(page, "methods") == {method: shown(curve, COLUMNS, index) for method, curve in own.items()}
        found = headline(page, (*COLUMNS, "false_ceiling"))
        assert list(found.values()) == shown(own["joint"], COLUMNS, index)
        assert page.locator(".readings dd").all_inner_texts()[-1] == found["false_ceiling"]
    assert len({tuple(shown(own["joint"], COLUMNS, index)) for index in (0, 4, 10, 30)}) > 2


def test_both_rules_stand_beside_each_other(of_threshold: Study, paths: dict[str, Path], opened) -> None:
    page = opened(paths["threshold"]).page
    runs = {"threshold, t = 0.3": of_threshold.main, "top-k, k′ = 2, k = 5": of_threshold.beside["ranked"]}
    for index in (0, 10):
        slide_to(page, index)
        for name, run in runs.items():
            curve = next(curve for curve in run.curves if curve.setting == run.certificates.setting)
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
    return names + [(f"≤\u2009{m}", radius_text(kept[m])) for m in new[:MOST_CEILINGS]]


@pytest.mark.parametrize("method", ["joint", "independent"])
def test_cards_draw_floors_and_ceilings(of_threshold: Study, paths: dict[str, Path], opened, method: str) -> None:
    page, certificates = opened(paths["threshold"]).page, of_threshold.main.certificates
    grid = of_threshold.main.curves[0].scores.radius
    page.locator("#method").select_option(method)
    for index in (0, 5, 20):
        slide_to(page, index)
        for card in page.locator(".card").all():
            place = certificates.ids.index(card.get_attribute("data-id"))
            true, false = certificates.radii[method][place], certificates.false_radii[method][place]
            rows = card.locator(".ceilings li").all()
            found = [
                (row.locator(".size").text_content().removeprefix("at most "), row.locator(".value").text_content())
                for row in rows
            ]
            assert found == ceilings(false, grid[-1])
            proved = [radius_text(float(radius)) for radius in true if radius > -np.inf]
            assert card.locator(".floors .value").all_text_contents()[: len(proved)] == proved
            if not len(true):
                continue
            assert card.locator(".count strong").text_content() == f"{certified_size(true, grid[index])} of {len(true)}"
            most = next((m for m, radius in enumerate(false) if radius >= grid[index]), None)
            words = {None: "any number of wrong labels", 1: "at most 1 wrong label"}
            assert card.locator(".ceiling").text_content() == words.get(most, f"at most {most} wrong labels")
            assert card.locator(".floors .holds").count() == certified_size(true, grid[index])


def test_where_all_labels_are_true_no_other_can_come_in(of_threshold: Study, tmp_path: Path, opened) -> None:
    certificates = of_threshold.main.certificates
    every = tuple(range(len(certificates.label_names)))
    place = next(place for place, own in enumerate(certificates.labels) if own)
    full = {name: _with(values, place, np.zeros(len(every))) for name, values in certificates.radii.items()}
    none = {name: _with(values, place, np.empty(0)) for name, values in certificates.false_radii.items()}
    changed = replace(
        certificates,
        labels=_with(certificates.labels, place, every),
        radii=full,
        false_radii=none,
        label_radii=_with(certificates.label_radii, place, np.zeros(len(every))),
    )
    write_page(Study(replace(of_threshold.main, certificates=changed)), tmp_path / "report.html")
    card = opened(tmp_path / "report.html").page.locator(f'.card[data-id="{certificates.ids[place]}"]')
    assert card.locator(".ceiling").text_content() == "no wrong label can come in"
    assert card.locator(".ceilings").count() == 0


def _with(values: tuple, place: int, value: object) -> tuple:
    return (*values[:place], value, *values[place + 1 :])


def test_predicted_labels_have_their_own_radii_and_unconfirmed_ones_say_so(
    unlabelled: Study, paths: dict[str, Path], opened
) -> None:
    page, certificates = opened(paths["unlabelled"]).page, unlabelled.main.certificates
    unconfirmed = 0
    for card in page.locator(".card").all():
        place = certificates.ids.index(card.get_attribute("data-id"))
        rows = card.locator(".own li").all()
        assert [row.locator(".size").text_content() for row in rows] == [
            certificates.label_names[label] for label in certificates.labels[place]
        ]
        own = certificates.label_radii[place].tolist()
        words = ["unconfirmed" if radius == -math.inf else radius_text(radius) for radius in own]
        assert [row.locator(".value").text_content() for row in rows] == words
        unconfirmed += words.count("unconfirmed")
        radius = float(page.locator("#radius-shown").inner_text())
        assert card.locator(".own .holds").count() == sum(each >= radius for each in own)
        assert card.locator(".true, .mark, .true-one").count() == 0
    total = sum(len(labels) for labels in certificates.labels)
    assert 0 < unconfirmed < total
    assert f"{unconfirmed} of {total}" in page.locator(".asides").inner_text()


def test_without_truth_there_is_neither_precision_nor_f1(unlabelled: Study, paths: dict[str, Path], opened) -> None:
    page = opened(paths["unlabelled"]).page
    words = "\n".join(page.locator("header, .instrument, main > section:not(#origin)").all_inner_texts())
    assert not [word for word in ("precision", "F1", "true label", "recall") if word in words]
    assert "of the labels predicted for an image" in page.locator(".statement").inner_text()
    curve = unlabelled.main_curve("joint", "mean")
    for index in (0, 5):
        slide_to(page, index)
        assert table(page, "methods")["joint"] == shown(curve, ("recall",), index)
        assert headline(page, ("recall",))["recall"] == shown(curve, ("recall",), index)[0]
    page.locator("[name=averaging][value=pooled]").check()
    settle(page)
    assert "of all predicted labels together" in page.locator(".statement").inner_text()


def test_an_adaptive_run_shows_what_each_image_drew(unlabelled: Study, paths: dict[str, Path], opened) -> None:
    page, certificates = opened(paths["unlabelled"]).page, unlabelled.main.certificates
    assert page.locator("#radius-shown").inner_text() == "0.25", "the first radius that draws were spent for"
    counts = {draws: certificates.draws.count(draws) for draws in (40, 70, 100)}
    rows = page.locator(".stops li").all()
    found = [(row.locator(".name").text_content(), row.locator(".value").text_content()) for row in rows]
    assert found == [(f"{draws} draws:", f"{count} images") for draws, count in counts.items()]
    for card in page.locator(".card").all():
        place = certificates.ids.index(card.get_attribute("data-id"))
        assert card.locator("p.draws").text_content() == f"{certificates.draws[place]} draws"
        shares = card.locator(".prediction small").all_text_contents()
        for hits, share in zip(certificates.predicted_hits[place], shares, strict=True):
            assert int(share.split("\u00a0")[0]) == math.floor(100 * hits / certificates.draws[place] + 0.5)
    origin = page.locator("#origin").inner_text()
    assert "40, 70, 100" in origin
    assert "mean_draws" in origin


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["threshold", "unlabelled", "hostile"])
def test_nothing_is_fetched_from_any_kind_of_page(paths: dict[str, Path], opened, name: str, scheme: str) -> None:
    assert_quiet(opened(paths[name], scheme=scheme), paths[name])


@pytest.mark.parametrize("name", ["threshold", "unlabelled", "hostile"])
def test_every_kind_of_page_fits_a_phone(paths: dict[str, Path], opened, name: str) -> None:
    assert_all_fits(opened(paths[name], width=390).page, 390)


def test_hostile_names_stay_text_without_labels(hostile_unlabelled: Study, paths: dict[str, Path], opened) -> None:
    page, certificates = opened(paths["hostile"]).page, hostile_unlabelled.main.certificates
    page.locator("#show-all").click()
    assert set(HOSTILE_IDS) <= set(shown_ids(page))
    names = set(page.locator(".own .size").all_text_contents())
    assert names == {HOSTILE_LABELS[label] for labels in certificates.labels for label in labels}
    assert len(names & set(HOSTILE_LABELS[:6])) > 2
    strangers = "document.querySelectorAll('main img, main script, [onerror], [onload]').length"
    assert page.evaluate(strangers) == 0


def test_a_label_that_only_fills_up_k_is_marked_and_not_ticked(tmp_path: Path, opened) -> None:
    main = make_run(tmp_path)
    hits = tuple((*found[:3], 0, 0) for found in main.certificates.predicted_hits)
    study = Study(replace(main, certificates=replace(main.certificates, predicted_hits=hits)))
    write_page(study, tmp_path / "report.html")
    page = opened(tmp_path / "report.html").page
    told = page.locator("#images .words").inner_text()
    assert "Predicted names in bold are true labels." in told
    assert "A label that fills up k is returned because 5 labels are, though no draw had it." in told
    unticked = 0
    for place, image_id in enumerate(main.certificates.ids):
        card = page.locator(f".card[data-id='{image_id}']")
        shares = card.locator(".prediction small").all_text_contents()
        assert [share == FILLING for share in shares] == [False, False, False, True, True]
        predicted, labels = main.certificates.predicted[place], main.certificates.labels[place]
        assert card.locator(".mark").all_text_contents() == ["✓" if label in predicted[:3] else "✗" for label in labels]
        unticked += len(set(labels) & set(predicted[3:]))
    assert unticked


def test_alone_is_said_to_take_the_whole_of_alpha(paths: dict[str, Path], opened) -> None:
    page = opened(paths["threshold"]).page
    heading = page.locator(".card .true li:first-child").first
    assert heading.locator("span").last.text_content() == "alone (all of α) up to"
    assert "fills up k" not in page.locator("#images").inner_text()
