"""A user's own models: Python objects, and what `module:function` or `file.py:function` names."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from multiguard.errors import ModelError, MultiGuardError
from multiguard.io.files import file_checksum
from multiguard.io.names import unknown_name
from multiguard.models.classifier import UNNAMED, Classifier, ModelOptions, is_module
from multiguard.models.image_processor import PREPROCESSOR, config_labels
from multiguard.models.spec import summary

if TYPE_CHECKING:
    from torch import nn

    from multiguard.models.backbone import Backbone

_LIBRARIES = {"site-packages", "dist-packages"}  # parts of the path of an installed package


def is_model(found: object) -> bool:
    """Whether the object is a model already, not a function that may make one."""
    if isinstance(found, type):
        return False
    return isinstance(found, Classifier) or is_module(found) or _is_session(found) or _is_estimator(found)


def _is_session(model: object) -> bool:
    return all(hasattr(model, name) for name in ("get_inputs", "get_outputs", "run"))


def _is_estimator(model: object) -> bool:
    return hasattr(model, "predict_proba") or hasattr(model, "decision_function")


def wrap_model(model: Any, options: ModelOptions, spec: str | None = None) -> Classifier:
    """The object as a `Classifier`, with the labels and the kind of scores that it has itself where none are given.

    A `Classifier` declares them all and is returned as it is. `spec` names the object in messages and records.
    """
    if isinstance(model, Classifier):
        options.refuse_all(spec or "a Classifier")
        return model.module() if is_module(model.network) else model
    if type(model).__name__ == "ExportedProgram":
        model = model.module()
    if is_module(model):
        return _wrap_module(model, options, spec or type(model).__name__)
    spec = spec or UNNAMED
    options.refuse_weights(spec)
    if _is_session(model):
        from multiguard.models.onnx import wrap_session

        return wrap_session(model, options, spec)
    if _is_estimator(model):
        from multiguard.models.sklearn import wrap_estimator

        return wrap_estimator(model, options, spec)
    if not callable(model):
        kinds = "a Classifier, a torch module, a function, a scikit-learn estimator or an ONNX session"
        raise ModelError(f"{spec} must be {kinds}, not {type(model).__name__}.")
    if is_module(getattr(model, "__self__", None)):
        raise ModelError(
            f"{spec} is a method of a torch module, which would hide the module from evaluation mode, from the device "
            "and from the record of its weights; give the module itself."
        )
    return options.make_classifier(model, spec, None)


def _wrap_module(module: Any, options: ModelOptions, spec: str) -> Classifier:
    """A torch module; a Hugging Face model names its labels and returns logits."""
    from multiguard.models.torch_model import state_hash

    options.refuse_weights(spec)
    config = getattr(module, "config", None)
    names = getattr(config, "id2label", None)
    if isinstance(names, dict):
        taken = getattr(module, "main_input_name", "pixel_values")
        if taken == "input_ids":
            raise ModelError(
                f"{spec} takes token ids, which noise cannot change a little; give a function of embeddings."
            )
        if options.output == "probabilities":
            raise ModelError(f"{spec} returns logits; leave out output='probabilities'.")
        options.check_count(len(names), spec)
        labels = config_labels(names, getattr(config, "label2id", None), spec)
        if options.mean is None and options.std is None:
            warnings.warn(
                f"{spec}: its {PREPROCESSOR} is not applied, as it is no part of the object; if it normalises images, "
                "give load(..., mean=[...], std=[...]), or load the folder, 'hf:FOLDER'",
                stacklevel=4,
            )
        options = options.fill(labels=labels, output="logits")
    return options.make_classifier(module, spec, state_hash(module))


def load_code(spec: str, options: ModelOptions) -> Classifier:
    """The model that `module:name` or `file.py:name` names; the only kind of model that runs user code.

    The name stands for a model, for a function of a batch that returns its scores (one required argument), or for a
    function or class that is called without arguments and returns one of these.
    """
    module, found = find_code(spec)
    classifier = _filled(made_model(found, spec), options, spec)
    classifier.code_hash = code_hash(module, found, classifier)
    return classifier


def _filled(model: Any, options: ModelOptions, spec: str) -> Classifier:
    """The model, with the weights that are given: of a folder that was trained from it, or of a file."""
    if options.weights is None:
        return wrap_model(model, options, spec)
    from multiguard.models.model_folder import load_folder
    from multiguard.models.weight_files import load_weights, read_weights

    own, rest = deepcopy(model), replace(options, weights=None)
    network = _trainable(own, spec)
    if options.weights.is_dir():
        rest.refuse_all(str(options.weights))
        return load_folder(options.weights, network)
    load_weights(network, read_weights(options.weights), str(options.weights))
    return wrap_model(own, rest, spec)


def _trainable(model: Any, spec: str) -> "nn.Module":
    """The torch module of a model, which has weights to fill and to train."""
    network = model.network if isinstance(model, Classifier) else model
    if not is_module(network):
        kind = type(network).__name__
        raise ModelError(f"{spec}: a {kind} has no weights to fill or train; leave out weights, or give a module.")
    return cast("nn.Module", network)


def code_backbone(spec: str, labels: Sequence[str], weights: str | None) -> "Backbone":
    """A copy of the module that the user's code makes, to be trained.

    It takes pixels in [0, 1] unless the code makes a `Classifier`, which has its own mean and standard deviation.
    """
    from multiguard.models.backbone import Backbone
    from multiguard.models.model_folder import load_backbone
    from multiguard.models.weight_files import load_weights, read_weights

    module, found = find_code(spec)
    model = deepcopy(made_model(found, spec))
    network, classifier = _trainable(model, spec), wrap_model(model, ModelOptions(), spec)
    digest, named = code_hash(module, found, classifier), classifier.num_labels is not None
    if weights is not None and Path(weights).is_dir():
        return replace(load_backbone(Path(weights), network=network), architecture=spec, code_hash=digest)
    if weights is not None:
        load_weights(network, read_weights(Path(weights)), weights)
    if named and classifier.label_names != tuple(labels):
        raise ModelError(f"{spec} names other labels than the data, or in another order.")
    mean, std = classifier.mean, classifier.std
    return Backbone(
        spec,
        network,
        (0.0,) if mean is None else tuple(mean.flatten().tolist()),
        (1.0,) if std is None else tuple(std.flatten().tolist()),
        (classifier.image_size or (0, 0))[0],
        own_head=weights is not None and not named,
        code_hash=digest,
    )


def find_code(spec: str) -> tuple[ModuleType, Any]:
    """The module and the object in it that the spec names; an error of the user's code is one line."""
    name, _, attribute = spec.rpartition(":")
    try:
        module = _import_file(Path(name)) if name.endswith(".py") else _import_module(name)
    except MultiGuardError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(f"{spec}: {name} cannot be imported: {_named(error)}") from error
    if not hasattr(module, attribute):
        known = [one for one in vars(module) if not one.startswith("_")]
        raise ModelError(f"{spec}: {unknown_name(f'name in {name}', attribute, known)}")
    return module, getattr(module, attribute)


def made_model(found: Any, spec: str) -> Any:
    """The model itself: the object that is named, or what it returns when it is called without arguments."""
    if is_model(found):
        return found
    if not callable(found):
        kinds = "a model, a function of a batch, or a function that returns one of them"
        raise ModelError(f"{spec} is of type {type(found).__name__}; expected {kinds}.")
    if (required := _required_arguments(found)) == 1 and not isinstance(found, type):
        return found
    if required:
        raise ModelError(
            f"{spec} requires {required} arguments; expected a function of one batch that returns its scores, or one "
            "without arguments that returns the model."
        )
    try:
        return found()
    except MultiGuardError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(f"{spec} failed when it was called without arguments: {_named(error)}") from error


def _required_arguments(function: Any) -> int:
    """How many arguments a function needs; 1, a batch, where it does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    named = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return sum(one.default is one.empty and one.kind not in named for one in parameters)


def _import_module(name: str) -> ModuleType:
    """A module of the Python path, or of the current folder, as `python -m` finds it."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    return importlib.import_module(name)


def _import_file(path: Path) -> ModuleType:
    """The module in a file; files in the same folder can be imported by it, as if it were run."""
    path = path.resolve()
    loaded = sys.modules.get(path.stem)
    if loaded is not None and source_file(loaded) == path:
        return loaded
    if loaded is not None or not path.is_file():
        reason = "is the name of a module that is loaded already; rename the file" if loaded else "is no such file"
        raise ModelError(f"{path.stem if loaded else path} {reason}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None:
        raise ModelError(f"{path} is no Python file")
    module = sys.modules[path.stem] = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {summary(error)}" if str(error) else type(error).__name__


def code_hash(home: ModuleType, maker: object, classifier: Classifier) -> str:
    """The sha256 of the module's file and of the user's other files that define the maker, the network and its parts.

    Installed libraries are covered by their recorded versions. Other imports of these files are not covered.
    """
    home_file = source_file(home)
    if home_file is None:
        raise ModelError(f"{home.__name__} has no file to identify its code by; move the function into a .py file.")
    modules = list(_trainable(classifier, "").modules()) if is_module(classifier.network) else []
    networks = [module.network for module in modules if isinstance(module, Classifier)]
    parts = [maker, classifier.network, *modules, *networks]
    names = {name for part in parts for name in _defining_modules(part)}
    files = {name: file for name in names if (file := _user_file(name, home)) is not None} | {home.__name__: home_file}
    listing = "".join(f"{name} {file_checksum(file)};" for name, file in sorted(files.items()))
    return hashlib.sha256(listing.encode()).hexdigest()


def _defining_modules(part: object) -> set[str]:
    """The modules of a function, class or object, and of its base classes."""
    kind = part if isinstance(part, type) else type(part)
    names = {getattr(part, "__module__", None), *(base.__module__ for base in kind.__mro__)}
    return {name for name in names if isinstance(name, str)}


def _user_file(name: str, home: ModuleType) -> Path | None:
    """The file of a module in the named module's package or outside of all libraries; None for a library's."""
    same = name.partition(".")[0] == home.__name__.partition(".")[0]
    return source_file(sys.modules.get(name)) if same or not is_library(name) else None


def source_file(module: ModuleType | None) -> Path | None:
    """The file of a module; None where it has none, as in a notebook."""
    name = getattr(module, "__file__", None)
    return Path(name) if name is not None and Path(name).is_file() else None


def is_library(name: str) -> bool:
    """Whether a module is Python's, multiguard's or an installed package's, not the user's own, such as `__main__`."""
    file, top = getattr(sys.modules.get(name), "__file__", None), name.partition(".")[0]
    own = top not in ("multiguard", *sys.stdlib_module_names) and _LIBRARIES.isdisjoint(Path(str(file)).parts)
    return name != "__main__" and (file is None or not own)
