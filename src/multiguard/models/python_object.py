"""Models that are Python objects: a `Classifier`, a module, a function, an estimator or a session."""

from torch import nn

from multiguard.errors import ModelError
from multiguard.models.classifier import UNNAMED, Classifier, ModelOptions, state_hash
from multiguard.models.host_network import FunctionNetwork
from multiguard.models.onnx import is_session, wrap_session
from multiguard.models.sklearn import is_estimator, wrap_estimator


def is_model(found: object) -> bool:
    """Whether the object is a model already, not a function that may make one."""
    return isinstance(found, nn.Module) or (not isinstance(found, type) and (is_session(found) or is_estimator(found)))


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
