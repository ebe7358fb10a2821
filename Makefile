# On a machine with only Python 3.11, pip and make, each target makes what it needs.

# The newest interpreter that we test on, or whatever `python3` is; `make PYTHON=...` overrides it.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench clean

help:  ## list the targets
	@awk -F ':.*## *' '/^[a-z]+:.*##/ { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed  ## explain a few photographs into the folder demo/
	$(BIN)/l2caf demo --out demo

test: lint  ## everything that must hold; ends with pytest's summary
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-dev  ## ruff, mypy and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev  ## let ruff put the code in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/.installed-dev  ## measure, and write the tables
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m benchmarks

clean:  ## remove everything that make made
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) --editable .
	touch $@

# The developer's install holds all that the plain one does, so it stamps both.
$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) --editable '.[dev]'
	touch $(VENV)/.installed $@
