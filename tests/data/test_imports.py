import subprocess
import sys

PROBE = "import sys; import {module}; print('torch' in sys.modules)"


def torch_comes_with(module):
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(module=module)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip() == "True"


def test_the_data_room_imports_without_torch():
    assert not torch_comes_with("multiguard.data")


def test_the_probe_can_fail():
    assert torch_comes_with("multiguard.models.classifier")
