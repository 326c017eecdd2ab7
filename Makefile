# Set-up and daily verbs. `make demo` and `make test` need only Python 3.11+, Java 17 (for Spark)
# and make: everything else is installed into .venv from the lock file.

# The first Python from 3.11 on that runs; a name on the path need not be one that works.
PYTHON ?= $(shell for each in python3.11 python3.12 python3.13 python3.14 python3 python; do \
  $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
VENV   := .venv
BIN    := $(VENV)/bin
UV     := uv==0.13.7
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-versions lint format types docs bench bench-peers lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Create .venv and install from the lock file

$(READY): requirements.lock pyproject.toml
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "omnigraph needs Python 3.11 or newer: install it, or name yours: 'make setup PYTHON=/path/to/python3'."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(UV)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY) ## Run the main job end to end
	@$(BIN)/omnigraph demo

test: $(READY) ## Run every quick test
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

test-slow: $(READY) ## Run the long suites, or one of them: make test-slow SHARD=faults
	$(BIN)/python tools/run_slow_tests.py $(SHARD)

test-versions: $(READY) ## Try the lowest and the newest libraries that pyproject.toml allows
	$(BIN)/python tools/try_versions.py lowest
	$(BIN)/python tools/try_versions.py newest

lint: $(READY) ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY) ## Rewrite files in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY) ## Check types
	$(BIN)/mypy

docs: $(READY) ## Draw the pictures and build the documentation site into site/
	$(BIN)/python tools/draw_architecture.py
	$(BIN)/python tools/draw_concepts.py
	$(BIN)/python tools/write_cli_reference.py
	$(BIN)/python tools/write_openapi.py
	$(BIN)/python tools/write_cluster_schema.py
	$(BIN)/python tools/write_owners.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(READY) ## Measure, and print the tables of bench/RESULTS.md
	$(BIN)/python -m bench all

bench-peers: ## Install the engines that `python -m bench queries` compares with, apart from ours
	python3 -m venv .venv-peers
	.venv-peers/bin/pip install --quiet kuzu==0.11.3 ladybug duckdb pyarrow numpy

lock: $(READY) ## Resolve the dependencies again
	$(BIN)/uv pip compile pyproject.toml --extra all --group dev --universal --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --python-version 3.11 \
	  --custom-compile-command "make lock" --upgrade --quiet -o requirements.lock

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
