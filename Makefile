# `make demo`, `make check` and `make check-all` do everything on a fresh machine with Python 3.11
# to 3.13.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHONS := python3.13 python3.12 python3.11 python3 python
FITS := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
WORKERS ?= auto
PIP_OPTIONS ?=

.PHONY: help python setup demo check check-slow check-all clean
.DELETE_ON_ERROR:

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s  %s\n", $$1, $$2 }' Makefile

python: ## Print the Python that setup would use.
	@for each in $(PYTHONS); do \
		if "$$each" -c '$(FITS)' >/dev/null 2>&1; then echo "$$each"; exit 0; fi; \
	done; \
	echo "opdb needs Python 3.11, 3.12 or 3.13 with venv and pip, and none of" \
		"$(PYTHONS) is one; on Debian and Ubuntu: apt install python3 python3-venv" >&2; \
	exit 1

setup: $(STAMP) ## Install opdb and its tools into .venv; again only when pyproject.toml changed.

# torch and torchvision must be of one build, so one pip command chooses both. The bytecode and the
# database of the published sets are made now, so that the first command is as fast as the second.
$(STAMP): pyproject.toml
	@$(BIN)/python -c '$(FITS)' 2>/dev/null \
		|| { python=$$($(MAKE) --no-print-directory -s python) \
			&& echo "$$python -m venv $(VENV)" && "$$python" -m venv --clear $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' $(PIP_OPTIONS)
	$(BIN)/python -m compileall -q opdb
	OPDB_DB= $(BIN)/opdb show devices >/dev/null
	@touch $@

demo: setup ## Predict ResNet-152 on the published H200, where its measured truth stands beside it.
	@echo "opdb predict resnet152 --batch-size 32 --target 0.9"
	@OPDB_DB= $(BIN)/opdb predict resnet152 --batch-size 32 --target 0.9 --device nvidia-h200
	@echo
	@echo "opdb predict resnet152 --batch-size 32 --target 0.9 --mode graph"
	@OPDB_DB= $(BIN)/opdb predict resnet152 --batch-size 32 --target 0.9 --device nvidia-h200 \
		--mode graph

# Hundreds of tests start processes: without bytecode each would compile opdb anew. A worker begins
# with a whole stretch of the tests, so that what a file's tests share is made by one of them.
# A test that hangs fails, and those after it run.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal \
	--timeout 600

check: setup ## Lint, types, and all tests but the slow ones.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m compileall -q opdb tests
	$(PYTEST) -m "not slow"

check-slow: setup ## The slow tests: servers, a browser, the wheel, Slurm, processes that are killed.
	$(PYTEST) -m slow

check-all: check check-slow ## All that CI runs.

clean: ## Remove what setup and the tools made; databases stay.
	rm -rf $(VENV) *.egg-info .mypy_cache .pytest_cache .ruff_cache
