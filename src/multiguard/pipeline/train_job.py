"""Training as a step of a run: the config of each arm, and what decides its outcome."""

from pathlib import Path
from typing import Any

from multiguard.certify.noise import given_noise
from multiguard.data.catalog import default_split
from multiguard.data.config import DataConfig
from multiguard.data.sample import image_hashes
from multiguard.io.files import file_checksum
from multiguard.io.lock import folder_lock
from multiguard.models.code import code_checksum
from multiguard.models.config import ModelConfig
from multiguard.models.denoiser import load_ffdnet
from multiguard.models.loading import weights_checksum
from multiguard.models.model_folder import folder_checksum
from multiguard.models.spec import parse_spec
from multiguard.pipeline.recipe import Arm, RunRecipe
from multiguard.train.checkpoint import discard_model
from multiguard.train.config import TrainConfig
from multiguard.train.start import image_size, model_spec, open_splits, start_backbone


def resolve_recipe(recipe: RunRecipe) -> RunRecipe:
    """The recipe with the dataset's defaults in place of what it leaves open."""
    data = recipe.data
    if not data.unlisted:
        split = data.split or default_split(data.name, "test", data.root, data.table)
        recipe = recipe.replace(data=data.replace(split=split))
    return recipe if recipe.train is None else recipe.replace(train=recipe.train.filled(data.name))


def arm_config(recipe: RunRecipe, train: TrainConfig, arm: Arm) -> TrainConfig:
    """How an arm is trained: at its noise, validated at that of its votes."""
    trained = arm.trained or given_noise(train.sigma, train.noise) or arm.noise
    validated = given_noise(train.val_sigma, train.val_noise) or arm.noise
    val_noise = None if validated == trained else validated
    return train.replace(noise=trained, val_noise=val_noise, sigma=None, val_sigma=None)


def trained_model(recipe: RunRecipe, folder: Path) -> ModelConfig:
    """The model that a run trains: its folder, or the code that the recipe names with the folder's weights."""
    start = None if recipe.train is None else recipe.train.model
    if start is not None and parse_spec(start).kind == "code":
        return ModelConfig(start, weights=folder)
    return ModelConfig(str(folder))


def training_inputs(recipe: RunRecipe, config: TrainConfig) -> dict[str, Any]:
    """Everything that decides the outcome of a training, by name.

    A recipe that cannot be certified with the labels of the images raises here, before anything is trained.
    """
    data = recipe.data
    training, validation = open_splits(config, data)
    recipe.require_labels(len(training.label_names))
    start = model_spec(config, data)
    return {
        **{f"train.{name}": value for name, value in config.resolved(data.name).record().items()},
        "train.model": start,
        "train.model_weights": weights_checksum(start),
        "train.code": code_checksum(start) if parse_spec(start).kind == "code" else None,
        "train.weights": _weights_checksum(config.weights),
        "train.labels": _weights_checksum(config.labels),
        "train.denoiser": _weights_checksum(config.denoiser),
        "train.half": config.half,
        "train.teacher": _weights_checksum(config.teacher),
        "data.size": image_size(config, data),
        **image_hashes("train.images", training, data.root),
        **image_hashes("train.val_images", validation, data.root),
    }


def discard_old_model(config: TrainConfig, data: DataConfig, out: Path) -> None:
    """Remove the old model in the folder, once nothing can be wrong with the new one."""
    training, _ = open_splits(config, data)
    start_backbone(config, data, training)
    if config.denoiser is not None:
        load_ffdnet(config.denoiser)
    with folder_lock(out):
        discard_model(out)


def _weights_checksum(name: str | Path | None) -> str | None:
    """The hash of a file or of a model folder's weights; the name itself if it is neither."""
    if name is None:
        return None
    if Path(name).is_dir():
        return folder_checksum(Path(name))
    return file_checksum(Path(name)) if Path(name).is_file() else str(name)
