"""A model that exists, as a config: named on the command line, described in a YAML file, or recorded with votes."""

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from multiguard.errors import InvalidInputError, ModelError
from multiguard.io.config import Config, described, from_tree
from multiguard.io.files import is_regular, read_regular, real_path
from multiguard.io.records import parse_yaml
from multiguard.models.spec import parse_spec

_CHANNELS = 3
_MAX_SIDE = 1 << 14
_MOST = 1 << 20  # bytes of a YAML file
_FILES = ("labels", "weights")
BUILT_IN_DENOISER = "built-in"
PRETRAINED = "pretrained"  # weights that timm downloads


class ModelConfig(Config, frozen=True):
    """A model that exists, and what it does not say of itself.

    >>> ModelConfig("onnx:model.onnx", output="logits").spec
    'onnx:model.onnx'
    """

    spec: Annotated[
        str,
        described("coco, a model folder, FILE.onnx, FILE.yaml, timm:NAME, hf:FOLDER or module:function.", "model"),
    ]
    labels: Annotated[Path | None, described("Label names, one per line, in score order [the model's].")] = None
    weights: Annotated[Path | None, described("A weights file (timm, module), or a trained folder (module).")] = None
    output: Annotated[Literal["logits", "probabilities"] | None, described("What the scores are, for thresholds.")] = (
        None
    )
    mean: Annotated[tuple[float, ...] | None, described("Channel means, as in 0.48,0.46,0.41 [the model's].")] = None
    std: Annotated[
        tuple[float, ...] | None, described("Channel standard deviations, as in 0.23,0.22,0.23 [the model's].")
    ] = None
    denoiser: Annotated[
        str | None, described("A denoiser in front, for Gaussian noise: built-in, or a model folder with a U-Net.")
    ] = None
    size: Annotated[
        Annotated[int, Meta(ge=1, le=_MAX_SIDE)] | None, described("Height and width of its images [the model's].", "")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, _CHANNELS):
                raise InvalidInputError(f"{name} has {len(values)} numbers; images have {_CHANNELS} channels")

    def resolved(self) -> "ModelConfig":
        """The model that a YAML file describes, its files by absolute paths; any other model as it is.

        A YAML file is a `ModelConfig` itself. It runs no code and reads nothing but regular files of its own folder.
        """
        file = Path(self.spec)
        if file.suffix.lower() not in (".yaml", ".yml"):
            return self
        if self != ModelConfig(self.spec):
            raise InvalidInputError(f"{file} says all of its model; leave out the other options of the model")
        try:
            content = read_regular(file, _MOST).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"{file}: the description of a model cannot be read ({error})") from error
        try:
            config = from_tree(ModelConfig, parse_yaml(content, file.name))
        except InvalidInputError as error:
            raise InvalidInputError(f"{file}: {error}") from error
        if config.denoiser not in (None, BUILT_IN_DENOISER):
            raise InvalidInputError(f"{file}: denoiser is {config.denoiser!r}; expected {BUILT_IN_DENOISER}")
        home = real_path(file.parent)
        files = {name: _inside(home, file, name, path) for name in _FILES if (path := getattr(config, name))}
        return config.replace(spec=_target(home, file, config.spec), **files)


def _inside(home: Path, file: Path, name: str, path: Path) -> Path:
    """The regular file of this plain name in the folder of the YAML file."""
    if str(path) != path.name or not is_regular(home / path):
        raise InvalidInputError(
            f"{file}: {name} is {str(path)!r}, which is not the plain name of a regular file in its folder (no link)"
        )
    return home / path


def _target(home: Path, file: Path, spec: str) -> str:
    """The spec with an absolute path; code, folders of training and other YAML files raise `InvalidInputError`."""
    kind, _, rest = spec.partition(":")
    if kind == "timm" and rest:
        return spec
    name = rest if kind in ("onnx", "hf") and rest else spec
    folder = name == Path(name).name and (home / name).is_dir() and not (home / name).is_symlink()
    path = home / name if folder else _inside(home, file, "spec", Path(name))
    if (found := parse_spec(str(path)).kind) not in ("onnx", "hf"):
        raise InvalidInputError(f"{file}: spec is {spec!r}; expected an ONNX file, timm:NAME or a Hugging Face folder")
    return f"{found}:{path}"


def recorded_model(folder: Path, tree: Any) -> ModelConfig:
    """The model that votes record; no record makes us import code, fetch weights or read a pipe without end.

    Args:
        folder: The folder that holds the record, for messages; a model that has moved may lie in the same folder.
        tree: What `to_tree` made of the config.
    """
    spec = tree.get("spec") if isinstance(tree, dict) else None
    if not isinstance(spec, str):
        raise InvalidInputError(f"{folder} does not name its model; name it with --model")
    try:
        kind = parse_spec(spec).kind
    except ModelError:
        return _moved_model(folder, spec)
    if kind in ("code", "yaml"):
        raise InvalidInputError(
            f"{folder} was voted on with {spec}, which is code, and no code runs because a file names it; if you "
            f"trust it, name it yourself: --model {spec}"
        )
    try:
        model = from_tree(ModelConfig, tree)
    except InvalidInputError as error:
        raise InvalidInputError(f"{folder} does not say how its model was loaded ({error}); name --model") from error
    if str(model.weights) == PRETRAINED:
        raise InvalidInputError(
            f"{folder} was voted on with pretrained weights, and nothing is fetched because a file says so; if you "
            f"trust it, name them yourself: --model {spec} --weights pretrained"
        )
    parsed = parse_spec(spec)
    for named in (model.weights, model.labels, Path(parsed.target) if kind == "onnx" else None):
        if named is not None and named.exists() and not named.is_file():
            raise InvalidInputError(f"{folder} names {named}, which is not a regular file; name the model with --model")
    return model


def _moved_model(folder: Path, spec: str) -> ModelConfig:
    """The model of the run folder that holds the certificates, if the recorded one has moved."""
    moved = folder.absolute().parent / "model"
    if not moved.is_dir():
        raise InvalidInputError(
            f"{folder} was voted on with the model folder {spec}, which is gone; --model names where it is now"
        )
    return ModelConfig(str(moved))
