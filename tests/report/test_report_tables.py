"""Tables hold the numbers of the curves: all digits in CSV, rounded down for people."""

import csv
import re
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path

import pytest
from tests.report.studies import HOSTILE_LABELS, make_run

from multiguard.report import Study, write_tables

WORDS = {"precision": "precision", "recall": "recall", "f1": "F1"}
AVERAGED = {"mean": "mean per image", "pooled": "pooled"}


@pytest.fixture(scope="module")
def folder(study: Study, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("tables") / "new"
    written = write_tables(study, place)
    assert sorted(written) == sorted(place.iterdir())
    return place


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_table_comes_in_three_formats(folder: Path) -> None:
    names = ["alpha", "k", "k_prime", "labels", "methods", "n", "runs", "sigma", "training"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{n}.{kind}" for n in names for kind in ("csv", "md", "tex")
    )


@pytest.mark.parametrize(
    ("name", "field"), [("methods", "method"), ("k", "k"), ("k_prime", "k_prime"), ("n", "draws"), ("alpha", "alpha")]
)
def test_csv_holds_the_curves_without_loss(study: Study, folder: Path, name: str, field: str) -> None:
    table = {(row["averaging"], row[name], row["score"]): row for row in rows(folder / f"{name}.csv")}
    seen = set()
    for curve in study.main.curves:
        value = curve.method if field == "method" else getattr(curve.setting, field)
        moved = curve.setting != study.setting
        if (name != "methods" and (curve.method != study.method or not moved)) or (name == "methods" and moved):
            continue
        if name != "methods" and value == getattr(study.setting, field):
            continue
        for score, word in WORDS.items():
            key = (AVERAGED[curve.averaging], f"{value:g}" if field != "method" else value, word)
            seen.add(key)
            shown = {float(head[2:]): float(cell) for head, cell in table[key].items() if head.startswith("R=")}
            grid = curve.scores.radius.tolist()
            assert list(shown) == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5]
            assert all(found == getattr(curve.scores, score)[grid.index(r)] for r, found in shown.items())
    assert len(seen) >= 6


@pytest.mark.parametrize("kind", ["md", "tex"])
def test_people_read_percentages_rounded_down(folder: Path, kind: str) -> None:
    text = (folder / f"methods.{kind}").read_text(encoding="utf-8")
    expected = [
        [
            str((Decimal(cell) * 100).quantize(Decimal("0.1"), ROUND_FLOOR))
            for head, cell in row.items()
            if head[:2] == "R="
        ]
        for row in rows(folder / "methods.csv")
    ]
    assert [re.findall(r"(?<![\d.=] )\b\d+\.\d\b(?= *[|&\\])", line) for line in _body(text)] == expected
    assert "rounded down" in text
    assert "not covered" in text


def _body(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.search(r"[|&] (?:precision|recall|F1) [|&]", line)]


def test_left_out_images_are_counted(folder: Path) -> None:
    assert "Over 9 images; 3 without labels are left out." in (folder / "k.md").read_text(encoding="utf-8")


def test_labels_are_those_of_the_certificates(study: Study, folder: Path) -> None:
    certificates = study.main.certificates
    for row in rows(folder / "labels.csv"):
        index = certificates.label_names.index(row["label"])
        own = [
            radius
            for labels, radii in zip(certificates.labels, certificates.label_radii, strict=True)
            for label, radius in zip(labels, radii, strict=True)
            if label == index
        ]
        assert int(row["images"]) == len(own)
        assert float(row["R=0.5"]) == sum(radius >= 0.5 for radius in own) / len(own)


def test_the_table_of_labels_names_what_proved_it(tmp_path: Path, of_threshold: Study) -> None:
    """A label's own radius is proved in one way, whatever method proves the set."""
    write_tables(Study(make_run(tmp_path / "run", methods=("jia", "paper"))), tmp_path / "ranked")
    text = (tmp_path / "ranked/labels.md").read_text(encoding="utf-8")
    assert "method joint" in text
    assert "jia" not in text
    assert "method jia" in (tmp_path / "ranked/methods.md").read_text(encoding="utf-8")
    write_tables(of_threshold, tmp_path / "sets")
    text = (tmp_path / "sets/labels.md").read_text(encoding="utf-8")
    assert "by the label's own bound" in text
    assert "method" not in text


def test_hostile_labels_stay_text(hostile_study: Study, tmp_path: Path) -> None:
    write_tables(hostile_study, tmp_path)
    labels = {row["label"] for row in rows(tmp_path / "labels.csv")}
    assert "'" + HOSTILE_LABELS[4] in labels
    assert not any(label.startswith("=") for label in labels)
    for path in tmp_path.glob("*.md"):
        assert "<" not in path.read_text(encoding="utf-8")
    latex = (tmp_path / "labels.tex").read_text(encoding="utf-8")
    assert r"a\textbar{}b\_c*d\textasciigrave{}e\textbackslash{}f\$g\$ \#100\% \textasciitilde{}\{x\}" in latex
    columns = latex.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert all(len(re.findall(r"(?<!\\)&", line)) == 8 for line in columns)
