"""Models given as Python objects or by the name of a function, and the hash of the user's own code."""

import importlib
import sys
import types

import numpy as np
import pytest
import torch
from small_models import LABELS, small_network, votes_of
from torch import nn

from multiguard.errors import ModelError
from multiguard.models import load


def test_module_and_callable():
    """A module and a callable with the same scores have the same votes."""
    network = small_network()
    as_module = load(network, labels=LABELS, output="logits")
    as_callable = load(lambda x: network(x).sigmoid(), labels=LABELS, output="probabilities")
    assert (as_module.output, as_callable.output) == ("logits", "probabilities")
    assert np.array_equal(votes_of(as_module), votes_of(as_callable))
    assert as_callable.weights_hash is None


def test_function_that_returns_classifier():
    """A Classifier that a function returns keeps its own options."""
    classifier = load("toy_models:a_classifier")
    assert (classifier.name, classifier.output) == ("my own", "probabilities")


def test_undeclared_options():
    """Labels are counted by the first input; the kind of scores is declared, and only where it is known."""
    classifier = load(small_network())
    assert (classifier.num_labels, classifier.output) == (None, None)
    with pytest.raises(ModelError, match="give labels="):
        _ = classifier.label_names
    classifier.ready(np.zeros((2, 3, 8, 8), np.float32))
    assert classifier.label_names == ("0", "1", "2", "3")
    with pytest.raises(ModelError, match="'scores'"):
        load(small_network(), labels=LABELS, output="scores")
    with pytest.raises(ModelError, match="has its own weights"):
        load(small_network(), labels=LABELS, output="logits", weights="x.pth")


@pytest.mark.parametrize("method", ["forward", "__call__"])
def test_method_of_module(method):
    """A method of a module is refused: it would hide the module."""
    with pytest.raises(ModelError, match="give the module itself"):
        load(getattr(small_network(), method), labels=LABELS, output="logits")


OWN_FILE = """
import sys
import numpy as np
import torch
from torch import nn
from beside_own_model import WIDTH

net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, WIDTH))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net
    def forward(self, images): return self.body(images)
def build(): return net
def scores(images): return images.flatten(1)[:, :4]
def array_scores(images): return images.reshape(len(images), -1)[:, :4].astype(np.float64)
def pair(images, labels): return images
def leaves(): sys.exit(3)
def breaks(): raise ValueError("no weights\\nhere")
def nothing(): return None
class Callable:
    def __call__(self, images): return scores(images)
thing = Callable()
"""


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    """A file of the user's in the current folder."""
    (tmp_path / "own_model.py").write_text(OWN_FILE)
    (tmp_path / "beside_own_model.py").write_text("WIDTH = 4\n")
    (tmp_path / "broken_model.py").write_text("import no_such_library\n")
    (tmp_path / "torch.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in ("own_model", "beside_own_model"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("file", ["own_model.py", "{home}/own_model.py", "own_model"])
@pytest.mark.parametrize("name", ["net", "Net", "build", "scores", "array_scores", "thing"])
def test_file_in_current_folder(own_file, file, name):
    """A model, a class, a function that makes one and a function of a batch are all taken, by file or by module."""
    classifier = load(f"{file.format(home=own_file)}:{name}", labels=LABELS)
    assert classifier(torch.rand(2, 3, 8, 8)).shape == (2, 4)
    assert classifier.code_hash is not None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("own_model.py:bild", "unknown name in own_model.py 'bild': did you mean 'build'"),
        ("own_model.py:pair", "requires 2 arguments"),
        ("own_model.py:leaves", "failed when it was called without arguments: SystemExit: 3"),
        ("own_model.py:breaks", "ValueError: no weights here"),
        ("own_model.py:nothing", "not NoneType"),
        ("own_model.py:WIDTH", "is of type int"),
        ("broken_model.py:net", "cannot be imported: ModuleNotFoundError: No module named 'no_such_library'"),
        ("torch.py:x", "torch is the name of a module that is loaded already; rename the file"),
    ],
)
def test_mistakes_in_own_file(own_file, spec, message):
    """Every mistake is one line."""
    with pytest.raises(ModelError, match=message) as raised:
        load(spec, labels=LABELS)
    assert "\n" not in str(raised.value)


FILES = {
    "own_package/__init__.py": "from own_package.making import build, build_classifier, build_function, Net\n",
    "own_package/making.py": """
        from multiguard.models import Classifier
        from own_package.functions import scores
        from own_package.nets import Net
        def build(): return Net()
        def build_function(): return scores
        def build_classifier(): return Classifier(scores, list("abcd"), output="logits", name="own")
        """,
    "own_package/nets.py": """
        from own_beside import Base
        from own_package.parts import Part
        class Net(Base):
            def __init__(self):
                super().__init__()
                self.part = Part()
        """,
    "own_package/parts.py": """
        from torch import nn
        from own_package.helpers import four
        class Part(nn.Module):
            def forward(self, images): return four(images)
        """,
    "own_package/functions.py": "def scores(images): return images.flatten(1)[:, :4]\n",
    "own_package/helpers.py": "def four(images): return images.flatten(1)[:, :4]\n",
    "own_beside.py": """
        from torch import nn
        class Base(nn.Module):
            def forward(self, images): return self.part(images)
        """,
}

SHARED = {"own_package/__init__.py", "own_package/making.py"}

NET = {"own_package/nets.py", "own_package/parts.py", "own_beside.py"}

COVERED = {
    "build": SHARED | NET,
    "Net": {"own_package/__init__.py"} | NET,
    "build_function": SHARED | {"own_package/functions.py"},
    "build_classifier": SHARED | {"own_package/functions.py"},
}


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in {"own_package", "own_beside", "own_file"}]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def code_folder(tmp_path, monkeypatch):
    """A folder that modules are imported from."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    forget()


def write(folder) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(
            "\n".join(line[8:] if line.startswith(" " * 8) else line for line in text.split("\n"))
        )


def hashed(maker: str) -> str | None:
    forget()
    options = {} if maker == "build_classifier" else {"labels": LABELS, "output": "logits"}
    return load(f"own_package:{maker}", **options).code_hash


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("maker", COVERED)
def test_code_hash(code_folder, maker, file):
    """The hash covers the files that make and run the model, and no others."""
    write(code_folder)
    before = hashed(maker)
    assert hashed(maker) == before
    with (code_folder / file).open("a") as text:
        text.write("# edited\n")
    assert (hashed(maker) != before) == (file in COVERED[maker])


def test_code_hash_of_moved_files(code_folder, monkeypatch):
    """Moved files are the same code."""
    (code_folder / "elsewhere").mkdir()
    write(code_folder)
    before = hashed("build")
    write(code_folder / "elsewhere")
    monkeypatch.syspath_prepend(code_folder / "elsewhere")
    assert hashed("build") == before
    assert sys.modules["own_package"].__file__ == str(code_folder / "elsewhere" / "own_package" / "__init__.py")


def test_module_without_file(monkeypatch):
    """A module without a file is refused."""
    module = types.ModuleType("made_up")
    module.build = nn.Flatten
    monkeypatch.setitem(sys.modules, "made_up", module)
    with pytest.raises(ModelError, match=r"made_up has no file to identify its code by.*\.py file"):
        load("made_up:build", labels=LABELS, output="logits")
