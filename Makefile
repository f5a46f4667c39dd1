# make demo    generate a project, train it with two processes, show its curve and its exact metric
# make test    all linters and all tests
# make lint    the linters alone
# make bench   the measurements of benchmarks/, written to benchmarks/results/
# make release VERSION=0.2.0    record the template as a release
# make clean   remove .venv and what the tools left; generated projects stay
#
# Each sets up what it needs in .venv. Another Python: make test PYTHON=python3.12

PYTHON ?= python3
# For this file only: the tests run programs that read PYTHON too.
unexport PYTHON

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
PEERS := $(VENV)/peers
# launch.sh and the tests find python, ddpgen and the linters here.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: demo test lint style types types-of-projects bench release clean
.DELETE_ON_ERROR:

demo: $(READY)
	@folder=$$(mktemp -d)/demo && set -x && \
	$(BIN)/ddpgen new "$$folder" --gpus 2 --yes && \
	"$$folder/launch.sh" && \
	{ set +x; } 2>/dev/null && \
	echo && echo "exact validation metrics of the last epoch, each sample counted once:" && \
	grep validation "$$folder/runs/default/metrics.jsonl" | tail -n 1 && \
	echo "the project stays in $$folder"

# Python's garbage collector is a sixth of each start of a Python with torch, and the tests start
# hundreds: with the variable it runs seldom, in them alone (tests/collect_less.pth).
test: lint
	COLLECT_LESS=1 $(BIN)/pytest -n 3

# The files of the template are checked where they stand, by the rules of the project that they become;
# the tests check generated projects by these rules once more, with the settings that they carry.
RUFF_TEMPLATE := --isolated --target-version py311 --line-length 100
FIRST_PARTY := --config 'src=["template/project", "template/project/tests"]' \
  --config 'lint.isort.known-first-party=["data", "model", "settings"]'
MYPY_TEMPLATE := --config-file= --cache-dir .mypy_cache/projects --strict --allow-untyped-calls --ignore-missing-imports

lint: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 style types types-of-projects

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/ruff check $(RUFF_TEMPLATE) $(FIRST_PARTY) \
	  --select E,F,W,I,UP,B,C4,SIM,RUF template
	$(BIN)/ruff format --check $(RUFF_TEMPLATE) template
	$(BIN)/shellcheck .ci/run

types: $(READY)
	$(BIN)/mypy --strict ddpgen benchmarks scripts tests

types-of-projects: $(READY)
	@set -e; for preset in template/presets/*; do \
	  echo "mypy of template/project with $$preset"; \
	  MYPYPATH="template/project:template/project/tests:$$preset" $(BIN)/mypy $(MYPY_TEMPLATE) \
	    template/project/*.py template/project/tests/*.py $$preset/*.py; \
	done

bench: $(READY) $(PEERS)
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/picture.py
	$(BIN)/python benchmarks/choices.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/gpu.py
	$(BIN)/python benchmarks/cli.py
	$(BIN)/python benchmarks/traps.py
	PYTHONPATH=template/project $(BIN)/python benchmarks/samplers.py
	PYTHONPATH=template/project $(BIN)/python benchmarks/checkpoint_stall.py
	$(BIN)/python benchmarks/update.py

release: $(READY)
	@$(BIN)/python scripts/release.py '$(VERSION)'

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Made again when the dependencies change. The build backend is installed first and used as it is,
# because pip does not apply constraints to the environment in which it builds.
$(READY): pyproject.toml constraints.txt tests/collect_less.pth
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is not Python 3.11 or later; name one: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  echo "error: $(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt hatchling editables
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[test]'
	@cp tests/collect_less.pth "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@touch $@

# The frameworks that `make bench` measures beside; constraints.txt keeps the torch that is there.
$(PEERS): $(READY)
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[bench]'
	@touch $@
