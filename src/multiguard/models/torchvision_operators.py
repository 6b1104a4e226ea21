"""A torchvision that was built for another torch, made importable for timm and transformers.

Such a torchvision cannot load its compiled operators, and its import then fails: it describes the operator `nms` to
torch, which does not know it. timm and transformers import torchvision for image transforms and never call these
operators. So they are declared here, by name and without any implementation: calling one still fails.
"""

import importlib.util
import sys

import torch

_OPERATORS = ("nms", "qnms")
_declared: list[torch.library.Library] = []  # torch forgets the operators of a library that is deleted


def declare_absent_operators() -> None:
    """Make torchvision importable where its compiled operators are absent; change nothing where it imports."""
    if _declared or "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            return
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # what the failed import left behind
        library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for name in _OPERATORS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
        _declared.append(library)
