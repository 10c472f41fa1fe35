# Every target works on a fresh clone that has make and Python 3.11 or newer, and nothing else.
# Packages come from the locks in requirements/, with hashes, from wherever your pip looks.

PYTHON ?= $(firstword $(foreach name,python3 python3.11 python3.12 python3.13 python3.14,$(shell \
	command -v $(name) >/dev/null 2>&1 && $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
DIR ?= tests/data/cases
BIN := .venv/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check --no-input install --no-deps

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
.NOTPARALLEL:
.PHONY: help run test check verify cases requirements bench bench-web rivals e2e-model e2e-harness conformance conformance-mcp soak fuzz web lock audit clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

run: .venv/runtime.stamp .venv/project.stamp  ## Serve conversations here and now (ARGS=chat to talk in the terminal, or any other command)
	@exec $(BIN)/antiphon $(if $(ARGS),$(ARGS),serve)

test: .venv/dev.stamp .venv/project.stamp  ## Run the tests (ARGS="-k stream" to choose)
	@$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile $(ARGS)

check: .venv/dev.stamp .venv/project.stamp  ## Format, lint, types, direction of imports, generated files
	@echo "format"; $(BIN)/ruff format --check --quiet . || { echo "run: .venv/bin/ruff format ."; exit 1; }
	@echo "lint"; $(BIN)/ruff check --quiet .
	@echo "types"; $(BIN)/mypy src tests $(if $(wildcard bench/*.py),bench)
	@echo "imports"; report=$$($(BIN)/lint-imports --no-cache 2>&1) || { echo "$$report"; exit 1; }
	@for script in scripts/check_*.py; do \
		[ -e "$$script" ] || continue; echo "generated: $$script"; $(BIN)/python "$$script" || exit 1; done

verify: .venv/dev.stamp .venv/project.stamp  ## Check the dispatch table against a model of every interleaving; plant faults
	@$(BIN)/python tests/model/check.py $(ARGS)
	@$(BIN)/python -m tests.simulation --mutants

cases: .venv/dev.stamp .venv/project.stamp  ## Run the cases from public bug reports (DIR=path for others)
	@$(BIN)/python tests/run_cases.py $(DIR) $(ARGS)

requirements: .venv/dev.stamp .venv/project.stamp  ## Print as JSON which tests prove which requirement
	@rm -f .venv/requirements.json
	@$(BIN)/python -m pytest --requirements=.venv/requirements.json --require-owned $(ARGS) >&2; code=$$?; \
		if [ -e .venv/requirements.json ]; then cat .venv/requirements.json; fi; exit $$code

bench: .venv/bench.stamp .venv/project.stamp  ## Measure against the alternatives (ARGS="--quick" for a short run)
	@$(BIN)/python bench/run.py $(ARGS)

rivals:  ## Install the gateways that `make bench` measures beside ours (into .rivals, 500 MB)
	@PYTHON=$(PYTHON) scripts/rivals

e2e-model: .venv/dev.stamp .venv/project.stamp .venv/local.stamp  ## Talk to a real small model on this machine (downloads 130 MB)
	@$(BIN)/python tests/e2e_model.py $(ARGS)
	@$(BIN)/python -m tests.e2e_served
	@$(BIN)/python -m tests.e2e_files

e2e-harness: .venv/dev.stamp .venv/project.stamp .harness/0.2.1rc2.stamp  ## Run DeepSeek Harness through our door (installs it into .harness, 340 MB)
	@$(BIN)/python -m tests.e2e_harness $(ARGS)

.harness/%.stamp:
	@$(PYTHON) -m venv --clear .harness
	@.harness/bin/pip install -qq --disable-pip-version-check --no-input deepseek-harness-sdk==$*
	@touch $@

conformance: .venv/dev.stamp .venv/project.stamp  ## Run the compliance tests of Open Responses (OPENRESPONSES=checkout)
	@$(BIN)/python -m tests.conformance $(OPENRESPONSES)

conformance-mcp: .venv/dev.stamp .venv/project.stamp  ## Run the MCP project's client scenarios, and its servers for Node (installs it if older than 22)
	@$(BIN)/python -m tests.mcp_conformance
	@$(BIN)/python -m tests.mcp_reference

soak: .venv/dev.stamp .venv/project.stamp  ## Run for long under faults, watching memory and invariants
	@$(BIN)/python -m tests.simulation --seeds 100000 --minutes 5 $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.simulation --shared --seeds 100000 --minutes 2 $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.server.history $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.engine.long_talk
	@$(BIN)/python -m tests.server.cluster $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.server.calamities $(if $(SEED),--seed $(SEED))
	@$(BIN)/python tests/soak.py $(ARGS)

fuzz: .venv/dev.stamp .venv/project.stamp  ## Feed damaged streams and histories until told to stop
	@$(BIN)/python tests/fuzz.py $(ARGS)

web:  ## Build the client for browsers, and the console into the package (needs Node.js 20.19 or newer)
	@web/install client && npm --prefix web/client run --silent build
	@$(PYTHON) scripts/check_console.py --write

bench-web: .venv/dev.stamp .venv/project.stamp  ## Measure how a large conversation feels in the console (needs Node.js and Chromium)
	@web/install proof && ANTIPHON_PYTHON=$(abspath $(BIN)/python) npm --prefix web/proof run --silent bench

pictures: .venv/dev.stamp .venv/project.stamp  ## Take the pictures of the docs anew (needs Node.js and Chromium)
	@PICTURES=1 PROOF=pictures $(BIN)/python -m pytest -q tests/web/test_proof.py -k "built or went_well"

lock: .venv/created.stamp  ## Remake the locks from pyproject.toml (ARGS=--upgrade for the newest of everything)
	@PYTHON=$(BIN)/python scripts/lock $(ARGS)

audit: .venv/audit.stamp .venv/project.stamp  ## Look for weaknesses: bandit, secrets in tracked files, known vulnerabilities
	@$(BIN)/python scripts/audit

clean:  ## Remove everything that make has made
	@rm -rf .venv .venv-lock .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
	@rm -rf web/*/node_modules web/*/build web/client/dist
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# One stamp per lock: made once, made again when the lock changes. The locks agree on every version, so one environment
# holds any number of them.

.venv/created.stamp:
	@[ -n "$(PYTHON)" ] || { echo "Antiphon needs Python 3.11 or newer; none of python3, python3.11 … python3.14 is." \
		"Name one with: make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "environment: .venv with $$($(PYTHON) --version)" >&2
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "This Python cannot make environments. On Debian and" \
		"Ubuntu: apt install $$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/build.stamp: requirements/build.lock | .venv/created.stamp
	@$(PIP) --require-hashes --requirement requirements/build.lock
	@touch $@

.venv/project.stamp: pyproject.toml .venv/build.stamp
	@$(PIP) --no-build-isolation --editable .
	@touch $@

.venv/%.stamp: requirements/%.lock | .venv/created.stamp
	@echo "packages: $<" >&2
	@$(PIP) --require-hashes --requirement $<
	@touch $@

.venv/runtime.stamp: | .venv/project.stamp
.venv/bench.stamp: .venv/dev.stamp
.venv/audit.stamp: .venv/dev.stamp
.venv/dev.stamp: .venv/runtime.stamp

.PRECIOUS: .venv/%.stamp
