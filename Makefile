# On a machine with only Python 3.11, pip and make, each target makes what it needs.

# The interpreter whose wheels are pinned, or whatever `python3` is; `make PYTHON=...` overrides it.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
# One torch thread in each of two processes: more threads would only wait for one another on two cores.
WORKERS ?= 2
PYTEST := -m pytest -n $(WORKERS) --dist loadfile
# The torch that `test-lowest` takes, where the lowest one cannot be had: TORCH="torch==2.13.0 torchvision==0.28.0".
TORCH ?=

.DEFAULT_GOAL := help
.PHONY: help demo test endurance interrupts test-lowest lint format docs docs-serve docs-links bench zoo fuzz dist dist-test clean

help:  ## list the targets
	@awk -F ':.*## *' '/^[a-z-]+:.*##/ { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed  ## explain a few photographs into the folder demo/
	$(BIN)/l2caf demo --out demo

test: lint  ## everything that must hold; ends with the branches covered and pytest's summary
	$(BIN)/python $(PYTEST) -m "not endurance" --cov --cov-report=term

endurance: $(VENV)/.installed-dev  ## the tests that are too long for every day: larger networks, more kills, more rounds
	$(BIN)/python $(PYTEST) -m endurance

interrupts: $(VENV)/.installed-dev  ## interrupt 2,000 explanations at any instant, and see whether the network is given back
	PYTHONPATH=tests $(BIN)/python tests/interrupted.py 2000

test-lowest: $(VENV)-lowest/.installed  ## the tests on the lowest versions that pyproject.toml admits
	# Old packages on new Pythons and companions deprecate one another: that is no fault of ours.
	$(VENV)-lowest/bin/python $(PYTEST) -m "not endurance" -W default::DeprecationWarning

lint: $(VENV)/.installed-dev  ## ruff, mypy and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev  ## let ruff put the code in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.installed-dev  ## build the book into build/docs; a warning is an error, and its notebooks run
	$(BIN)/python -m sphinx -W --keep-going -q docs build/docs

docs-serve: docs  ## build the book and show it on http://127.0.0.1:8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs 8000

docs-links: $(VENV)/.installed-dev  ## ask every address that the book names; needs the internet
	$(BIN)/python -m sphinx -b linkcheck -D nb_execution_mode=off -q docs build/docs-links

bench: $(VENV)/.installed-dev  ## measure, and write the tables
	PYTHONPATH=tests OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m benchmarks

zoo: $(VENV)/.installed-dev  ## explain some 160 networks, judge what each gets, and write docs/zoo.md
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m zoo

fuzz: $(VENV)/.installed-dev  ## solve 1,000 random heads and compare with brute force
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.fuzz --seeds 1000

dist: $(VENV)/.installed-dev  ## build wheel and sdist into dist/
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist

dist-test: dist  ## install wheel and sdist into empty environments, and run the demo away from the checkout
	PYTHON="$(PYTHON)" sh tests/packaging/try_dist.sh dist/*.whl dist/*.tar.gz

clean:  ## remove everything that make made
	rm -rf $(VENV) $(VENV)-lowest demo build dist docs/reference/modules docs/reference/commands.rst .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -f .coverage .coverage.*
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

$(VENV)-lowest/.installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv --clear $(VENV)-lowest
	cp constraints-lowest.txt $(VENV)-lowest/constraints.txt
	$(if $(TORCH),(grep -vE '^torch(vision)?==' constraints-lowest.txt; printf '%s\n' $(TORCH)) > $(VENV)-lowest/constraints.txt)
	$(VENV)-lowest/bin/python -m pip install --quiet --constraint $(VENV)-lowest/constraints.txt --editable '.[test]'
	touch $@
