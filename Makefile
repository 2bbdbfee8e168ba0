# Every target sets up .venv by itself; nothing needs to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A folder of data sets for quality, reproductions, benchmarks and the tests that need real data: DATA=<folder>, or the
# variable COLONNADE_DATA. One that lies beside the checkout is found by itself; without any, those tests are skipped.
DATA ?= $(or $(COLONNADE_DATA),$(wildcard ../shared/data))
ifneq ($(DATA),)
export COLONNADE_DATA := $(abspath $(DATA))
endif

# Where a machine forbids Python to keep compiled modules, every process compiles every module that it imports, numba's
# front end included, which is two thirds of the work of each start. Here they are kept, as Python does by itself.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint browser bench schedules quality views fuzz flower integrations ray kills pythons reproduce docs dist clean

help:            ## this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/'

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

# A checkout has no compiled kernels, so numba belongs to it. pip sees that by itself, uv does not.
DEMO := .[compile,demo]

$(VENV)/.demo: pyproject.toml
	$(call install,$(DEMO))

# torch first, by pip and by its exact version (constraints.txt): where a machine keeps a build for processors only, pip's
# own settings know of it and uv does not; without one this is the ordinary wheel. Installed, it satisfies .[dev].
$(VENV)/.dev: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/pip install -q -c constraints.txt torch
	$(call install,.[dev])
	@touch $(VENV)/.demo

demo: $(VENV)/.demo  ## three organisations align, train, score: every command shown
	@$(BIN)/colonnade demo

test: lint       ## everything that CI checks; CONTRIBUTING.md says what that guarantees
	$(BIN)/python -m pytest -n 3 --dist worksteal

test-all: lint   ## the same with the long cases, the whole of each table of cases
	COLONNADE_ALL=1 $(BIN)/python -m pytest -n 3 --dist worksteal

# The tests that look at reports with a real browser are skipped where there is none.
browser:         ## Chromium for these tests, on Debian and Ubuntu, as root
	@command -v chromium >/dev/null || { apt-get -q update && apt-get -q -y install --no-install-recommends chromium fonts-dejavu-core; }

lint: $(VENV)/.dev  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# xgboost and LightGBM stand beside our trees where these are timed and reproduced; neither is a dependency. xgboost-cpu is
# the same library without code for graphics cards, and much smaller.
$(VENV)/.trees: $(VENV)/.dev
	@for name in xgboost-cpu lightgbm; do \
	  $(BIN)/uv pip install -q --python $(BIN)/python $$name 2>/dev/null || $(BIN)/pip install -q $$name \
	  || echo "$$name can't be installed here"; done
	@touch $@

# Opponents live apart: one pins a library to a version of its own. Without them we are timed alone.
$(VENV)/.opponents: $(VENV)/.dev
	@$(PYTHON) -m venv $(VENV)/opponents
	@for name in openmined-psi "phe gmpy2 numpy" "flwr[simulation] -e .[compile]"; do \
	  $(BIN)/uv pip install -q --python $(VENV)/opponents/bin/python $$name 2>/dev/null \
	  || $(VENV)/opponents/bin/pip install -q $$name || echo "$$name can't be installed here"; done
	@$(PYTHON) -m venv $(VENV)/spu
	@$(VENV)/spu/bin/pip install -q spu==0.9.5 || echo "spu can't be installed here"
	@$(PYTHON) -m venv $(VENV)/secretflow
	@$(VENV)/secretflow/bin/pip install -q -r benchmarks/secretflow.txt \
	  && $(VENV)/secretflow/bin/pip install -q --no-deps secretflow-lite==1.11.0b1 || echo "secretflow can't be installed here"
	@touch $@

bench: $(VENV)/.opponents $(VENV)/.trees  ## timings against the stated opponents, into benchmarks/RESULTS.md
	$(BIN)/python benchmarks/run.py

schedules: $(VENV)/.dev  ## ten thousand random schedules of faults under the virtual clock, over all algorithms
	$(BIN)/python tests/schedules.py 10000

quality: $(VENV)/.dev  ## models against their references on the real data sets, the long cases too (DATA=<folder of data sets>)
	COLONNADE_ALL=1 COLONNADE_QUALITY=1 $(BIN)/python -m pytest -n 2 tests/test_quality.py

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
	@$(BIN)/uv pip install -q --python $(VENV)/flower/bin/python -e '.[compile,flower,demo]' pytest hypothesis 2>/dev/null \
	  || $(VENV)/flower/bin/pip install -q -e '.[compile,flower,demo]' pytest hypothesis
	COLONNADE_FLOWER=1 $(VENV)/flower/bin/python -m pytest tests/test_flower.py

# MLflow and onnxruntime bring more packages than all of ours, and Airflow pins its own: they have environments apart.
WITH_THEM := trackers mlflow_server watched_jobs watching export scheduling

integrations: $(VENV)/.dev  ## MLflow, TensorBoard, ONNX and Airflow themselves against what we write for them
	@$(PYTHON) -m venv $(VENV)/integrations && $(PYTHON) -m venv $(VENV)/airflow
	@$(BIN)/uv pip install -q --python $(VENV)/integrations/bin/python -e '.[$(EXTRAS)]' $(THEIRS) 2>/dev/null \
	  || $(VENV)/integrations/bin/pip install -q -e '.[$(EXTRAS)]' $(THEIRS)
	@$(BIN)/uv pip install -q --python $(VENV)/airflow/bin/python $(AIRFLOW) 2>/dev/null \
	  || $(VENV)/airflow/bin/pip install -q $(AIRFLOW) || echo "Airflow can't be installed here"
	COLONNADE_ALL=1 COLONNADE_AIRFLOW=$(VENV)/airflow/bin/python \
	  $(VENV)/integrations/bin/python -m pytest $(WITH_THEM:%=tests/test_%.py)

EXTRAS := compile,demo,mlflow,onnx,otel,tensorboard
THEIRS := mlflow onnxruntime tensorboard prometheus-client pytest hypothesis pandas polars
AIRFLOW := apache-airflow-core apache-airflow-providers-standard

ray: $(VENV)/.dev  ## workers of an engine on Ray: clusters that start and end, deaths, the same bits with any number of them
	COLONNADE_RAY=1 $(BIN)/python -m pytest tests/test_ray_executor.py
	$(BIN)/python benchmarks/run.py --quick --only engines

kills: $(VENV)/.dev  ## each party killed at ten random points of a job, which goes on to the same bits
	COLONNADE_KILLS=10 $(BIN)/python -m pytest -n 2 tests/test_federation.py -k killed

# A new Python has no wheels of torch and MPI at first, so they are left out here.
PYTHONS ?= python3.11 python3.12 python3.13 $(wildcard $(HOME)/.pyenv/versions/3.1[123].*/bin/python)
SHORT := layers data losses ring wire toml simulation estimators job block_newton align

pythons:         ## a short set of tests under each Python from 3.11 to 3.13 that is found (PYTHONS=<interpreters>)
	@tried=; for python in $(PYTHONS); do \
	  version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
	  case " $$tried " in *" $$version "*) continue;; esac; home=$(VENV)/pythons/$$version; \
	  test -x $$home/bin/pip || $$python -m venv $$home >/dev/null || { rm -rf $$home; continue; }; \
	  echo "Python $$version: $$python"; tried="$$tried $$version"; \
	  $$home/bin/pip install -q -e '.[compile,demo]' pytest hypothesis pandas polars || exit 1; \
	  $$home/bin/python -m pytest $(SHORT:%=tests/test_%.py) || exit 1; done; echo "tried:$$tried"

reproduce: $(VENV)/.trees  ## the papers' tables and figures; says how long each takes (DATA=<folder of data sets>)
	@test -n "$(DATA)" || { echo "make reproduce needs data sets; name their folder: make reproduce DATA=<folder>"; exit 1; }
	$(BIN)/python -m reproductions all --data "$(DATA)"

# What builds the site lives apart: twenty packages that nothing else needs, a Jupyter kernel among them.
$(VENV)/.docs: pyproject.toml
	@test -x $(VENV)/docs/bin/python || $(PYTHON) -m venv $(VENV)/docs
	@echo "installing .[docs] into $(VENV)/docs"
	@$(BIN)/uv pip install -q --python $(VENV)/docs/bin/python -e '.[docs]' 2>/dev/null || $(VENV)/docs/bin/pip install -q -e '.[docs]'
	@touch $@

docs: $(VENV)/.dev $(VENV)/.docs  ## the documentation as a site, into build/site; every snippet, tutorial and notebook is run
	$(BIN)/python -m pytest -n 2 tests/test_docs.py tests/test_site.py tests/test_tutorials.py tests/test_notebooks.py
	NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build --strict
	$(VENV)/docs/bin/python website/check_site.py build/site

# A build takes two minutes of a core: all kernels are compiled for three kinds of processors, for the wheel and for the sdist.
$(BIN)/uv:
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q uv || true

dist: $(BIN)/uv  ## wheel, sdist and bill of materials, each installed and used in an environment of its own
	@rm -rf dist
	@$(BIN)/uv build -q || { $(BIN)/pip install -q build && $(BIN)/python -m build; }
	$(BIN)/python packaging/check_dist.py dist --sbom

clean:           ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist
