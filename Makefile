PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SCRIPTS := docs/unit src/torchapl/paper/report/page

.DEFAULT_GOAL := help
.PHONY: help demo test test-long check bench docs wheel compat clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# torch first and pinned: a looser request may pull gigabytes of CUDA packages. The extension is built
# against the torch that is installed, hence no build isolation.
$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard src/torchapl/ops/csrc/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --upgrade pip setuptools wheel
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $(STAMP)

test: $(STAMP)  ## Install what is missing, then run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

test-long: $(STAMP)  ## Break runs and files, fuzz, sanitise, mutate, soak for many hours; see docs/reliability.md
	$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev,long]'
	OMP_NUM_THREADS=1 $(BIN)/python tests/long/faults.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/long/fuzz.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/long/kernels.py
	$(BIN)/python tests/long/sanitizers.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/long/soak.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/long/mutation.py

check: $(STAMP)  ## Lint, type-check, check the format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror src/torchapl/ops/csrc/*
	$(BIN)/oxfmt --check $(SCRIPTS:%='%/**/*.js')
	$(BIN)/oxlint $(SCRIPTS)

bench: $(STAMP)  ## Time the operator against torch's own activations
	$(BIN)/torchapl bench op

demo: $(STAMP)  ## Install what is missing, then train ReLU, SiLU and APL networks and show a report
	$(BIN)/torchapl reproduce table2 --scale lab --seeds 3 --selection-seeds 0 --workers 2 --runs demo/runs \
	  --only atlas-dnn-relu --only atlas-dnn-silu --only atlas-dnn-apl --only atlas-dnn-apl-silu
	$(BIN)/torchapl report demo/runs -o demo/report.html --figures demo/figures
	@echo "Open demo/report.html in a browser; the figures are in demo/figures."

docs: $(STAMP)  ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel:  ## Build the source distribution and the wheel for every torch and Python into dist/, and check them
	$(PYTHON) tools/wheel.py

compat: wheel  ## Run the core tests with that wheel under the oldest, the usual and the newest torch
	$(PYTHON) tools/compat.py

clean:  ## Remove the environment and everything built
	rm -rf $(VENV) build dist site demo src/*.egg-info src/torchapl/ops/*.so
