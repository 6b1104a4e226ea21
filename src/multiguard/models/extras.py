"""Libraries that only some models need, imported when such a model is loaded."""

import importlib
from typing import Any

from multiguard.errors import ModelError


def require(module: str, extra: str) -> Any:
    """The imported module, or a `ModelError` that names the extra to install."""
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:  # the latter where torchvision was built for another torch
        raise ModelError(
            f"this model needs {module}, which does not import ({error}); pip install 'multiguard[{extra}]'."
        ) from error


def first_line(error: BaseException) -> str:
    """What an error of another library says first, or its kind where it says nothing."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
