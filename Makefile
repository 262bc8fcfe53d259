PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SCRIPTS := docs/unit src/torchapl/paper/report/page

.DEFAULT_GOAL := help
.PHONY: help demo test test-long check bench docs wheel wheel-aarch64 compat lock audit clean

help:  ## Show this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

# All with hashes but torch, whose build, with CUDA or without, is the machine's choice. The extension is
# built against the torch that is installed, hence no build isolation.
$(STAMP): pyproject.toml constraints.txt tools/develop.txt setup.py $(wildcard src/torchapl/ops/csrc/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-deps --require-hashes --requirement tools/develop.txt
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
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

bench: $(STAMP)  ## Time the operator against torch's own activations: the tables of docs/performance.md
	$(BIN)/python benchmarks/performance.py
	$(BIN)/torchapl bench step

demo: $(STAMP)  ## Install what is missing, then train ReLU, SiLU and APL networks and show a report
	$(BIN)/torchapl reproduce table2 --scale lab --seeds 3 --selection-seeds 0 --workers 2 --runs demo/runs \
	  --only atlas-dnn-relu --only atlas-dnn-silu --only atlas-dnn-apl --only atlas-dnn-apl-default
	$(BIN)/torchapl report demo/runs -o demo/report.html --figures demo/figures
	@echo "Open demo/report.html in a browser; the figures are in demo/figures."

docs: $(STAMP)  ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site is in site/. To look at it: $(BIN)/python -m http.server -d site 8000, then open http://127.0.0.1:8000"

wheel:  ## Build the source distribution and the wheel for every torch and Python into dist/, and check them
	$(PYTHON) tools/wheel.py

wheel-aarch64:  ## The same for ARM, by Debian's g++-aarch64-linux-gnu
	$(PYTHON) tools/wheel.py --machine aarch64

compat: wheel  ## Run the core tests with that wheel under the oldest, the usual and the newest torch
	$(PYTHON) tools/compat.py $(if $(PAIRS),--pair $(PAIRS))

lock:  ## Pin what is developed and built with; needs uv
	$(PYTHON) tools/lock.py

audit: wheel  ## Look for known vulnerabilities in what is developed and built with
	build/wheel/venv/bin/pip-audit --strict --no-deps --disable-pip -r tools/develop.txt -r tools/wheel.txt

clean:  ## Remove the environment and everything built
	rm -rf $(VENV) build dist site demo src/*.egg-info src/torchapl/ops/*.so
