"""Tables hold the numbers of the curves: all digits in CSV, rounded down for people."""

import csv
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.report.studies import HOSTILE_LABELS, make_run

from multiguard.io.names import as_cell
from multiguard.report import Study, write_tables
from multiguard.report.tables import escape_latex

WORDS = {"precision": "precision", "recall": "recall", "f1": "F1"}
LATEX_COMMANDS = re.compile(
    r"\\(?:textbackslash|textasciicircum|textasciitilde|textless|textgreater|textbar|textquotedbl|textasciigrave)\{\}"
    r"|\\ensuremath\{(?:'|-|\\sigma|\\alpha|\\ell_2)\}|\\[{}$&#%_]|\{[][*]\}"
)
AVERAGED = {"mean": "mean per image", "pooled": "pooled"}


@pytest.fixture(scope="module")
def folder(study: Study, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "new"
    written = write_tables(study, path)
    assert sorted(written) == sorted(path.iterdir())
    return path


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["methods", "k", "k_prime", "n", "alpha"])
def test_csv_exact(study: Study, folder: Path, name: str) -> None:
    """The CSV holds the curves without loss."""
    table = {(row["averaging"], row[name], row["score"]): row for row in rows(folder / f"{name}.csv")}
    seen = set()
    for curve in study.main.curves:
        value = curve.method if name == "methods" else curve.config.parameters[name]
        varied = curve.config != study.config
        if (name != "methods" and (curve.method != study.method or not varied)) or (name == "methods" and varied):
            continue
        if name != "methods" and value == study.config.parameters[name]:
            continue
        for score, word in WORDS.items():
            key = (AVERAGED[curve.averaging], value if name == "methods" else f"{value:g}", word)
            seen.add(key)
            shown = {float(head[2:]): float(cell) for head, cell in table[key].items() if head.startswith("R=")}
            grid = curve.scores.radius.tolist()
            assert list(shown) == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5]
            assert all(found == getattr(curve.scores, score)[grid.index(r)] for r, found in shown.items())
    assert len(seen) >= 6


def test_percent_rounded_down(folder: Path) -> None:
    """People read percentages rounded down."""
    text = (folder / "methods.tex").read_text(encoding="utf-8")
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


def test_labels(study: Study, folder: Path) -> None:
    """The table of labels has the numbers of the certificates."""
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


def test_label_proof(tmp_path: Path, threshold: Study) -> None:
    """The radius of a single label is proved in one way, whatever method proves the set."""
    write_tables(Study(make_run(tmp_path / "run", methods=("jia", "paper"))), tmp_path / "ranked")
    text = (tmp_path / "ranked/labels.tex").read_text(encoding="utf-8")
    assert "method joint" in text
    assert "jia" not in text
    assert "method jia" in (tmp_path / "ranked/methods.tex").read_text(encoding="utf-8")
    write_tables(threshold, tmp_path / "sets")
    text = (tmp_path / "sets/labels.tex").read_text(encoding="utf-8")
    assert "by the bound of the label itself" in text
    assert "method" not in text


def test_hostile_labels(hostile_study: Study, tmp_path: Path) -> None:
    """Hostile labels stay text in every format."""
    write_tables(hostile_study, tmp_path)
    labels = {row["label"] for row in rows(tmp_path / "labels.csv")}
    assert "'" + HOSTILE_LABELS[4] in labels
    assert not any(label.startswith("=") for label in labels)
    latex = (tmp_path / "labels.tex").read_text(encoding="utf-8")
    assert r"a\textbar{}b\_c*d\textasciigrave{}e\textbackslash{}f\$g\$ \#100\% \textasciitilde{}\{x\}" in latex
    columns = latex.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert all(len(re.findall(r"(?<!\\)&", line)) == 8 for line in columns)


def test_ceilings(threshold: Study, tmp_path: Path) -> None:
    """Ceilings are in full in the CSV and rounded up for people."""
    write_tables(threshold, tmp_path)
    row = next(row for row in rows(tmp_path / "methods.csv") if row["score"] == "wrong labels, at most")
    scores = threshold.main_curve("joint", "mean").scores
    grid = scores.radius.tolist()
    expected = [float(scores.false_ceiling[grid.index(float(head[2:]))]) for head in row if head.startswith("R=")]
    assert [float(cell) for head, cell in row.items() if head.startswith("R=")] == expected
    text = (tmp_path / "methods.tex").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if "wrong labels, at most" in line)
    shown = [Decimal(cell) for cell in re.findall(r"\d+\.\d\d", line)]
    assert shown == [Decimal(repr(value)).quantize(Decimal("0.01"), ROUND_CEILING) for value in expected]
    assert "rounded up" in text
    assert "t = 0.3, n = 100" in text


def test_predicted_labels(unlabelled: Study, tmp_path: Path) -> None:
    """Tables of predicted labels have neither precision nor recall, and say how many draws there were."""
    write_tables(unlabelled, tmp_path)
    text = "\n".join(path.read_text(encoding="utf-8") for path in tmp_path.glob("*.tex"))
    assert not re.search(r"precision|recall|F1|wrong", text)
    mean = unlabelled.main_curve("betting", "mean").mean_draws
    assert f"n up to 100 ({round(mean, 1):g} on average)" in text


@given(st.text())
def test_latex_commands(text: str) -> None:
    """LaTeX text has no command but ours."""
    rest = LATEX_COMMANDS.sub("", escape_latex(text))
    assert not set(rest) & set('\\{}[]$&#%_^~<>|"`\n\r')
    assert not escape_latex(text).lstrip().startswith("*")


@pytest.mark.parametrize(
    ("name", "written"),
    [("[2pt] car", "{[}2pt{]} car"), ("*", "{*}"), (" \t*a*", "  {*}a*"), ("\n[", " {[}"), ("a*b", "a*b")],
)
def test_latex_row_end(name: str, written: str) -> None:
    """A name at the start of a row is no option of the end of the row before."""
    assert escape_latex(name) == written


def test_directions() -> None:
    """A name does not turn the direction of text."""
    assert escape_latex("a\u202eb\x9bc") == "a b c"


@given(st.text())
@example("=1+1")
@example("\uff1d1")
@example("'=1")
@example("a=b")
@example("'quoted'")
def test_csv_round_trip(name: str) -> None:
    """A name is read back from its cell, and no cell is a formula that a spreadsheet would run."""
    cell = as_cell(name)
    assert re.sub(r"\A'(?='*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])", "", cell) == name
    assert not re.match(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]", cell)
