"""What a step takes is its own: peaks of earlier steps do not count."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from multiguard.pipeline import find_recipe
from multiguard.pipeline.recipe import plan_arms
from multiguard.pipeline.record import Meter
from multiguard.pipeline.steps import arm_votes

MEGABYTE = 2**20


def hold(megabytes):
    return float(np.ones(megabytes * MEGABYTE // 8).sum())


def test_step_memory():
    """Memory is that of the step."""
    hold(400)
    meter = Meter()
    before = meter.read().memory
    if before is None:
        pytest.skip("this system does not count the peak of a process anew")
    hold(200)
    after = meter.read().memory
    assert 150 * MEGABYTE < after - before < 350 * MEGABYTE


def test_gpu_name(monkeypatch):
    """A gpu that was used is named."""
    asked = []
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        reset_peak_memory_stats=lambda: asked.append("reset"),
        max_memory_allocated=lambda: 7 * MEGABYTE,
        get_device_name=lambda: "a GPU",
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    found = Meter().read()
    assert (found.device, found.device_memory, asked) == ("a GPU", 7 * MEGABYTE, ["reset"])


def test_arm_draws(tmp_path):
    """Only the main arm takes the draws that n is swept over."""
    recipe = find_recipe("coco-subset", ["data.root=coco"])
    draws = {name: arm_votes(recipe, arm).draws for name, arm in plan_arms(recipe, tmp_path).items()}
    assert draws == {"": 10_000, "sigma-0.25": 1000, "sigma-1": 1000, "training-noise-0": 1000}
    recipe = find_recipe("digits-figures")
    assert {arm_votes(recipe, arm).draws for arm in plan_arms(recipe, tmp_path).values()} == {1000}
