"""YAML that people write by hand: plain values only, and one line says where a mistake is."""

import re
from typing import Any

import yaml

from multiguard.errors import InvalidInputError


def parse_yaml(text: str, name: str) -> Any:
    r"""The plain values of a YAML text; anything else, or a repeated key, raises `InvalidInputError`.

    >>> parse_yaml("lr: 1e-3", "mine.yaml")
    {'lr': 0.001}
    >>> parse_yaml("k: 3\nk: 4", "mine.yaml")
    Traceback (most recent call last):
    multiguard.errors.InvalidInputError: mine.yaml, line 2: the key 'k' stands twice

    Args:
        text: The YAML.
        name: What to call the text in a message.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise InvalidInputError(f"{name}{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInputError(f"{name}: not YAML ({' '.join(str(error).split())})") from error
    except RecursionError:
        raise InvalidInputError(f"{name}: nested too deeply") from None


class _Loader(yaml.SafeLoader):
    """Plain YAML that refuses repeated keys and references, and reads 1e-3 as a number.

    A few lines of references to references can stand for more values than any memory holds; nobody needs one here.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node, if it is not a reference."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "references (*name) are not read; write it out", None)
        return super().compose_node(parent, index)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key '{key.value}' stands twice", key.start_mark)
        seen.add(str(key.value))
    loader.flatten_mapping(node)
    mapping: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return mapping


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(?:\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)
