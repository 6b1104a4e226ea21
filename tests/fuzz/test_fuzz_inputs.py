"""Recipes, run records and training states that anyone may have written: read, or refused with an error of ours."""

import json

import pytest
import torch
import yaml
from safetensors.torch import save
from tests.fuzz.mutations import damaged, estranged, estranged_text, fuzz, read_or_refused, soaked, write_file
from tests.pipeline.tiny_run import RECIPE

from multiguard.io.config import to_tree
from multiguard.io.records import encode_json
from multiguard.run import parse_recipe
from multiguard.run.arms import RunRecord, read_record
from multiguard.train.checkpoint import read_progress, read_tensors, save_checkpoint

# Each line names the one before nine times: 9^20 values, were they written out.
LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20))


@soaked
def test_training_state(tmp_path, examples):
    """A training state is read or refused."""
    progress = {"epochs": 2, "data": {"name": "x"}}, [{"epoch": 1, "loss": 0.5}]
    save_checkpoint(tmp_path, *progress, {"network": {"w": torch.zeros(2)}, "optimizer": {"0/step": torch.zeros(1)}})
    path = tmp_path / "state" / "last.safetensors"
    content = path.read_bytes()

    def check(data: bytes) -> None:
        write_file(path, data)
        found = read_or_refused(lambda: read_progress(tmp_path))
        if found is not None:
            assert isinstance(found[1], list)
            read_or_refused(lambda: read_tensors(tmp_path))

    fuzz(check, damaged(content), examples)

    def check_progress(text: bytes) -> None:
        progress = text.decode("utf-8", "replace")
        check(save({"network/w": torch.zeros(2)}, metadata={"progress": progress}))

    fuzz(check_progress, estranged_text({"settings": {"epochs": 2}, "history": [{"epoch": 1}]}), examples)


# ------------------------------------------------------------------------------------------ recipes, records


@soaked
def test_recipe(examples):
    """A recipe is read or refused."""
    fuzz(
        lambda data: read_or_refused(lambda: parse_recipe(data.decode("utf-8", "replace"), "recipe.yaml")),
        damaged(RECIPE.encode()),
        2 * examples,
    )
    plain = yaml.safe_load(RECIPE)
    fuzz(
        lambda value: read_or_refused(lambda: parse_recipe(json.dumps(value), "recipe.yaml")),
        estranged(plain),
        2 * examples,
    )


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        "[" * 20_000,
        "a: " * 3000,
        "? " * 3000,
        "sigma: " + "9" * 100_000,
        "sigma: 1" + "_1" * 10_000,
        "!!python/object/apply:os.system [echo]",
        "!!python/name:os.system",
        "data: !!binary aGk=\nsigma: 2001-13-45",
        "- " * 5000,
        RECIPE.replace("images: 6", 'images: "\\ud800"'),
        RECIPE + 'report: {title: "\\ud800"}',
    ],
)  # fmt: skip
def test_hostile_recipe(text):
    """A recipe made to exhaust its reader, or to run code, is refused."""
    assert read_or_refused(lambda: parse_recipe(text, "recipe.yaml")) is None


@soaked
def test_run_record(tmp_path, examples):
    """The record of a run is read or refused."""
    record = RunRecord("multiguard run x", certified=True)
    stored = to_tree(record)
    (tmp_path / "run.json").write_bytes(encode_json(stored))
    assert read_record(tmp_path) == record

    def check(data: bytes) -> None:
        write_file(tmp_path / "run.json", data)
        read_or_refused(lambda: read_record(tmp_path))

    fuzz(check, estranged_text(stored), examples)
