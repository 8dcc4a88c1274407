# Every target may be called on a fresh clone and at any time after; `make` alone lists them.
PYTHON ?= python3
PY := .venv/bin/python
export KILL

.DEFAULT_GOAL := help
.PHONY: help setup up down status demo test test-all check lock verify-compose clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: ## Install everything the lock names into .venv
	@$(PYTHON) dev/bootstrap.py

up: setup ## Start Postgres and Airflow on this machine
	@$(PY) -m dev up

down: setup ## Stop them; data stays
	@$(PY) -m dev down

status: setup ## Say what runs
	@$(PY) -m dev status

demo: setup ## Show exactly-once through a crash; KILL=<point> chooses the point
	@$(PY) -m dev.demo

test: setup ## Run the tests but those through a whole Airflow
	@$(PY) -m pytest --ignore=tests/end_to_end

test-all: setup ## Run all tests that this machine can run
	@$(PY) -m pytest

check: setup ## Check format, lint, types and run the unit tests
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy reliability plugins spark_apps dags dev
	@$(PY) -m pytest tests/unit

lock: setup ## Resolve all dependencies anew and write the locks
	@$(PY) -m dev lock

verify-compose: ## Check the container set-up
	@docker compose config --quiet

clean: ## Stop everything, delete its data and .venv
	@if [ -x $(PY) ]; then $(PY) -m dev destroy; fi
	rm -rf .venv .reliability
