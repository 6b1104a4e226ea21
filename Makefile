# Each target sets up .venv by itself; a second run is quick.
PYTHON ?= python3
BIN := .venv/bin
DEMO_READY := .venv/.ready-demo
READY := .venv/.ready
DOCS_READY := .venv/.ready-docs
LOWEST := .venv/lowest
WHEEL := .venv/wheel
TORCH_FREE := $(addprefix tests/,certify data evaluate io report votes test_rooms.py) \
	$(addprefix tests/cli/test_,console.py main_start.py options.py)
NEED_TORCH := tests/data/test_in_memory.py tests/evaluate/test_attacks.py

.PHONY: demo test wheel lowest soak check bench docs clean

demo: $(DEMO_READY)
	$(BIN)/multiguard run digits --out runs/demo --set vote.noise_seed=0
	$(BIN)/multiguard run photos --out runs/demo/photos --set vote.noise_seed=0 --set data.root=src/multiguard/data/photos

test: check
	$(BIN)/pytest -n 2 --dist loadfile

# What `pip install multiguard` gives: the wheel in a clean environment, without torch, predicts a photo.
wheel:
	$(PYTHON) -m venv --clear $(WHEEL)
	$(WHEEL)/bin/python -m pip wheel --quiet --no-deps --wheel-dir $(WHEEL)/dist .
	$(WHEEL)/bin/python -m pip install --quiet --no-compile --constraint constraints.txt $(WHEEL)/dist/multiguard-*.whl
	! $(WHEEL)/bin/python -c 'import torch' 2>/dev/null
	$(WHEEL)/bin/multiguard predict src/multiguard/data/photos/coffee.jpg

# The lowest versions that pyproject.toml allows, without torch; PYTHON is 3.11, for which all of them have wheels.
lowest:
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv hypothesis mpmath playwright pytest pytest-xdist
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST) --resolution lowest-direct --editable .
	$(LOWEST)/bin/pytest -n 2 --dist loadfile $(TORCH_FREE) $(addprefix --ignore=,$(NEED_TORCH))

soak: $(READY)
	$(BIN)/pytest -n 2 -m soak

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m benchmarks.certify
	$(BIN)/python -m benchmarks.sampler_cpu

docs: $(DOCS_READY)
	$(BIN)/mkdocs build --strict

$(DEMO_READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[torch]'
	touch $@

$(READY): $(DEMO_READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(DOCS_READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

clean:
	rm -rf .venv .cache site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
