"""Models that are Python objects: a `Classifier`, a module, a callable, or a `module:function` that returns one."""

import hashlib
import importlib
import sys
from pathlib import Path
from types import ModuleType

from torch import nn

from multiguard.errors import ModelError
from multiguard.io.files import file_checksum
from multiguard.models.classifier import UNNAMED, Classifier, ModelOptions, state_hash
from multiguard.models.estimator import is_estimator, wrap_estimator
from multiguard.models.host_network import FunctionNetwork
from multiguard.models.onnx_file import is_session, wrap_session

_LIBRARIES = {"site-packages", "dist-packages"}


def wrap_model(model: object, options: ModelOptions, spec: str | None = None) -> Classifier:
    """The object as a `Classifier`, with the labels and the kind of scores that it has itself where none are given.

    A `Classifier` declares them all and is returned as it is. `spec` names the object in messages and records.
    """
    if isinstance(model, Classifier):
        options.refuse_all(spec or "a Classifier")
        return model
    if isinstance(model, nn.Module):
        return _wrap_module(model, options, spec or type(model).__name__)
    spec = spec or UNNAMED
    options.refuse_weights(spec)
    if is_session(model):
        return wrap_session(model, options, spec)
    if is_estimator(model):
        return wrap_estimator(model, options, spec)
    if not callable(model):
        kinds = "a Classifier, a torch module, a function, a scikit-learn estimator or an ONNX session"
        raise ModelError(f"{spec} must be {kinds}, not {type(model).__name__}.")
    if isinstance(getattr(model, "__self__", None), nn.Module):
        raise ModelError(
            f"{spec} is a method of a torch module, which would hide the module from evaluation mode, from the device "
            "and from the record of its weights; give the module itself."
        )
    return options.make_classifier(FunctionNetwork(model), spec, None)


def _wrap_module(module: nn.Module, options: ModelOptions, spec: str) -> Classifier:
    """A torch module; a Hugging Face model names its labels and returns logits."""
    options.refuse_weights(spec)
    names = getattr(getattr(module, "config", None), "id2label", None)
    if isinstance(names, dict):
        taken = getattr(module, "main_input_name", "pixel_values")
        if taken == "input_ids":
            raise ModelError(
                f"{spec} takes token ids, which noise cannot change a little; give a function of embeddings."
            )
        if options.output == "probabilities":
            raise ModelError(f"{spec} returns logits; leave out output='probabilities'.")
        options.check_count(len(names), spec)
        options = options.fill(labels=[str(names[index]) for index in sorted(names)], output="logits")
    return options.make_classifier(module, spec, state_hash(module))


def load_function(spec: str, options: ModelOptions) -> Classifier:
    """What `module:function` returns when called without arguments; the only kind of model that runs user code."""
    module_name, _, function_name = spec.partition(":")
    try:
        module = importlib.import_module(module_name)
        maker = getattr(module, function_name)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"{spec} names no function that can be imported: {error}") from error
    if not callable(maker):
        raise ModelError(f"{spec} is of type {type(maker).__name__}; it must be a function that returns the model.")
    classifier = wrap_model(maker(), options, spec)
    classifier.code_hash = code_hash(module, maker, classifier)
    return classifier


def code_hash(home: ModuleType, maker: object, classifier: Classifier) -> str:
    """The sha256 of the module's file and of the user's other files that define the maker, the network and its parts.

    Installed libraries are covered by their recorded versions. Other imports of these files are not covered.
    """
    home_file = _file(home)
    if home_file is None:
        raise ModelError(f"{home.__name__} has no file to identify its code by; move the function into a .py file.")
    modules = list(classifier.modules())
    parts = [maker, *modules, *(_own_part(module.network) for module in modules if isinstance(module, Classifier))]
    names = {name for part in parts for name in _defining_modules(part)}
    files = {name: file for name in names if (file := _user_file(name, home)) is not None} | {home.__name__: home_file}
    listing = "".join(f"{name} {file_checksum(file)};" for name, file in sorted(files.items()))
    return hashlib.sha256(listing.encode()).hexdigest()


def _own_part(network: object) -> object:
    return network.function if isinstance(network, FunctionNetwork) else network


def _defining_modules(part: object) -> set[str]:
    """The modules of a function, class or object, and of its base classes."""
    kind = part if isinstance(part, type) else type(part)
    names = {getattr(part, "__module__", None), *(base.__module__ for base in kind.__mro__)}
    return {name for name in names if isinstance(name, str)}


def _user_file(name: str, home: ModuleType) -> Path | None:
    """The file of a module in the named module's package or outside of all libraries; None for a library's."""
    file = _file(sys.modules.get(name))
    top = name.partition(".")[0]
    if file is None or top == home.__name__.partition(".")[0]:
        return file
    library = top == "multiguard" or top in sys.stdlib_module_names or not _LIBRARIES.isdisjoint(file.parts)
    return None if library else file


def _file(module: ModuleType | None) -> Path | None:
    name = getattr(module, "__file__", None)
    return Path(name) if name is not None and Path(name).is_file() else None
