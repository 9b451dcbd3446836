# Every target works on a fresh clone: the environment and Java are set up on first use.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
STAMP := .venv/.headrace-stamp
NAME ?= ingest
SCALE ?= small
ARGS ?=
KILLS ?= 50
SEED ?=
# Python workers use the interpreter named here, not the driver's.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
# Recipes run `$(JAVA)command`: it finds or installs Java first and names it in JAVA_HOME.
JAVA = java_home="$$(scripts/ensure-java)" && JAVA_HOME="$$java_home" 

.PHONY: help venv java demo test test-all chaos lint format bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' Makefile

venv: $(STAMP) ## make .venv from requirements.lock

# Redone only when what is to be installed changes; the stamp is written last, so that an
# interrupted installation is taken up again.
$(STAMP): requirements.lock pyproject.toml scripts/ensure-python
	@python="$$(scripts/ensure-python)"; \
	if ! $(BIN)/python -c '' 2>/dev/null; then rm -rf .venv; "$$python" -m venv .venv; fi
	@echo "installing the locked packages into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

java: ## find Java 17 or 21, or install it (Debian, as root)
	@scripts/ensure-java

demo: $(STAMP) ## a minute of standing queries on a live stream (ARGS="--seconds 20")
	@$(JAVA)$(BIN)/headrace demo $(ARGS)

# Three processes on two cores, each with its own Spark: some tests wait for their children.
test: $(STAMP) ## the default tests (ARGS="--seed 7" for other random ones)
	@$(JAVA)$(BIN)/python -m pytest -n 3 --dist worksteal $(ARGS)

test-all: $(STAMP) ## all tests but those of an hour
	@$(JAVA)$(BIN)/python -m pytest -n 3 --dist worksteal -m "not hour" $(ARGS)

# It prints the seed; with the same seed, the same rows come and the same things break.
chaos: $(STAMP) ## kill the engine at random moments, and compare with the oracle (KILLS=50 SEED=7)
	@$(JAVA)$(BIN)/python -m tests.engine.crashes.chaos --kills $(KILLS) $(if $(SEED),--seed $(SEED))

lint: $(STAMP) ## ruff and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict src benchmarks

format: $(STAMP) ## rewrite the code in the house format
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: $(STAMP) ## a benchmark (NAME=ingest SCALE=small|full)
	@mkdir -p bench-out
	@$(JAVA)$(BIN)/headrace bench $(NAME) --scale $(SCALE) --json bench-out/$(NAME)-$(SCALE).json $(ARGS)

# No index addresses, links or local paths go into the lock: it is the same wherever it is made.
lock: ## resolve requirements.lock anew from pyproject.toml
	@python="$$(scripts/ensure-python)"; "$$python" -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	@CUSTOM_COMPILE_COMMAND="make lock" build/lock/bin/pip-compile --quiet --upgrade --extra dev \
		--generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host \
		--no-emit-find-links --output-file requirements.lock pyproject.toml

clean: ## remove the environment, caches and what Spark leaves behind
	rm -rf .venv build dist bench-out spark-warehouse metastore_db derby.log artifacts
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
