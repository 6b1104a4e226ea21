"""Models that are Python objects: a `Classifier`, a module, a callable, or a `module:function` making one."""

import importlib
import inspect
from pathlib import Path

from torch import nn

from multiguard.errors import ModelError
from multiguard.files import files_hash
from multiguard.models.classifier import Classifier
from multiguard.models.options import ModelOptions, state_hash


def wrap(model: object, options: ModelOptions, spec: str) -> Classifier:
    """The model as a `Classifier`; labels and the kind of its scores must be declared.

    A `Classifier` says all this itself and is returned as it is.
    """
    if isinstance(model, Classifier):
        options.refuse_all(spec)
        return model
    options.refuse_weights(spec)
    if not callable(model):
        raise ModelError(f"{spec} must be a Classifier, a torch module or a callable, not {type(model).__name__}.")
    if isinstance(getattr(model, "__self__", None), nn.Module):
        raise ModelError(
            f"{spec} is a method of a torch module, which would hide the module from evaluation mode, from the device "
            "and from the record of its weights; give the module itself."
        )
    return Classifier(
        model,
        options.need_labels(spec),
        output=options.need_output(spec),
        mean=options.mean,
        std=options.std,
        image_size=options.image_size,
        name=options.name or spec,
        weights_hash=state_hash(model) if isinstance(model, nn.Module) else None,
    )


def load_function(spec: str, options: ModelOptions) -> Classifier:
    """What `module:function` returns when called without arguments; the one way to run your own code."""
    module_name, _, function_name = spec.partition(":")
    try:
        maker = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"{spec} names no function that can be imported: {error}") from error
    if not callable(maker):
        raise ModelError(f"{spec} is a {type(maker).__name__}; it must be a function that returns the model.")
    made = maker()
    classifier = wrap(made, options, spec)
    classifier.code_hash = _code_hash(maker, classifier)
    return classifier


def _code_hash(maker: object, classifier: Classifier) -> str | None:
    """One sha256 for the source files of the function, of what it made, and of every module inside that."""
    network = classifier.network
    parts = [type(part) for part in network.modules()] if isinstance(network, nn.Module) else [network, type(network)]
    files = {found for part in (maker, *parts) if (found := _source_file(part)) is not None}
    return files_hash(sorted(files)) if files else None


def _source_file(thing: object) -> Path | None:
    """The file that defines a function or a class; None where there is none, as for what is built in."""
    try:
        name = inspect.getsourcefile(inspect.unwrap(thing))  # type: ignore[arg-type]
    except (TypeError, OSError):
        return None
    return Path(name) if name is not None and Path(name).is_file() else None
