"""Training as a step of a run: the job of a recipe, and what decides its outcome."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from multiguard.certify.noise_arguments import given_noise
from multiguard.data.catalog import default_split
from multiguard.data.config import DataConfig
from multiguard.io.files import file_checksum
from multiguard.io.lock import folder_lock
from multiguard.models.config import ModelConfig
from multiguard.models.denoiser import load_ffdnet
from multiguard.models.model_folder import folder_checksum
from multiguard.models.python_code import code_checksum
from multiguard.models.spec import parse_spec
from multiguard.pipeline.folders import discard_model
from multiguard.pipeline.recipe import Arm, RunRecipe
from multiguard.pipeline.vote_job import image_hashes
from multiguard.train.config import TrainConfig
from multiguard.train.hyperparameters import hyperparameters_for
from multiguard.train.job import TrainJob, open_splits, start_backbone


def resolve_recipe(recipe: RunRecipe) -> RunRecipe:
    """The recipe with the dataset's defaults in place of what it leaves open."""
    data = recipe.data
    if not data.unlisted:
        split = data.split or default_split(data.name, "test", data.root, data.table)
        recipe = recipe.replace(data=data.replace(split=split))
    if recipe.train is None:
        return recipe
    chosen = asdict(hyperparameters_for(data.name, **recipe.train.chosen()))
    filled = {name: value for name, value in chosen.items() if name not in ("noise", "val_noise")}
    return recipe.replace(train=recipe.train.replace(**filled))


def training_job(
    data: DataConfig, train: TrainConfig, out: Path, cache: Path | None = None, **noise: str | None
) -> TrainJob:
    """The training job of a recipe or a command.

    Args:
        data: The dataset.
        train: How to train.
        out: The model folder.
        cache: A folder for decoded images; None to keep none.
        **noise: `noise` and `val_noise`, in place of those in `train`.
    """
    same = ("model", "weights", "labels", "split", "val_split", "images", "val_images", "denoiser", "teacher")
    return TrainJob(
        data.name,
        out,
        hyperparameters_for(data.name, **_with_noise(train.chosen(), noise)),
        root=data.root,
        size=data.size,
        options=data.options,
        cache=cache,
        compiled=train.compile,
        half=train.half,
        workers=train.workers,
        **{name: getattr(train, name) for name in same},
    )


def arm_job(recipe: RunRecipe, train: TrainConfig, arm: Arm, run: Path) -> TrainJob:
    """The training job of one arm of a run: trained at its noise, validated at that of its votes."""
    trained = arm.trained or given_noise(train.sigma, train.noise) or arm.noise
    validated = given_noise(train.val_sigma, train.val_noise) or arm.noise
    noise = {"noise": trained, "val_noise": None if validated == trained else validated}
    return training_job(recipe.data, train, arm.home / "model", run / "cache" if train.cache else None, **noise)


def _with_noise(chosen: dict[str, Any], noise: Mapping[str, str | None]) -> dict[str, Any]:
    """The chosen hyperparameters with this noise, if any, in place of theirs."""
    sigmas = ("sigma", "val_sigma") if noise else ()
    return {name: value for name, value in chosen.items() if name not in sigmas} | dict(noise)


def trained_model(recipe: RunRecipe, folder: Path) -> ModelConfig:
    """The model that a run trains: its folder, or the code that the recipe names with the folder's weights."""
    start = None if recipe.train is None else recipe.train.model
    if start is not None and parse_spec(start).kind == "code":
        return ModelConfig(start, weights=folder)
    return ModelConfig(str(folder))


def training_inputs(recipe: RunRecipe, job: TrainJob) -> dict[str, Any]:
    """Everything that decides the outcome of a training job, by name.

    A recipe that cannot be certified with the labels of the images raises here, before anything is trained.
    """
    training, validation = open_splits(job)
    recipe.require_labels(len(training.label_names))
    return {
        **{f"train.{name}": value for name, value in asdict(job.hyperparameters).items()},
        "train.model": job.start,
        "train.model_weights": job.start_checksum,
        "train.code": code_checksum(job.start) if parse_spec(job.start).kind == "code" else None,
        "train.weights": _weights_checksum(job.weights),
        "train.labels": _weights_checksum(job.labels),
        "train.denoiser": _weights_checksum(job.denoiser),
        "train.half": job.half,
        "train.teacher": _weights_checksum(job.teacher),
        "data.size": job.image_size,
        **image_hashes("train.images", training, job.root),
        **image_hashes("train.val_images", validation, job.root),
    }


def discard_old_model(job: TrainJob) -> None:
    """Remove the old model in the job's folder, once nothing can be wrong with the job."""
    training, _ = open_splits(job)
    start_backbone(job, training)
    if job.denoiser is not None:
        load_ffdnet(job.denoiser)
    with folder_lock(job.out):
        discard_model(job.out)


def _weights_checksum(name: str | Path | None) -> str | None:
    """The hash of a file or of a model folder's weights; the name itself if it is neither."""
    if name is None:
        return None
    if Path(name).is_dir():
        return folder_checksum(Path(name))
    return file_checksum(Path(name)) if Path(name).is_file() else str(name)
