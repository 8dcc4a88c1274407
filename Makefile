# Every target may be called on a fresh clone and at any time after; `make` alone lists them.
PY := .venv/bin/python
export PYTHON KILL ENGINE KEEP
# Else each process compiles all that it imports, Airflow and Spark too.
unexport PYTHONDONTWRITEBYTECODE
# Three processes, each with a server of its own. The longest files start first, Airflow's and the
# histories; the shortest come last, so that no process runs alone at the end.
SUITE := $(PY) -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder \
	tests/end_to_end tests/simulation tests/faults tests/chaos tests/replay tests/browser \
	tests/integration tests/dags tests/conformance tests/mutants tests/unit

# Strict: a link, a heading or a picture that is missing fails it.
SITE := NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --config-file dev/site/mkdocs.yml

.DEFAULT_GOAL := help
.PHONY: help setup up down reset status shell demo screenshots docs test test-all matrix test-faults chaos bench check check-deps lock verify-compose clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: ## Install everything the lock names into .venv
	@dev/setup

up: setup ## Start Postgres and Airflow on this machine; ENGINE=warm
	@$(PY) -m dev up

down: setup ## Stop them; data stays
	@$(PY) -m dev down

reset: setup ## Stop everything and delete its data; .venv stays
	@$(PY) -m dev destroy

status: setup ## Say what runs
	@$(PY) -m dev status

shell: setup ## A shell with airflow, reliability, psql, spark-submit; `dev/shell CMD …` runs one
	@dev/shell

demo: setup ## 18 months of purchases with a kill -9; KILL=driver|task|supervisor|postgres, ENGINE=warm, KEEP=1
	@$(PY) -m dev.demo

screenshots: setup ## Take the pictures of README and docs, of the demo in a real browser
	@$(PY) -m dev.screenshots

docs: setup ## Build the documentation as a site with a search, in site/
	@$(SITE)
	@echo "to read it: $(PY) -m http.server --bind 127.0.0.1 --directory site"

test: setup ## Run the whole suite: unit, DAGs, Postgres and Spark, histories, Airflow
	@$(SUITE)

test-all: test ## The suite, its slow tests, a plain server, the mutants, each kill, the containers
	@$(PY) -m pytest -m slow tests
	@RELIABILITY_HISTORIES=5000 $(PY) -m pytest tests/simulation
	@RELIABILITY_PIPELINES=50 $(PY) -m pytest tests/integration/test_random_pipelines.py
	@RELIABILITY_TEST_PLAIN=1 RELIABILITY_EXAMPLES=2 RELIABILITY_VALUES=25 RELIABILITY_REQUESTS=10 $(SUITE)
	@$(PY) -m tests.faults
	@$(PY) -m tests.mutants
	@$(PY) -m tests.mutants --generated
	@for victim in driver task supervisor postgres; do $(MAKE) demo KILL=$$victim || exit 1; done
	@for victim in driver engine; do $(MAKE) demo ENGINE=warm KILL=$$victim || exit 1; done
	@if docker info >/dev/null 2>&1; then $(MAKE) verify-compose; \
	  else echo "no Docker here: verify-compose did not run"; fi

test-faults: setup ## Each kind of change of the ledger x each fault, on processes; ONLY="rollback …"
	@$(PY) -m tests.faults $(ONLY)

chaos: setup ## A bank's work while all processes are killed at random; MINUTES=60, SEED=
	@$(PY) -m tests.chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

matrix: setup ## Try each combination of versions in an environment of its own; ONLY="airflow3.0 …"
	@$(PY) -m dev.matrix $(if $(ONLY),--only $(ONLY))

bench: setup ## Measure it beside others; QUICK=1|LARGE=1, ONLY=append,upsert
	@$(PY) -m benchmarks run $(if $(QUICK),--size quick) $(if $(LARGE),--size large) \
	  $(if $(ONLY),--only $(ONLY))

check: setup ## Check format, lint, types, links, and run the unit tests
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy reliability plugins spark_apps dags dev benchmarks tests
	@$(SITE)
	@$(PY) -m pytest tests/unit tests/mutants

check-deps: setup ## Ask PyPI whether locked packages have known vulnerabilities
	@dev/check-deps

lock: setup ## Resolve all dependencies again and write the locks
	@dev/lock

verify-compose: setup ## Run a month of the demo in containers of its own, and remove them
	@$(PY) -m dev.compose verify

clean: ## Stop everything, delete its data and .venv; the containers and their secrets stay
	@if [ -x $(PY) ]; then $(PY) -m dev destroy; fi
	rm -rf .venv
	if [ -d .reliability ]; then find .reliability -mindepth 1 -maxdepth 1 ! -name compose -exec rm -rf {} +; fi
