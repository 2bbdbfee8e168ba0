# Every target sets up .venv by itself; nothing needs to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= ../shared/data

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench schedules quality views fuzz flower kills reproduce clean

help:            ## this list
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/'

# uv downloads in parallel and is several times faster; where it can't reach an index, plain pip does the same. Bytecode is
# made here and now: without it every process compiles 500 modules as it starts, where it may not write them.
define install
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/pip install -q uv || true
	@echo "installing $(1) into $(VENV)"
	@$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python -e '$(1)' 2>/dev/null || $(BIN)/pip install -q -e '$(1)'
	@$(BIN)/python -m compileall -q src
	@touch $@
endef

$(VENV)/.demo: pyproject.toml
	$(call install,.[demo])

# torch first, by pip and by its exact version: where a machine keeps a build for processors only, pip's own settings know
# of it and uv does not; without one this is the ordinary wheel. Installed, it satisfies .[dev].
$(VENV)/.dev: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/pip install -q torch==2.13.0
	$(call install,.[dev])
	@touch $(VENV)/.demo

demo: $(VENV)/.demo  ## three organisations align, train, score: every command shown
	@$(BIN)/colonnade demo

test: lint       ## everything that CI checks
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/.dev  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Opponents live apart: one pins a library to a version of its own. Without them we are timed alone.
$(VENV)/.opponents: $(VENV)/.dev
	@$(PYTHON) -m venv $(VENV)/opponents
	@for name in openmined-psi "phe gmpy2 numpy" "flwr[simulation] -e ."; do \
	  $(BIN)/uv pip install -q --python $(VENV)/opponents/bin/python $$name 2>/dev/null \
	  || $(VENV)/opponents/bin/pip install -q $$name || echo "$$name can't be installed here"; done
	@touch $@

bench: $(VENV)/.opponents  ## timings against the stated opponents, into benchmarks/RESULTS.md
	$(BIN)/python benchmarks/run.py

schedules: $(VENV)/.dev  ## ten thousand random schedules of faults under the virtual clock, over all algorithms
	$(BIN)/python tests/schedules.py 10000

quality: $(VENV)/.dev  ## models against their references on the real data sets, the long cases too (DATA=<folder of data sets>)
	COLONNADE_QUALITY=1 COLONNADE_DATA=$(DATA) $(BIN)/python -m pytest -n 2 tests/test_quality.py

views: $(VENV)/.dev  ## what each party can work out of what it sees, into docs/security.md and tests/views/figures.json
	$(BIN)/python tests/root_view.py --write

# Apart from .[dev]: it has no wheels for every Python that colonnade runs on.
fuzz: $(VENV)/.dev  ## bytes led by coverage against all that reads bytes of others, a minute each
	@$(BIN)/uv pip install -q --python $(BIN)/python atheris 2>/dev/null || $(BIN)/pip install -q atheris
	$(BIN)/python tests/fuzz.py codec 60
	$(BIN)/python tests/fuzz.py toml 60
	$(BIN)/python tests/fuzz.py ids 60
	$(BIN)/python tests/fuzz.py certificates 60

# Flower holds rich and others back, so it is tested in an environment of its own.
flower: $(VENV)/.dev  ## the same algorithms on Flower: in one process, and deployed on loopback
	@$(PYTHON) -m venv $(VENV)/flower
	@$(BIN)/uv pip install -q --python $(VENV)/flower/bin/python -e '.[flower,demo]' pytest hypothesis 2>/dev/null \
	  || $(VENV)/flower/bin/pip install -q -e '.[flower,demo]' pytest hypothesis
	COLONNADE_FLOWER=1 $(VENV)/flower/bin/python -m pytest tests/test_flower.py

kills: $(VENV)/.dev  ## each party killed at ten random points of a job, which goes on to the same bits
	COLONNADE_KILLS=10 $(BIN)/python -m pytest -n 2 tests/test_federation.py -k killed

reproduce: $(VENV)/.dev  ## the papers' tables and figures (DATA=<folder of data sets>)
	for name in fedbcd-rounds fedbcd-encrypted fedbcd-mnist fedbcd-nus vfb2-accuracy vfb2-convergence vfb2-scaling \
	  afsgd-speedup afsgd-convergence afsgd-fdml fdskl-errors fdskl-time fdskl-scaling fdskl-topologies \
	  ssca-cost ssca-accuracy ssca-sparsity; do \
	  $(BIN)/python -m reproductions $$name --data "$(DATA)" || exit 1; done

clean:           ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist
