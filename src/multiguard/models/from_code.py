"""Models that are Python objects: a `Classifier`, a module, a callable, or a `module:function` making one."""

import importlib

from torch import nn

from multiguard.errors import ModelError
from multiguard.models.classifier import Classifier
from multiguard.models.code_hash import code_hash
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
        module = importlib.import_module(module_name)
        maker = getattr(module, function_name)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"{spec} names no function that can be imported: {error}") from error
    if not callable(maker):
        raise ModelError(f"{spec} is a {type(maker).__name__}; it must be a function that returns the model.")
    classifier = wrap(maker(), options, spec)
    classifier.code_hash = code_hash(module, maker, classifier)
    return classifier
