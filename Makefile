# `make help` lists what there is. Everything installs what it needs; nothing is installed outside .venv,
# the cache (see docs/sandbox.md) and, for the sandbox, a few packages of the system.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SANDBOX_NAME := $(or $(SANDBOX),dev)
SANDBOX_CLI = PYTHONPATH=dev $(BIN)/python -m sandbox
IN_SANDBOX = $(SANDBOX_CLI) --name $(SANDBOX_NAME) exec --
TEST_SANDBOX := $(or $(TEST_SANDBOX),test)
IN_TEST_SANDBOX = $(SANDBOX_CLI) --name $(TEST_SANDBOX) exec --
PYTEST = $(BIN)/pytest
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-full test-unit test-integration test-e2e lint format crds lock \
	sandbox sandbox-down sandbox-env bench sim-nightly clean

help: ## list every target
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z_-]+:.*## / {printf "  \033[1m%-18s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.complete ## the virtual environment, from hashed locks

$(VENV)/.complete: dev/locks/all.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Installing the locked dependencies into $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "On Debian, install python3-venv and repeat." >&2; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement dev/locks/all.txt
	@echo "$(CURDIR)/operator" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/millrace.pth"
	@printf '#!%s\nimport sys\n\nfrom millrace.cli import main\n\nsys.exit(main())\n' "$(CURDIR)/$(BIN)/python" > $(BIN)/millrace
	@chmod 0755 $(BIN)/millrace
	@touch $@

demo: setup ## the whole thing at work: a topic grows under load, and is delivered to an HTTP endpoint
	$(SANDBOX_CLI) --name $(SANDBOX_NAME) up
	$(IN_SANDBOX) $(BIN)/python -m demo

test: lint ## every test that CI runs
	$(PYTEST) tests/unit tests/simulation -m "not full" $(PYTEST_ARGS)
	@TEST_SANDBOX=$(TEST_SANDBOX) dev/test-in-sandbox -m "not full" $(PYTEST_ARGS)

test-full: lint ## the same with the fault matrix, upgrade and rollback
	MILLRACE_SIM_SEEDS=20000 $(PYTEST) tests/unit tests/simulation $(PYTEST_ARGS)
	@TEST_SANDBOX=$(TEST_SANDBOX) dev/test-in-sandbox $(PYTEST_ARGS)

test-unit: setup ## what needs no cluster
	$(PYTEST) tests/unit tests/simulation -m "not full" $(PYTEST_ARGS)

test-integration: setup ## what needs a real Pulsar or API server, in a sandbox without the chart, which stays up
	$(SANDBOX_CLI) --name $(TEST_SANDBOX) up --without-release
	$(IN_TEST_SANDBOX) $(PYTEST) tests/integration -m "not full" $(PYTEST_ARGS)

test-e2e: setup ## what needs the installed chart, in the developer's sandbox
	$(SANDBOX_CLI) --name $(SANDBOX_NAME) up
	$(IN_SANDBOX) $(PYTEST) tests/e2e -m "not full" $(PYTEST_ARGS)

sim-nightly: setup ## new random seeds, until interrupted
	@while :; do seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); echo "from seed $$seed"; \
		MILLRACE_SIM_FIRST=$$seed MILLRACE_SIM_SEEDS=5000 $(PYTEST) -q tests/simulation || exit 1; done

lint: setup ## ruff, mypy --strict, the layers, and generated files that are up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m millrace.api.crds crds --check
	$(BIN)/python -m millrace.api.crds charts/millrace/files/crds --check
	$(BIN)/python -m millrace.api.reference docs --check

format: setup ## let ruff format and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

crds: setup ## crds/, the chart's copies and the reference, from the models
	$(BIN)/python -m millrace.api.crds crds
	$(BIN)/python -m millrace.api.crds charts/millrace/files/crds
	$(BIN)/python -m millrace.api.reference docs

lock: setup ## resolve the dependencies anew
	$(BIN)/uv pip compile pyproject.toml --quiet --upgrade --generate-hashes --universal --no-emit-index-url \
		--python-version 3.11 --custom-compile-command "make lock" --all-extras --group dev --output-file dev/locks/all.txt
	$(BIN)/uv pip compile pyproject.toml --quiet --generate-hashes --universal --no-emit-index-url \
		--python-version 3.11 --custom-compile-command "make lock" --constraint dev/locks/all.txt --output-file dev/locks/operator.txt
	$(BIN)/uv pip compile pyproject.toml --quiet --generate-hashes --universal --no-emit-index-url --extra spark \
		--python-version 3.11 --custom-compile-command "make lock" --constraint dev/locks/all.txt --output-file dev/locks/spark.txt

sandbox: setup ## a real Kubernetes and a real Pulsar, with the chart installed (SANDBOX=name for another one)
	$(SANDBOX_CLI) --name $(SANDBOX_NAME) up

sandbox-down: setup ## remove the sandbox without a trace
	$(SANDBOX_CLI) --name $(SANDBOX_NAME) down

sandbox-env: setup ## shell assignments to use it from outside: eval "$(make -s sandbox-env)"
	@$(SANDBOX_CLI) --name $(SANDBOX_NAME) env

bench: setup ## measurements, one JSON line each
	$(SANDBOX_CLI) --name $(SANDBOX_NAME) up
	@PYTHONPATH=dev $(BIN)/python -m bench routing
	@PYTHONPATH=dev $(BIN)/python -m bench endpoint
	@$(IN_SANDBOX) $(BIN)/python -m bench producer
	@$(IN_SANDBOX) $(BIN)/python -m bench delivery
	@$(IN_SANDBOX) $(BIN)/python -m bench reconciling

clean: ## caches of this checkout (the sandbox's builds stay; docs/sandbox.md says where)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -r {} +
