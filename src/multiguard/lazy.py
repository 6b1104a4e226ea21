"""Packages whose names are imported when they are first used, so that a part of multiguard costs only that part."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that takes these names from these modules in it.

    Example:
        >>> get = lazy_names("multiguard", {"version": ["__version__"]})
        >>> get("__version__")[0].isdigit()
        True
        >>> get("nothing")
        Traceback (most recent call last):
        AttributeError: module 'multiguard' has no attribute 'nothing'
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return get
