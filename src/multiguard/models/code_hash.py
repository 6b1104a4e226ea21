"""Which code of the user's makes and runs a model, as a hash of its source files."""

import hashlib
import sys
from pathlib import Path
from types import ModuleType

from multiguard.errors import ModelError
from multiguard.io.files import file_checksum
from multiguard.models.classifier import Classifier

_LIBRARIES = {"site-packages", "dist-packages"}


def code_hash(home: ModuleType, maker: object, classifier: Classifier) -> str:
    """The sha256 of the module's file and of the user's other files that define the maker, the network and its parts.

    Installed libraries are left to their versions. What these files import beside that is not covered.

    Args:
        home: The module that was named.
        maker: What in it returned the model.
        classifier: The model.
    """
    names = {name for thing in (maker, *_parts(classifier)) for name in _defined_in(thing)}
    own = {name: file for name in names if (file := _own_file(name, home)) is not None}
    files = {**own, home.__name__: _home_file(home)}
    listed = "".join(f"{name} {file_checksum(file)};" for name, file in sorted(files.items()))
    return hashlib.sha256(listed.encode()).hexdigest()


def _parts(classifier: Classifier) -> list[object]:
    """The classifier and all modules in it, with the plain callables that classifiers among them run."""
    modules = list(classifier.modules())
    return [*modules, *(module.network for module in modules if isinstance(module, Classifier))]


def _defined_in(thing: object) -> set[str]:
    """The modules of a function, a class or an object, those of base classes among them."""
    kind = thing if isinstance(thing, type) else type(thing)
    found = {getattr(thing, "__module__", None), *(base.__module__ for base in kind.__mro__)}
    return {name for name in found if isinstance(name, str)}


def _own_file(name: str, home: ModuleType) -> Path | None:
    """The file of a module that is the user's: in the named module's package, or not of a library."""
    file = _file(sys.modules.get(name))
    top = name.partition(".")[0]
    if file is None or top == home.__name__.partition(".")[0]:
        return file
    library = top == "multiguard" or top in sys.stdlib_module_names or not _LIBRARIES.isdisjoint(file.parts)
    return None if library else file


def _home_file(home: ModuleType) -> Path:
    file = _file(home)
    if file is None:
        raise ModelError(
            f"{home.__name__} has no file of its own to tell its code from others; write the function into a .py file."
        )
    return file


def _file(module: ModuleType | None) -> Path | None:
    name = getattr(module, "__file__", None)
    return Path(name) if name is not None and Path(name).is_file() else None
