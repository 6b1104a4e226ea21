import shutil

import pytest
from tests.pipeline.tiny_run import RECIPE, command


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished tiny run; not to be changed."""
    home = tmp_path_factory.mktemp("finished")
    (home / "tiny.yaml").write_text(RECIPE)
    code, out, err = command("run", home / "tiny.yaml", "--out", home / "run")
    assert code == 0, err
    return home, out


@pytest.fixture
def home(finished, tmp_path):
    """A copy of the finished run, to change: tiny.yaml and run/."""
    shutil.copytree(finished[0], tmp_path / "home")
    return tmp_path / "home"
