"""What a Hugging Face model says of its labels and images: names, size, normalisation, scale and order of channels."""

import math
from typing import Any

from multiguard.errors import ModelError

PREPROCESSOR = "preprocessor_config.json"
_CHANNELS = 3
_MAX_SIDE = 1 << 14
# Steps that happen here as well, or before the image is read; any other step is refused by its name.
_STEPS = ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb")
_WITHOUT_EFFECT = ("do_reduce_labels", "do_sample_frames")
_OTHER_STEPS = ("rescale_offset", "offset", "include_top")


def read_processor(content: dict[str, Any], config: dict[str, Any], spec: str) -> dict[str, Any]:
    """Mean, std and image size, of pixels in [0, 1]; those that it has.

    What preprocessor_config.json does besides scaling and normalising is refused by name.

    >>> read_processor({"size": 224, "image_mean": [0.5], "image_std": [0.5]}, {}, "hf:model")
    {'image_size': (224, 224), 'mean': (0.5,), 'std': (0.5,)}
    """
    refused = {"do_rescale": False} if not content.get("do_rescale", True) else {}
    for name, value in content.items():
        other = name.startswith("do_") and name not in (*_STEPS, *_WITHOUT_EFFECT)
        if value and (other or name in _OTHER_STEPS):
            refused[name] = value
    scale = content.get("rescale_factor", 1 / 255)
    if not _is_number(scale) or abs(scale - 1 / 255) > 1e-9:
        refused["rescale_factor"] = scale
    for name, value in refused.items():
        raise ModelError(
            f"{spec}: {PREPROCESSOR} has {name} = {str(value)[:40]!r}, which is not supported; do it in a function of "
            "your own, module:function, that takes pixels in [0, 1]."
        )
    found: dict[str, Any] = {"image_size": _image_size(content, config, spec)}
    if content.get("do_normalize", True):
        found |= {"mean": _numbers(content, "image_mean", spec), "std": _numbers(content, "image_std", spec)}
        if min(found["std"]) <= 0:
            raise ModelError(f"{spec}: {PREPROCESSOR} has image_std = {[*found['std']]}; expected numbers above 0.")
    return found


def config_labels(names: dict[Any, Any], indices: dict[Any, Any] | None, spec: str) -> tuple[str, ...]:
    """The names of the labels in the order of the scores, from `id2label`; `label2id` must not contradict it.

    >>> config_labels({"0": "cat", "1": "dog"}, None, "hf:model")
    ('cat', 'dog')
    """
    ordered = [names.get(index, names.get(str(index))) for index in range(len(names))]
    if None in ordered:
        found = ", ".join(map(str, names))[:60]
        raise ModelError(f"{spec}: id2label has the indices {found}; expected 0 to {len(names) - 1}, one per score.")
    for name, index in (indices or {}).items():
        if not str(index).isdecimal() or int(index) >= len(ordered) or ordered[int(index)] != name:
            raise ModelError(
                f"{spec}: label2id has {name!r} at {index}, and id2label contradicts it; correct its config, or give "
                "the label names in the order of the scores (--labels, labels=[...]) to a function of your own."
            )
    return tuple(map(str, ordered))


def _numbers(content: dict[str, Any], name: str, spec: str) -> tuple[float, ...]:
    values = content.get(name)
    values = [values] if _is_number(values) else values
    if not isinstance(values, list) or len(values) not in (1, _CHANNELS) or not all(map(_is_number, values)):
        what = f"{name} = {str(values)[:60]!r}"
        raise ModelError(f"{spec}: {PREPROCESSOR} has {what}; expected 1 or {_CHANNELS} numbers.")
    return tuple(map(float, values))


def _image_size(content: dict[str, Any], config: dict[str, Any], spec: str) -> tuple[int, int] | None:
    """The size after the last step that changes it; the config's own where no step does."""
    steps = (("do_center_crop", "crop_size", False), ("do_resize", "size", True))
    for step, name, default in steps:
        if content.get(step, default) and content.get(name):
            return _sides(content[name], name, spec)
    return _sides(config["image_size"], "image_size", spec) if config.get("image_size") else None


def _sides(value: Any, name: str, spec: str) -> tuple[int, int]:
    given = value
    if isinstance(value, dict):
        edge = value.get("shortest_edge")
        value = [value.get("height", edge), value.get("width", edge)]
    sides = tuple(value) if isinstance(value, list) else (value, value)
    whole = all(isinstance(side, int) and not isinstance(side, bool) and 0 < side <= _MAX_SIDE for side in sides)
    if len(sides) != 2 or not whole:
        raise ModelError(f"{spec}: {name} = {str(given)[:60]!r} is no height and width; say it: --size (image_size=).")
    return sides


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
