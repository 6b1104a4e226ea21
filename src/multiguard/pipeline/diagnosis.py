"""The state of this installation: what a bug report needs, and the usual causes of trouble."""

import os
import platform
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from multiguard.errors import FolderInUseError, MultiGuardError
from multiguard.io.lock import NoLocksWarning, folder_lock
from multiguard.pipeline.folders import content_of
from multiguard.version import __version__

_PACKAGES = (
    *("numpy", "scipy", "pyarrow", "pillow", "matplotlib", "msgspec", "typer", "scikit-learn"),
    *("torch", "torchvision", "accelerate", "safetensors", "timm", "transformers", "onnx", "onnxruntime"),
    *("jinja2", "starlette", "uvicorn"),
    "cryptography",
)
_ENVIRONMENT = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "WORLD_SIZE", "RANK", "TMPDIR"),
    *("NVIDIA_TF32_OVERRIDE", "PYTHONHASHSEED", "HF_HUB_OFFLINE"),
)
_LEAST_SPACE = 1 << 30  # bytes on a disk that we write to
_GPU_FILES = ("/dev/nvidia0", "/dev/dxg", "/dev/kfd")


@dataclass
class Diagnosis:
    """What was found."""

    facts: dict[str, str] = field(default_factory=dict)  # by name, in the order in which they are shown
    problems: list[str] = field(default_factory=list)  # each with its remedy


def diagnose(folder: Path | None = None) -> Diagnosis:
    """Look at the installation and, if one is named, at a folder to read from or write to. Nothing is fetched.

    >>> "multiguard" in diagnose().facts
    True
    """
    found = Diagnosis()
    found.facts["multiguard"] = __version__
    found.facts["python"] = f"{platform.python_version()} ({platform.python_implementation()})"
    found.facts["system"] = platform.platform()
    found.facts["packages"] = ", ".join(_versions())
    _look_at_processors(found)
    _look_at_torch(found)
    _look_at_torchvision(found)
    given = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    found.facts["environment"] = ", ".join(f"{name}={value}" for name, value in given.items()) or "nothing set"
    _look_at_space(found, "temporary files", Path(tempfile.gettempdir()), "set TMPDIR to a folder on another disk")
    if folder is not None:
        _look_at_folder(found, folder)
    return found


def _versions() -> Iterator[str]:
    for name in _PACKAGES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name} -"


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _look_at_processors(found: Diagnosis) -> None:
    cores = usable_cores()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    found.facts["processor"] = f"{cores} of {os.cpu_count()} cores, load {load:.1f}, {_size(memory)} of memory"
    if load > 2 * cores:
        found.problems.append(f"other work keeps the processor busy: load {load:.1f} on {cores} cores; wait for it")


def _look_at_torch(found: Diagnosis) -> None:
    try:
        import torch
    except ImportError as error:
        found.facts["torch"] = f"cannot be imported: {_one_line(error)}"
        found.problems.append("without torch only certify, report and verify work: pip install 'multiguard[torch]'")
        return
    threads, ranks = torch.get_num_threads(), int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1)
    cuda = torch.version.cuda or torch.version.hip
    found.facts["torch"] = f"{torch.__version__}, {f'built for {cuda}' if cuda else 'CPU build'}, {threads} threads"
    found.facts["devices"] = ", ".join(_devices()) or "no GPU"
    found.facts["precision"] = ", ".join(f"{name} {value}" for name, value in _precision().items())
    if cuda and not torch.cuda.is_available():
        found.problems.append(
            f"torch is built for CUDA {cuda} and finds no GPU: look at the driver (nvidia-smi) and at "
            "CUDA_VISIBLE_DEVICES, or use --device cpu"
        )
    if not cuda and any(Path(name).exists() for name in _GPU_FILES):
        found.problems.append("there is a GPU, and torch is a CPU build: install torch for it (pytorch.org)")
    if threads * ranks > usable_cores():
        found.problems.append(
            f"{threads * ranks} threads share {usable_cores()} cores, which is slow: set OMP_NUM_THREADS to "
            f"{max(1, usable_cores() // ranks)}"
        )


def _devices() -> Iterator[str]:
    import torch

    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        yield f"cuda:{index} {properties.name} ({_size(properties.total_memory)})"
    if torch.backends.mps.is_available():
        yield "mps"


def _precision() -> dict[str, Any]:
    """The flags that decide the last digits of scores."""
    import torch

    from multiguard.smooth.fingerprint import tf32_flags

    return {
        **tf32_flags(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }


def _look_at_torchvision(found: Diagnosis) -> None:
    """Importing it shows whether it was built for this torch; multiguard itself works beside a broken one."""
    if "torch" not in sys.modules:
        return
    try:
        import torchvision

        found.facts["torchvision"] = f"{torchvision.__version__}, can be imported"
    except ModuleNotFoundError as error:
        if error.name == "torchvision":
            found.facts["torchvision"] = "not installed; none is needed"
            return
        _broken_torchvision(found, error)
    except Exception as error:
        _broken_torchvision(found, error)


def _broken_torchvision(found: Diagnosis, error: Exception) -> None:
    found.facts["torchvision"] = f"cannot be imported: {_one_line(error)}"
    found.problems.append(
        "torchvision was built for another torch; models that need its operators fail: install the torchvision that "
        "belongs to this torch, or uninstall it"
    )


def _look_at_space(found: Diagnosis, name: str, folder: Path, remedy: str) -> None:
    try:
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        found.facts[name] = f"{folder}: {error.strerror}"
        found.problems.append(f"{folder} cannot be written to ({error.strerror}); {remedy}")
        return
    found.facts[name] = f"{folder}: {_size(free)} free"
    if free < _LEAST_SPACE:
        found.problems.append(f"only {_size(free)} are free for {folder}; {remedy}")


def _look_at_folder(found: Diagnosis, folder: Path) -> None:
    if not folder.is_dir():
        found.facts["folder"] = f"{folder}: no such folder"
        found.problems.append(f"{folder} is not a folder; check the path")
        return
    _look_at_space(found, "folder", folder, "make room, or name a folder on another disk")
    found.facts["content"] = " and ".join(content_of(folder)) or "nothing of multiguard"
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoLocksWarning)
        try:
            with folder_lock(folder):
                found.facts["locks"] = "work"
        except NoLocksWarning:
            found.facts["locks"] = "not supported"
            found.problems.append(f"{folder} is on a file system without locks: let one command write there at a time")
        except FolderInUseError as error:
            found.facts["locks"] = f"work: {error}"
        except (MultiGuardError, OSError) as error:
            found.facts["locks"] = f"not tried: {_one_line(error)}"


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
