# Everything a person or a machine does with this repository. `make` alone lists it.
# Needs Python 3.11 or newer with venv and pip, make and git; what else is needed is put into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Our other distributions, which no index has yet.
OURS := $(patsubst %/pyproject.toml,%,$(wildcard packages/*/pyproject.toml))
# Tests wait for programs a third of their time, so two cores have work for three processes.
JOBS ?= 3
CHECK ?= yes

# The wheel of pyright carries the checker and a wheel carries node: nothing is looked up or downloaded when it runs.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# The tests start hundreds of processes: what Python compiled is kept, whatever the machine says.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\#.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

venv: $(READY) ## a virtual environment with everything, made once

$(READY): pyproject.toml $(OURS:%=%/pyproject.toml)
	@test "$(CHECK)" = no || sh .ci/check-machine "$(PYTHON)"
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@# uv takes half of pip's time; what it cannot do here, pip can.
	@$(BIN)/python -m pip install --quiet uv && \
		cache=$$($(BIN)/uv cache dir) && \
		{ { mkdir -p "$$cache" 2>/dev/null && test -w "$$cache"; } || export UV_NO_CACHE=1; } && \
		$(BIN)/uv pip install --quiet --link-mode copy --compile-bytecode --python $(BIN)/python 'pip>=25.1' $(OURS:%=--editable %) --editable '.[all]' --group dev || { \
		echo "uv cannot install here: pip does it, which takes longer" >&2; \
		$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' && \
		$(BIN)/python -m pip install --quiet $(OURS:%=--editable %) --editable '.[all]' --group dev; }
	@$(BIN)/rg --version >/dev/null 2>&1 || rg --version >/dev/null || { \
		echo "missing: ripgrep, whose wheel does not run here; install the package ripgrep" >&2; exit 1; }
	@touch $@

demo: $(READY) ## a model of 135M parameters on this machine reads, searches and edits a file by calling tools
	$(BIN)/ferrule models pull smollm2
	$(BIN)/python examples/demo.py

test: lint ## what must pass: the everyday tests, types beside them (FERRULE_TEST_ALL=1: all tests, half an hour)
	+@.ci/beside

lint: $(READY) ## style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## types, strictly
	$(BIN)/pyright

unit: $(READY) ## the everyday tests (FERRULE_TEST_ALL=1: all)
	$(BIN)/pytest -n $(JOBS) --dist worksteal $(if $(filter 1,$(FERRULE_TEST_ALL)),,--everyday)

anywhere: $(READY) ## both commands for users, systems, Pythons and folders that this machine can make; as root (ARGS="--only '*container*' --write")
	PYTHONPATH=evals $(BIN)/python -m anywhere $(ARGS)

shape: $(READY) ## the shape of the code as figures (ARGS="COMMIT --peer h11" measures beside it)
	$(BIN)/python benchmarks/shape.py $(ARGS)

docs: $(READY) ## the pages that are made from the code
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_architecture.py
	$(BIN)/python docs/make_walks.py

readme: $(READY) ## transcripts and figures of the pages from programs that run now, and the three lines of the README about speed
	$(BIN)/python docs/make_readme.py

site: $(READY) ## the documentation as a site, in build/site; a dead link ends it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lab: $(READY) ## what is measured or tried with real programs: a list, or one (NAME=bench ARGS="...")
	@BIN="$(BIN)" PYTHON="$(PYTHON)" JOBS="$(JOBS)" $(BIN)/python benchmarks/lab.py $(NAME)

release: $(READY) ## everything of a release of this commit, in build/release: built twice, checked, no extra, each alone and all, an image (ARGS="--only extras --extras none,mcp,all")
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python release $(ARGS)

clean: ## what can be made again
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
