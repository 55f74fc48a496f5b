# `make demo` and `make test` work from a fresh clone: they need Python 3.10 or newer, and Java 17
# or newer. What each target does: `make help`.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made-from-constraints

# The default instance is the project's own; the caller's wins.
DAGSTER_HOME ?= $(CURDIR)/dagster_home

DEMO_SELECTION ?= group:shop or group:carrier
DEMO_SUMMARY ?= $(BIN)/elt status
# Runs a command, and as long as it runs the API that the connection `carrier` reads, on a free port.
WITH_API := $(if $(wildcard examples/carrier_api.py),$(BIN)/python examples/carrier_api.py)
# That `make bench` ingests; empty for its own default.
RECORDS ?=

# Test files run side by side in so many processes, each with a Spark session of its own.
WORKERS ?= 2

# Folder of the documentation that `make docs` builds; empty for `site`.
SITE ?=

# Extra arguments for pytest or the benchmark: make test ARGS='-k state -x'
ARGS ?=

# Third parties' chatter, which says nothing about this project: the warning is Dagster's, of its own
# command, which it gives before it has loaded anything of ours.
QUIET := DAGSTER_DISABLE_TELEMETRY=yes GRPC_VERBOSITY=ERROR PYTHONWARNINGS='ignore:Function `'

# Images of containers often set it. Each of the processes that tests start would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

# Spark runs on the Java that this finds (or installs); a recipe that needs it starts with $(JAVA).
JAVA = JAVA_HOME="$$(scripts/ensure-java.sh)" && export JAVA_HOME

.PHONY: help env demo test unit ui check docs format bench archive clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

env: $(STAMP)  ## create .venv, or bring it up to date

demo: $(STAMP)  ## materialise every demo asset, and show what is there then
	@$(JAVA) && mkdir -p -m 700 "$(DAGSTER_HOME)" && export DAGSTER_HOME="$(DAGSTER_HOME)" $(QUIET) && \
	$(WITH_API) $(BIN)/dagster asset materialize -m elt_assets.definitions --select '$(DEMO_SELECTION)' && \
	$(DEMO_SUMMARY) && \
	echo "Run it again: only what is new will move. 'make ui' shows it all at http://localhost:3000"

test: $(STAMP)  ## the tests; the long ones too with ARGS='-m ""', in one process with WORKERS=0
	@$(JAVA) && $(QUIET) $(BIN)/python -m elt_assets.lake.archive_maker --if-missing && \
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

unit: $(STAMP)  ## the tests that need no other process: less than a minute
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'unit and not long' $(ARGS)

ui: $(STAMP)  ## Dagster's UI with its daemon, and the demo's API
	@$(JAVA) && mkdir -p -m 700 "$(DAGSTER_HOME)" && export DAGSTER_HOME="$(DAGSTER_HOME)" $(QUIET) && \
	exec $(WITH_API) $(BIN)/dagster dev -w workspace.yaml $(ARGS)

check: $(STAMP) docs  ## lint, format, imports, names, size of the code, types, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/code_names.py
	$(BIN)/python scripts/code_size.py --check
	$(BIN)/python scripts/module_users.py --check
	$(BIN)/mypy

# `--quiet` would hide warnings from `--strict` too.
docs: $(STAMP)  ## the documentation as a site, in site/; each warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(if $(SITE),--site-dir '$(SITE)')

format: $(STAMP)  ## what `make check` would have formatted
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## ingest, its parts, start, merge and others, beside their peers: make bench ARGS='--only merge'
	@$(JAVA) && $(BIN)/python -m benchmarks $(if $(RECORDS),--records $(RECORDS)) $(ARGS)

archive: $(STAMP)  ## Spark's classes in one file, in about a minute: it starts in two thirds of the time
	@$(JAVA) && $(QUIET) $(BIN)/python -m elt_assets.lake.archive_maker

clean:  ## remove the environment and every cache (data in dagster_home stays)
	rm -rf $(VENV) build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find elt_assets connectors tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo "Python 3.10 or newer is needed, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make $(firstword $(MAKECMDGOALS)) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || { \
	  echo "No virtual environment could be made (Debian, Ubuntu: apt-get install python3-venv)." >&2; \
	  rm -rf $(VENV); exit 1; }
	@echo "Installing into $(VENV); the first time this takes a few minutes."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . --group dev --group docs
	@touch $@
