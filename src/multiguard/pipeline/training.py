"""Training as a step of a run: from a recipe to the training job, and what decides its outcome."""

from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from multiguard.data.catalog import voting_split
from multiguard.io.files import file_checksum
from multiguard.io.lock import folder_lock
from multiguard.models.denoiser import load_ffdnet
from multiguard.models.folder import CARD_FILE, read_card
from multiguard.pipeline.discarding import discard_model
from multiguard.pipeline.image_hashes import image_hashes
from multiguard.pipeline.recipe import RunRecipe, TrainPart
from multiguard.train.job import Job, model_name, native_size, open_splits, start_backbone
from multiguard.train.recipe import Recipe, recipe_for


def resolved_recipe(recipe: RunRecipe) -> RunRecipe:
    """The recipe with the dataset's usual values written where it leaves them open."""
    data = recipe.data
    if not data.source(data.size).unlisted:
        split = data.split or voting_split(data.name, data.root, data.table)
        recipe = replace(recipe, data=replace(data, split=split))
    if recipe.train is None:
        return recipe
    usual = asdict(recipe_for(data.name, **_chosen(recipe.train)))
    filled = {name: value for name, value in usual.items() if name not in ("sigma", "val_sigma")}
    return replace(recipe, train=replace(recipe.train, **filled))


def training_job(recipe: RunRecipe, train: TrainPart, sigma: float, noise: float | None, run: Path, out: Path) -> Job:
    """The training job of one arm of a run.

    Args:
        recipe: The whole recipe.
        train: Its part about training.
        sigma: What the model is validated at and made for.
        noise: The noise in training; None for what the recipe says, or else `sigma`.
        run: The run folder.
        out: The model folder.
    """
    trained = next(value for value in (noise, train.sigma, sigma) if value is not None)
    judged = sigma if train.val_sigma is None else train.val_sigma
    chosen = {**_chosen(train), "sigma": trained, "val_sigma": None if judged == trained else judged}
    return Job(
        recipe.data.name,
        out,
        recipe_for(recipe.data.name, **chosen),
        model=train.model,
        root=recipe.data.root,
        weights=train.weights,
        size=recipe.data.size,
        split=train.split,
        val_split=train.val_split,
        images=train.images,
        val_images=train.val_images,
        options=recipe.data.options,
        denoiser=train.denoiser,
        cache=run / "cache" if train.cache else None,
        workers=train.workers,
        compiled=train.compile,
    )


def training_inputs(recipe: RunRecipe, job: Job) -> dict[str, Any]:
    """All that decides the outcome of a training job, by name.

    A recipe that could not be certified with the labels of the images raises here, before anything is trained.
    """
    model = model_name(job)
    size = native_size(model) if job.size is None else job.size
    training, validation = open_splits(job, size)
    recipe.require_labels(len(training.label_names))
    started = read_card(Path(model)).weights_sha256 if (Path(model) / CARD_FILE).is_file() else None
    return {
        **{f"train.{name}": value for name, value in asdict(job.recipe).items()},
        "train.model": model,
        "train.model_weights": started,
        "train.weights": _file(job.weights),
        "train.denoiser": _file(job.denoiser),
        "data.size": size,
        **image_hashes("train.images", training, job.root),
        **image_hashes("train.val_images", validation, job.root),
    }


def discard_old_model(job: Job) -> None:
    """Throw the old model of the job's folder away, after all that can be wrong with the job has been looked at."""
    size = native_size(model_name(job)) if job.size is None else job.size
    training, _ = open_splits(job, size)
    start_backbone(job, training, size)
    if job.denoiser is not None:
        load_ffdnet(job.denoiser)
    with folder_lock(job.out):
        discard_model(job.out)


def _chosen(train: TrainPart) -> dict[str, Any]:
    return {field.name: getattr(train, field.name) for field in fields(Recipe)}


def _file(name: str | Path | None) -> str | None:
    """The hash of a file, or the word itself where it names none."""
    if name is None or not Path(name).is_file():
        return None if name is None else str(name)
    return file_checksum(Path(name))
