# `make demo` and `make test` do all the set-up they need: Python 3.11 to 3.13 and make.
VENV   ?= .venv
PYTHON ?= $(shell tools/pythons | head -n 1 | cut -d ' ' -f 2-)
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# What the build itself needs, pinned like everything else instead of fetched at build time.
BUILD  := hatchling editables
# Python compiles what is imported; compiling all that is installed takes a third of the set-up.
PIP    := --quiet --no-compile -c constraints.txt
# PyTorch is large and asks for libraries of GPUs unless its build for CPUs is at hand.
POCOMC := torch==2.13.0 pocomc==1.2.6
# Samplers that the benchmark alone needs; UltraNest is compiled here, jaxns brings TensorFlow
# Probability.
PEERS  := jaxns==3.0.0 nautilus-sampler==1.0.6 nutpie==0.16.8 tempest-sampler==0.2.1 ultranest==4.6.3
# It must be let to keep that: every process would spend ten seconds on it again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test test-deep test-matrix lint format types bench bench-peers bench-all docs pins clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

install: $(STAMP)  ## make .venv from the pins, with every extra; skipped when up to date

$(STAMP): pyproject.toml constraints.txt src/involutive_worker.py
	@test -x $(BIN)/python || test -n "$(PYTHON)" || { \
	  echo "make install needs Python 3.11, 3.12 or 3.13 with the venv module; none was found on" \
	       "PATH or in pyenv. Install one, or name it: make PYTHON=/path/to/python" >&2; exit 2; }
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP) $(BUILD)
	$(BIN)/python -m pip install $(PIP) --no-build-isolation -e '.[all]'
	@touch $@

demo: install  ## the main job, end to end
	$(BIN)/involutive demo

test: install  ## the fast suite
	$(BIN)/python -m pytest $(ARGS)

test-deep: install  ## the minutes-long statistical evidence
	$(BIN)/python -m pytest -m deep $(ARGS)

test-matrix:  ## the fast suite on every supported Python found, each in its own .venv-X.Y
	@tools/pythons | { failed=; ran=; \
	while read -r version python; do \
	  echo "== Python $$version ($$python)"; ran="$$ran $$version"; \
	  $(MAKE) --no-print-directory VENV=.venv-$$version PYTHON="$$python" test </dev/null \
	    || failed="$$failed $$version"; \
	done; \
	echo "== ran on:$${ran:- none}; failed on:$${failed:- none}"; \
	test -n "$$ran" && test -z "$$failed"; }

lint: install  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install  ## apply ruff's fixes and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: install  ## pyright on the package
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: install  ## this library and its peers, side by side
	$(BIN)/involutive bench $(ARGS)

bench-peers:  ## the same with nautilus, UltraNest, jaxns, Tempest and nutpie, in an environment of its own
	@$(MAKE) --no-print-directory VENV=.venv-peers install
	.venv-peers/bin/python -m pip install $(PIP) $(PEERS)
	.venv-peers/bin/involutive bench $(ARGS)

bench-all:  ## the same with pocoMC, in an environment of its own with PyTorch
	@$(MAKE) --no-print-directory VENV=.venv-pocomc install
	.venv-pocomc/bin/python -m pip install $(PIP) $(POCOMC)
	.venv-pocomc/bin/involutive bench $(ARGS)

docs: install  ## the documentation, into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

pins:  ## rewrite constraints.txt with the newest versions the ranges allow
	$(PYTHON) tools/pins.py $(BUILD)

clean:  ## remove environments, caches and built files
	rm -rf .venv .venv-* .cache build dist docs/_build .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
