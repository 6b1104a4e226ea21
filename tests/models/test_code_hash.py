"""An edit of the user's own model code is known, wherever the files lie."""

import hashlib
import importlib
import sys
import types

import pytest
import torch
from torch import nn

from multiguard.errors import ModelError
from multiguard.models import Classifier, load_classifier
from multiguard.models.denoiser import FFDNet, denoise_first

LABELS = list("abcd")
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
def place(tmp_path, monkeypatch):
    """A folder of the user's that modules are imported from."""
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
    return load_classifier(f"own_package:{maker}", **options).code_hash


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("maker", COVERED)
def test_the_files_that_make_and_run_the_model_are_covered(place, maker, file):
    write(place)
    before = hashed(maker)
    assert hashed(maker) == before
    with (place / file).open("a") as text:
        text.write("# edited\n")
    assert (hashed(maker) != before) == (file in COVERED[maker])


def test_files_that_were_moved_are_the_same_code(place, monkeypatch):
    (place / "elsewhere").mkdir()
    write(place)
    before = hashed("build")
    write(place / "elsewhere")
    monkeypatch.syspath_prepend(place / "elsewhere")
    assert hashed("build") == before
    assert sys.modules["own_package"].__file__ == str(place / "elsewhere" / "own_package" / "__init__.py")


def test_installed_libraries_are_not_hashed(place):
    text = b"from torch import nn\ndef build(): return nn.Sequential(nn.Flatten(), nn.Linear(12, 4))\n"
    (place / "own_file.py").write_bytes(text)
    found = load_classifier("own_file:build", labels=LABELS, output="logits").code_hash
    assert found == hashlib.sha256(f"own_file {hashlib.sha256(text).hexdigest()};".encode()).hexdigest()


def test_a_denoiser_in_front_changes_no_code(place):
    write(place)
    classifier = load_classifier("own_package:build_classifier")
    assert denoise_first(classifier, FFDNet(), 0.5).code_hash == classifier.code_hash is not None


@pytest.mark.parametrize(
    "model", [nn.Flatten(), torch.flatten, Classifier(nn.Flatten(), LABELS, output="logits", name="x")]
)
def test_what_is_handed_over_from_python_has_none(model):
    options = {} if isinstance(model, Classifier) else {"labels": LABELS, "output": "logits"}
    assert load_classifier(model, **options).code_hash is None


def test_a_module_without_a_file_is_refused(monkeypatch):
    module = types.ModuleType("made_up")
    module.build = nn.Flatten
    monkeypatch.setitem(sys.modules, "made_up", module)
    with pytest.raises(ModelError, match=r"made_up has no file of its own.*\.py file"):
        load_classifier("made_up:build", labels=LABELS, output="logits")
