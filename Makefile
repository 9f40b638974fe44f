# Every target does its own set-up, into .venv. `make help` lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup jvm demo test test-quick test-bench wheel docs lint types sim spec mutants browser cluster kits realtime packaging bench rivals soak proto lock clean

help:  ## Show the targets.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(STAMP)  ## Make .venv with every locked dependency and the package itself.

$(STAMP): requirements.lock pyproject.toml setup.py src/logplayer/wire/fastpath.py tools/setup tools/compiler
	PYTHON="$(PYTHON)" VENV="$(VENV)" tools/setup
	@touch $@

demo: setup  ## The main job on embedded defaults: shards, faults, proof. ARGS="--engine in-process" for options.
	$(BIN)/logplayer demo $(ARGS)

test:  ## All checks that CI runs: lint, types, proofs, tests.
	PYTHON="$(PYTHON)" tools/test

test-quick: setup  ## The quick half of the tests: no Spark, no servers, no mutants.
	$(BIN)/pytest -n $(or $(WORKERS),3) -m quick

lint: setup  ## ruff: style, imports, common errors.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## mypy, strict.
	$(BIN)/mypy

sim: setup  ## Simulate the real core under faults, then prove that every mutant is caught.
	$(BIN)/logplayer sim --runs $(or $(RUNS),20000)
	$(BIN)/logplayer sim --world driver --runs $(or $(RUNS),20000)
	$(BIN)/logplayer sim --world feed --runs 2000
	$(BIN)/logplayer sim --mutants

spec: setup  ## Check the TLA+ models with TLC.
	tools/spec

mutants: setup  ## Prove that tests and simulator catch deliberate breaks of the product.
	tools/mutants

bench: setup  ## Measure; results go to bench/results/.
	tools/bench

rivals: setup  ## Fetch the benchmarks' rivals (needs Maven) and start three Kafka brokers; stop: tools/rivals down.
	tools/rivals fetch
	tools/rivals up

soak: setup  ## Long fault campaigns on real processes.
	tools/soak

browser: setup  ## Drive the page in a real Chromium. SCREENSHOTS=1 writes those in docs/images.
	tools/browser

cluster: setup  ## Spark under kills, on several addresses with TLS and a token, and through Spark Connect.
	$(BIN)/pytest -n 2 -m "cluster and not soak" -rs tests/spark

kits: setup  ## The log kit on etcd, NATS and Kafka, with their real servers; the target kit on a target in Go.
	$(BIN)/pytest -n $(or $(WORKERS),3) -m kits -rs tests/log tests/contract tests/process

jvm: setup  ## Build the connector for Spark's real-time mode (needs Maven).
	tools/jvm

realtime: jvm  ## Queries in real time, and a few kills on a standalone cluster.
	$(BIN)/pytest -n 1 -m "realtime and not soak" -rs tests/spark

test-bench: setup jvm  ## Run every measurement for a moment: ours, and the rivals' on their own servers.
	$(BIN)/pytest -n $(or $(WORKERS),3) -m "bench and not soak" -rs tests/bench

packaging: setup  ## Build wheels and the sdist, and use them in an empty environment.
	$(BIN)/pytest -m packaging -rs tests/packaging

wheel: setup jvm  ## Build the wheel and the sdist into dist/.
	rm -f dist/logplayer-*
	$(BIN)/python -m build --no-isolation --outdir dist .

docs: setup  ## Build the documentation into site/, after generating what the code knows best.
	tools/docs
	$(BIN)/mkdocs build --strict --quiet

proto: setup  ## Generate the protobuf code again.
	tools/proto

lock: setup  ## Write requirements.lock from what is installed in .venv.
	tools/lock

clean:  ## Remove what the targets made.
	rm -rf src/logplayer/wire/fastpath*.so src/logplayer/spark/real_time/*.jar $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache spec/out build dist site
