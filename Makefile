# Everything starts from a bare Python 3.11+: each target makes the virtual environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A Python that has the exact peers of benchmarks/proof, which need older libraries.
PEERS_PYTHON ?= $(BIN)/python

.PHONY: demo test test-long engines lint docs bench dist clean

demo: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/torchrun --standalone --nproc-per-node 4 -m psfit demo --out demo-output

# One worker more than cores, at most 8: tests that start processes wait for them half of the time. A worker that is done
# takes tests from the others; each has one thread (tests/conftest.py).
WORKERS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 8 ? cores + 1 : 8)))
test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations 30

# Tests that take long: examples of the engines, many clients.
test-long: $(READY)
	$(BIN)/python -m pytest -m long --durations 30

# The engines and tools that PsFiT plugs into; `make test` leaves their tests out where they are not installed.
engines: $(VENV)/.engines

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Warnings are errors, unknown names included; nothing is fetched from a network.
docs: $(READY)
	$(BIN)/python -m sphinx -W --keep-going -n --quiet docs docs/_build/html

# The peers are installed on the first run; real data sets are added with --data (see the scripts).
bench: $(READY)
	$(INSTALL) 'psfit-toolbox[bench]'
	$(BIN)/python benchmarks/models/run.py --output benchmarks/results
	$(BIN)/python benchmarks/quality/run.py --output benchmarks/results
	$(BIN)/python benchmarks/peers/run.py --high --exact --output benchmarks/results
	$(BIN)/python benchmarks/scaling/run.py --output benchmarks/results
	$(BIN)/python benchmarks/memory/run.py --output benchmarks/results
	$(BIN)/python benchmarks/selection/run.py --output benchmarks/results
	$(BIN)/python benchmarks/federated/run.py --output benchmarks/results
	for script in convergence parts table "scaling features" "scaling samples"; do \
		set -- $$script; $(BIN)/python benchmarks/paper/$$1.py $$2 --output benchmarks/results || exit 1; done
	$(BIN)/python benchmarks/proof/alone.py --output benchmarks/results
	$(BIN)/python benchmarks/proof/run.py --output benchmarks/results --peers-python $(PEERS_PYTHON)
	$(BIN)/python benchmarks/proof/classifiers.py --output benchmarks/results --peers-python $(PEERS_PYTHON)

# What is released: the source archive, and the wheel that is built from it.
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --no-isolation

INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[dev]'
	touch $@

# By its name PsFiT stays as it is installed; only what the extra needs is added.
$(VENV)/.engines: $(READY)
	$(INSTALL) 'psfit-toolbox[engines]'
	touch $@

clean:
	rm -rf $(VENV) demo-output build dist docs/_build
