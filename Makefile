# Slackwater. `make` alone lists the targets.
PYTHON ?= python3
BIN := .venv/bin
# Processes that run tests. A third one for two cores, because tests wait for half of their time; each costs its own start.
PROCESSES ?= 3
SHARD ?= 1/1

# Images often set it. The tests start hundreds of processes, each of which would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
COMMIT ?= HEAD
.PHONY: help install tools demo test test-all engines lint check plugin wheels clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

install: ## create .venv with everything, the engine included (instant when nothing changed)
	@PYTHON=$(PYTHON) deploy/install.sh

tools: ## get what tests use and pip has not, (promtool, Chromium); instant when it is there
	@deploy/install-tools.sh

demo: install ## run a batch of real prompts through the whole system on this machine
	@$(BIN)/slackwater demo

test: install ## run the tests that every change needs, in three processes (PROCESSES=3)
	-@deploy/install-tools.sh
	@$(BIN)/python -m pytest -n $(PROCESSES) --no-loadscope-reorder

test-all: install ## run every test, with more examples of each property; SHARD=3/12 runs the third of twelve parts
	-@deploy/install-tools.sh
	@$(BIN)/python -m pytest -n $(PROCESSES) --no-loadscope-reorder --all --shard $(SHARD)

engines: install ## build an environment per supported version of vLLM (4 GB) and check the scheduler plug-in in each
	@deploy/engines.sh
	@$(BIN)/python -m testing.vllm_versions

lint: install ## ruff, mypy --strict, the import contracts, the locks that new migrations take
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python deploy/lint_migrations.py

check: lint test ## what CI runs

plugin: install ## build the wheel of the plug-in for vLLM into dist/
	@deploy/build-plugin.sh dist

wheels: install ## build both wheels of a commit into dist/ (COMMIT=v0.1.0; by default the newest)
	@deploy/build-wheels.sh dist $(COMMIT)

clean: ## remove .venv and caches (the data directory with models stays)
	rm -rf .venv .tools build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
