"""No file runs code, writes outside its folder or controls a terminal; only the user names what runs code."""

import ast
import csv
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.evaluate.votes_cases import random_votes, stored_votes
from tests.pipeline.tiny_run import RECIPE, command

import multiguard
from multiguard.certify import Gaussian
from multiguard.cli.console import PlainConsole, printable
from multiguard.errors import InvalidInputError, ModelError
from multiguard.evaluate import CertifyConfig, certify_votes, radius_grid, read_certificates, write_certificates
from multiguard.io.config import to_tree
from multiguard.io.files import check_inside
from multiguard.io.records import encode_json
from multiguard.models import load
from multiguard.models.classifier import ModelOptions
from multiguard.models.huggingface import load_hf
from multiguard.models.loading import runs_code
from multiguard.report import ReportConfig, report
from multiguard.run import parse_recipe, run
from multiguard.run.arms import RunRecord

GRID = radius_grid(Gaussian(0.5), step=0.5)
SOURCE = Path(multiguard.__file__).parent

# ----------------------------------------------------------------------------------------- what can run code


class Calls(ast.NodeVisitor):
    """Every call in a file, as it is written."""

    def __init__(self, path: Path) -> None:
        self.found: list[tuple[str, ast.Call]] = []
        self.visit(ast.parse(path.read_text(encoding="utf-8")))

    def visit_Call(self, node: ast.Call) -> None:
        self.found.append((ast.unparse(node.func), node))
        self.generic_visit(node)


CALLS = [
    (path.relative_to(SOURCE).as_posix(), *call) for path in sorted(SOURCE.rglob("*.py")) for call in Calls(path).found
]
KEYWORDS = {id(node): {word.arg: ast.unparse(word.value) for word in node.keywords} for _, _, node in CALLS}


def test_forbidden_calls():
    """Nothing in the package unpickles or evaluates; the files that import by name are known."""
    forbidden = re.compile(
        r"(^|\.)(eval|exec|compile|__import__|system|popen|Popen|check_output|unsafe_load|full_load|Unpickler|literal_load)$"
        r"|^(pickle|cPickle|dill|joblib|marshal|shelve|cloudpickle|subprocess)\."
    )
    allowed = {"torch.compile", "re.compile"}
    copies = {("models/sklearn.py", name) for name in ("pickle.dumps", "pickle.loads")}  # of an object in memory
    found = {(file, name) for file, name, _ in CALLS if forbidden.search(name) and name not in allowed} - copies
    assert {name for _, name in found if not name.endswith(".eval")} == set(), found  # a network's eval mode
    assert all(KEYWORDS[id(node)].get("weights_only") == "True" for _, name, node in CALLS if name == "torch.load")
    assert all(KEYWORDS[id(node)].get("allow_pickle") == "False" for _, name, node in CALLS if name == "np.load")
    assert {file for file, name, _ in CALLS if name == "yaml.load"} == {"io/records.py"}
    importing = {file for file, name, _ in CALLS if name.endswith("import_module")}
    assert importing == {"cli/main.py", "lazy.py", "models/code.py", "models/spec.py"}


def test_forbidden_call_search(tmp_path):
    """The search finds forbidden calls."""
    (tmp_path / "x.py").write_text("import pickle\npickle.loads(b'')\neval('1')\n")
    assert [name for name, _ in Calls(tmp_path / "x.py").found] == ["pickle.loads", "eval"]


def test_one_reader():
    """Every file of a user is read through `read_regular` or `open_regular`, which never wait and have a limit."""
    reading = re.compile(r"\.read_text$|\.read_bytes$|^open$|\bpath\.open$|^(os|io|codecs)\.open$")
    known = {
        ("io/files.py", "os.open"),  # the readers themselves
        ("verify/checks.py", "path.read_bytes"),  # tables in a folder that was made for them
    }
    found = {(file, name) for file, name, _ in CALLS if reading.search(name) and "assets" not in name.lower()}
    assert {call for call in found if not call[0].startswith("models/")} == known


def test_specs_that_run_code(tmp_path):
    """Only a spec of a module and a function runs code."""
    assert runs_code("some.module:function")
    assert not any(runs_code(spec) for spec in ("timm:resnet18", "hf:folder", "onnx:file.onnx", str(tmp_path)))


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module that leaves a mark when it is imported, and its name."""
    (tmp_path / "trap_of_a_stranger.py").write_text(
        f"open({str(tmp_path / 'sprung')!r}, 'w')\ndef make(): return None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trap_of_a_stranger", raising=False)
    yield "trap_of_a_stranger:make"
    sys.modules.pop("trap_of_a_stranger", None)


def test_model_named_by_votes(tmp_path, trap):
    """A model that a votes folder names is not imported."""
    votes = random_votes(tmp_path / "run" / "votes", images=4, draws=50)
    source = {"data": {"data": "digits"}, "model": {"spec": trap}, "command": f"multiguard vote --model {trap}"}
    (tmp_path / "run" / "votes" / "source.json").write_text(json.dumps(source))
    code, _, err = command("certify", tmp_path / "run" / "votes", "--k", 3, "--k-prime", 2)
    assert code == 0, err
    certified = read_certificates(tmp_path / "run" / "certificates")
    assert certified.source["model"]["spec"] == trap
    out = tmp_path / "out"
    report(ReportConfig(), {"": certified}, out=out)
    assert len(votes) == 4
    assert not (tmp_path / "sprung").exists()
    with pytest.raises(ModelError):
        load(trap, labels=["a"], output="logits")
    assert (tmp_path / "sprung").exists(), "the trap itself must work"


def test_model_named_by_recipe(tmp_path, trap):
    """A recipe imports the module it names only when it is run, and the command reports it."""
    text = re.sub(r"train:.*\n", f"model: {{spec: '{trap}', output: logits}}\n", RECIPE)
    assert parse_recipe(text, "recipe.yaml").model.spec == trap
    assert not (tmp_path / "sprung").exists()
    (tmp_path / "recipe.yaml").write_text(text)
    code, out, _ = command("run", tmp_path / "recipe.yaml", "--out", tmp_path / "run")
    assert (code, (tmp_path / "sprung").exists()) == (2, True)
    assert f"{trap} is code that the recipe names" in out


@pytest.mark.parametrize(
    "config",
    [
        {"auto_map": {"AutoModelForImageClassification": "own.M"}},
        {"attn_implementation": "someone/kernel"},
        {"_attn_implementation": "kernels-community/flash-attn"},
        {"backbone_config": {"attn_implementation": "someone/kernel"}},
        {"quantization_config": {"quant_method": "x"}},
        {"transformers_weights": "../other.safetensors"},
    ],
)
def test_hugging_face_config(tmp_path, config):
    """A Hugging Face config that requests code is refused."""
    stored = {"problem_type": "multi_label_classification", **config}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    with pytest.raises(ModelError, match="may run foreign code"):
        load_hf(str(tmp_path), ModelOptions())


@pytest.mark.parametrize("name", ["../stolen.safetensors", "/etc/passwd", "model.bin"])
def test_hugging_face_index(tmp_path, name):
    """A Hugging Face index may name only safetensors files of its own folder."""
    config = {"model_type": "vit", "problem_type": "multi_label_classification"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises(ModelError, match="not a safetensors file in the folder"):
        load_hf(str(tmp_path), ModelOptions())


def onnx_with(tmp_path, location: str, inside: bool = False) -> Path:
    """An ONNX file whose weights, or whose constant inside a node, lie in another file."""
    onnx = pytest.importorskip("onnx")
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[4, 3], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    value = onnx.helper.make_tensor_value_info
    constant = [onnx.helper.make_node("Constant", [], ["w"], value=tensor)] if inside else []
    nodes = [*constant, onnx.helper.make_node("MatMul", ["x", "w"], ["y"])]
    ends = [value("x", 1, [1, 4])], [value("y", 1, [1, 3])]
    graph = onnx.helper.make_graph(nodes, "g", *ends, [] if inside else [tensor])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m" / "model.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "m" / "model.onnx"


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "location",
    [
        *("../secret.bin", "sub/../../secret.bin", "link.bin", "{home}/secret.bin", "gone.bin", "", ".."),
        *("sub", "a\0b", "inner.bin", "sub/own.bin", "./own.bin", "{home}/m/own.bin", "c:own.bin", "sub\\own.bin"),
        "*/_ORT_MEM_ADDR_/*",  # onnxruntime 1.20 to 1.22 reads the address that the offset states
    ],
)
def test_onnx_external_files(tmp_path, location, inside):
    """An ONNX file reads only files of its folder that it names without a path, and no address in memory."""
    own = [tmp_path / "m" / name for name in ("own.bin", "sub/own.bin", "c:own.bin", "sub\\own.bin")]
    for path in (tmp_path / "secret.bin", *own, tmp_path / "m" / "*" / "_ORT_MEM_ADDR_" / "*"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(48))
    (tmp_path / "m" / "link.bin").symlink_to(tmp_path / "secret.bin")
    (tmp_path / "m" / "inner.bin").symlink_to(own[0])
    path = onnx_with(tmp_path, location.format(home=tmp_path), inside)
    with pytest.raises(ModelError, match="keeps tensors in"):
        load(f"onnx:{path}", labels=["a", "b", "c"], output="logits")


def test_onnx_precompiled_part(tmp_path):
    """An ONNX file with a precompiled part is refused."""
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("EPContext", ["x"], ["y"], domain="com.microsoft")
    graph = onnx.helper.make_graph([node], "g", [value("x", 1, [1, 3])], [value("y", 1, [1, 3])])
    (tmp_path / "m.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    with pytest.raises(ModelError, match="compiled for one machine"):
        load(f"onnx:{tmp_path / 'm.onnx'}", labels=["a", "b", "c"], output="logits")


def test_parquet_version():
    """The required pyarrow does not unpickle types that a file names."""
    import pyarrow as pa

    version = tuple(int(part) for part in pa.__version__.split(".")[:2])
    assert version >= (15, 0), "older ones unpickle types that a file names"
    assert "pyarrow>=16" in (SOURCE.parents[1] / "pyproject.toml").read_text()


# ------------------------------------------------------------------------------------ what is written where


@pytest.mark.parametrize("name", ["votes", "certificates", "figures", "tables", "arms", "model"])
def test_links_in_run_folder(tmp_path, name):
    """A link in a run folder leads no run out of it."""
    (tmp_path / "elsewhere").mkdir()
    out = tmp_path / "run"
    out.mkdir()
    (out / "run.json").write_bytes(encode_json(to_tree(RunRecord())))
    (out / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInputError, match="link that leads out"):
        run(parse_recipe(RECIPE, "tiny.yaml"), out=out)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_linked_run_folder(tmp_path):
    """A run folder may itself be a link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    check_inside(tmp_path / "run", tmp_path / "run" / "votes", tmp_path / "run" / "arms" / "sigma-1" / "votes")


def test_links_beside_results(tmp_path):
    """Links next to votes and certificates lead no writer away."""
    (tmp_path / "elsewhere").mkdir()
    random_votes(tmp_path / "run" / "votes", images=4, draws=50)
    (tmp_path / "run" / "certificates").symlink_to(tmp_path / "elsewhere")
    typed = ("certify", tmp_path / "run" / "votes", "--k", 3, "--k-prime", 2)
    code, _, err = command(*typed)
    assert (code, "link that leads out" in err) == (2, True)
    (tmp_path / "run" / "certificates").unlink()
    assert command(*typed)[0] == 0
    certified = read_certificates(tmp_path / "run" / "certificates")
    (tmp_path / "run" / "figures").symlink_to(tmp_path / "elsewhere")
    home = tmp_path / "run"
    with pytest.raises(InvalidInputError, match="link that leads out"):
        report(ReportConfig(), {"": certified}, out=home)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_linked_files(tmp_path):
    """A link in place of a file that we would write leads nowhere: it is refused, with --force or without."""
    votes = random_votes(tmp_path / "votes", images=4, draws=50)
    certified = certify_votes(CertifyConfig(3, 2, radius_step=0.5), votes)
    (tmp_path / "mine").write_text("mine")
    for name in ("certificates.parquet", "curves.csv", ".certificates.parquet.json"):
        out = tmp_path / f"c-{name}"
        out.mkdir()
        (out / name).symlink_to(tmp_path / "mine")
        with pytest.raises(InvalidInputError, match=r"is not replaced|is a link"):
            write_certificates(certified, out, force=True)
    assert (tmp_path / "mine").read_text() == "mine"


# ------------------------------------------------------------------------------------------- what is shown

SCRIPT = "<script>alert(1)</script>"
NAMES = (
    "\x1b]0;owned\x07",
    "[red]x[/red]",
    "a\x9b31mb",
    "\u202egnp.exe",
    "=cmd|' /C calc'!A0",
    "-1",
    "@a",
    "\t=1",
    "'=1",
)


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """Votes and certificates whose labels, images and commands have names that steer terminals and spreadsheets."""
    home = tmp_path_factory.mktemp("named")
    ranked = [np.tile([0, 1], (40, 1)), np.tile([2, 3], (40, 1))]
    names = {
        "label_names": (*NAMES, *(f"label {i}" for i in range(11))),
        "image_ids": ("\x1b[2J", "[bold]1"),
        "dataset": "\x1b]31md",
    }
    votes = stored_votes(home / "votes", ranked, [[0, 1], [2, 8]], **names)
    config = CertifyConfig(3, 2, radius_step=0.5, bands=0)
    certify_votes(config, votes, command=f"</code>{SCRIPT}", out=home / "c")
    return home


@pytest.fixture(scope="module")
def reported(named):
    """The report on these certificates: what was said, and the page."""
    page = named / "out" / "\x1b[31m.html"
    return command("report", named / "c", "--out", page), page


def steering(text: str) -> set[str]:
    """The characters in it that a terminal would obey, the ends of lines apart."""
    return {character for character in text if character != "\n" and printable(character) != character}


def test_terminal_control(named, reported, tmp_path):
    """Nothing from a file controls the terminal."""
    code, out, err = command("certify", named / "votes", "--k", "3", "--k-prime", "2", "--out", tmp_path / "c")
    assert (code, steering(out), steering(err)) == (0, set(), set())
    assert "\\u001b]31md" in out
    (code, out, err), _ = reported
    assert (code, steering(out), steering(err)) == (0, set(), set())
    code, out, err = command("certify", named / "\x1b[31m", "--k", "3", "--k-prime", "2")
    assert (code, steering(err)) == (2, set())
    assert "\\u001b[31m" in err


def test_linked_page(named, tmp_path):
    """A page that is a link is refused, not followed."""
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "page.html").symlink_to(tmp_path / "mine")
    code, _, err = command("report", named / "c", "--out", tmp_path / "page.html", "--force")
    assert (code, "page.html is not as multiguard wrote it, so it is not replaced" in err) == (2, True)
    assert (tmp_path / "mine").read_text() == "mine"


def test_script_in_command(reported):
    """A command from a file is escaped on the page."""
    text = reported[1].read_text()
    assert SCRIPT not in text
    assert "&lt;/code&gt;&lt;script&gt;" in text


def test_terminal_table():
    """A table on the terminal prints names literally."""
    from rich.table import Table

    console, table = PlainConsole(), Table("label")
    console.file = io.StringIO()
    for name in NAMES:
        table.add_row(name)
    console.print(table)
    assert steering(console.file.getvalue()) == set()
    assert "[red]x[/red]" in console.file.getvalue()


def test_csv_formulas(named, reported):
    """Every CSV is free of formulas."""
    written = [*reported[1].parent.rglob("*.csv"), *(named / "c").glob("*.csv")]
    assert written
    for path in written:
        for cell in (cell for row in csv.reader(path.open(encoding="utf-8", newline="")) for cell in row):
            number = re.fullmatch(r"-?[0-9.e+-]+|-?inf", cell)
            assert number or not re.match(r"[=+\-@\t\r\n]", cell), (path.name, cell)
