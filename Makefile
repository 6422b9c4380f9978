# Needs Python 3.11 or newer, make, and a package index for the first `make env`.
PYTHON ?= python3
# Arguments for bench, demo and lock: make bench ARGS="basic-5000 --runs 3"
ARGS ?=
# For long: make long ROWS="soak fuzz"
ROWS ?=
# The tests of `make test` wait for processes as often as they compute, so one more than cores.
WORKERS ?= 3
MORE_WORKERS ?= 2

# Tests start hundreds of processes: compiled once, not by each of them.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help env demo test test-more fuzz long site screenshots behaviours golden golden-dir bench lock release clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

env: $(STAMP) ## Create .venv with everything in requirements.lock and the project, editable
	@:

demo: env ## Start a cluster, run everything on it, break it, clean up
	@$(BIN)/stower demo $(ARGS)

test: env ## Check style, types and imports, then run the tests
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "Run $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/python tools/check_imports.py
	@$(PYTEST) -n $(WORKERS) --dist worksteal --all-rights -m "not more and not long" tests examples

test-more: env ## Run tests that take minutes (marker `more`): 20 minutes in all
	@$(PYTEST) -n $(MORE_WORKERS) --dist worksteal -m "more and not long" tests || test $$? -eq 5 # 5: no test has the marker

fuzz: env ## Run mutated objects, requests and paths through every door: 100,000 examples, some 6 minutes
	@$(BIN)/python -m tests.long fuzz

long: env ## Run what takes hours in all, or some: make long ROWS="soak fuzz"; ROWS=--list
	@$(BIN)/python -m tests.long $(ROWS)

site: env ## Build the documents as a static site in build/site
	@$(BIN)/python tools/docs_site.py build/site

screenshots: env ## Make the pictures in docs/images anew
	@$(BIN)/python -m tests.browser.screenshots docs/images

behaviours: env ## Show which tests show which behaviour of docs/behaviours.md
	@$(BIN)/python tools/behaviours.py

# file:suite of the recorded answers that tests/golden/run.py knows how to compare.
GOLDEN := filter_score:filter_score filter_score_gates:filter_score sequence:sequence sequence:shadow \
    preemption:preemption
# Recordings of the API server, where the folder has them: all files of DIR/api.
GOLDEN_API = $(wildcard $(DIR)/api/*.ndjson.gz)

golden: golden-dir env ## Compare with answers recorded from Kubernetes: make golden DIR=...
	@status=0; \
	for pair in $(GOLDEN); do \
	    name=$${pair%%:*}; \
	    file="$(DIR)/sched/$$name.ndjson.gz"; \
	    [ -f "$$file" ] || file="$(DIR)/$$name.ndjson.gz"; \
	    if [ -f "$$file" ]; then \
	        echo "$$name:"; \
	        $(BIN)/python tests/golden/run.py "$${pair##*:}" "$$file" || status=1; \
	    else \
	        echo "make golden: no $$name.ndjson.gz in $(DIR) or $(DIR)/sched" >&2; status=1; \
	    fi; \
	done; \
	for pair in dra/allocator:allocator dra/dra_schedule:dra_schedule groups/instances:groups \
	    groups/hard:groups groups/groups_plugin:groups_plugin \
	    vms/config:vms_config vms/pod_state:vms_pod_state vms/node_state:vms_node_state \
	    vms/scoring:vms_scoring vms/queue:vms_queue vms/reconcile:vms_reconcile; do \
	    file="$(DIR)/$${pair%%:*}.ndjson.gz"; \
	    if [ -f "$$file" ]; then \
	        echo "$${pair%%:*}:"; \
	        $(BIN)/python tests/golden/run.py "$${pair##*:}" "$$file" || status=1; \
	    fi; \
	done; \
	if [ -n "$(GOLDEN_API)" ]; then \
	    echo "api:"; \
	    $(BIN)/python tests/golden/run.py api $(GOLDEN_API) || status=1; \
	fi; \
	if [ -f "$(DIR)/validation/validation.ndjson.gz" ]; then \
	    echo "validation:"; \
	    $(BIN)/python tests/golden/run.py validation "$(DIR)/validation/validation.ndjson.gz" \
	        || status=1; \
	fi; \
	exit $$status

golden-dir:
	@if [ -z "$(DIR)" ]; then \
	    echo "make golden: DIR is not set, want the folder of the recordings: make golden DIR=..."; \
	    exit 2; \
	elif [ ! -d "$(DIR)" ]; then \
	    echo "make golden: no such folder: $(DIR)"; \
	    exit 2; \
	fi >&2

bench: env ## Measure the scheduler
	@$(BIN)/stower bench $(ARGS)

# Pins stay as they are where pyproject.toml allows it; make lock ARGS=--upgrade takes the newest.
lock: ## Write requirements.lock anew from pyproject.toml
	@command -v uv >/dev/null || $(MAKE) --no-print-directory env
	@PATH="$$PATH:$(CURDIR)/$(BIN)"; \
	uv pip compile --quiet --universal --python-version 3.11 --all-extras --generate-hashes \
	    --no-header --no-annotate --no-emit-index-url --no-emit-find-links $(ARGS) \
	    --output-file requirements.lock pyproject.toml
	@if grep -nE '://|file:' requirements.lock; then \
	    echo "make lock: requirements.lock names a place, want only versions and hashes" >&2; \
	    exit 1; \
	fi

release: env ## Fold changes/ into CHANGELOG.md and set the version: make release VERSION=1.2.3
	@$(BIN)/python tools/release.py $(VERSION)

clean: ## Remove .venv, caches and built files
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# Installs with uv: the one on PATH, else the one in requirements.lock. pip does it where that fails
# (it has settings of its own for package indexes). All of them check the hashes.
$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed: make PYTHON=python3.11" >&2; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv --without-pip $(VENV)
	@set -e; \
	pip="$(BIN)/python -m pip --disable-pip-version-check -qq"; \
	with_pip() { \
	    $$pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null; \
	    $$pip install --require-hashes -r "$$1"; \
	}; \
	with_uv() { uv pip install --quiet --python $(BIN)/python "$$@"; }; \
	PATH="$$PATH:$(CURDIR)/$(BIN)"; \
	if ! command -v uv >/dev/null; then \
	    awk '/^[^ ]/ { wanted = /^uv==/ } wanted' requirements.lock >$(VENV)/uv.lock; \
	    with_pip $(VENV)/uv.lock || true; \
	fi; \
	if ! command -v uv >/dev/null; then \
	    with_pip requirements.lock; \
	elif ! with_uv --require-hashes -r requirements.lock; then \
	    echo "uv could not install requirements.lock, trying pip" >&2; \
	    with_pip requirements.lock; \
	fi; \
	if command -v uv >/dev/null; then \
	    with_uv --no-deps --no-build-isolation --editable .; \
	else \
	    $$pip install --no-deps --no-build-isolation --editable .; \
	fi
	@touch $(STAMP)
	@echo "The environment is made: $(BIN)/stower --help"
