# Every target sets up .venv by itself when it is missing or older than what it is made from.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One thread a process: the tests themselves run side by side.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

.PHONY: setup demo test test-slow lint clean torture torture-slurm

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "statelab needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Use: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "could not create $(VENV): on Debian and Ubuntu, install the package python3-venv"; exit 2; }
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@# pip would compile on one core; some files are of later versions of Python.
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/statelab demo

test: $(STAMP)
	$(PYTEST) --timeout 600 --durations 25 --durations-min 5

test-slow: $(STAMP)
	$(PYTEST) -m slow --timeout 3600

# 200 kill -9 over journal files and, where initdb is there, PostgreSQL: an hour or two.
torture: $(STAMP)
	$(BIN)/python -m tests.torture.storm --kills 200

# Two real Slurm nodes on this machine; needs root and Debian's slurmctld, slurmd and munge.
torture-slurm: $(STAMP)
	$(BIN)/python -m tests.torture.slurm

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
