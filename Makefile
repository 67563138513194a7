# Two commands: `make run` and `make test`. Both need Python >= 3.11 and a package index, nothing else.

# Hundreds of processes import the same modules, which are compiled once.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin

# Groups of tests, nine at once. Those of whole processes wait for much of their time and would last longest: they begin
# first; those that compute fill what is free meanwhile, and no long one is left at the end.
PROCESS_A = $(sort $(wildcard tests/process/test_[a-d]*.py)) tests/process/test_mcp_servers.py
PROCESS_E = $(filter-out $(PROCESS_A),$(sort $(wildcard tests/process/test_[e-r]*.py)))
PROCESS_S = $(sort $(wildcard tests/process/test_[s-z]*.py))
KILLED    = tests/faults tests/storage tests/benchmarks
CLUSTER   = tests/cluster tests/examples tests/deploy
NODES     = tests/cluster/test_short_form.py
SLOW      = tests/memory tests/attacks
ACTING    = tests/acting tests/planning tests/perception
SERVED    = tests/docs tests/evals tests/mcp tests/servers tests/console
RUNNING   = tests/runs tests/session tests/server tests/service tests/testing tests/simulation tests/properties

GROUPS    = test-nodes test-process-e test-killed test-process-s test-process-a test-served test-cluster test-others test-slow \
            test-running test-acting static
PACKAGES  = spar perception planning acting reflection memory

# Tests of one part at a time, without processes and servers: a tenth of the time of all.
# Two groups, which run side by side: those of the core, those of the phases and the house with the tests of what changed.
CORE      = $(addprefix tests/,agent bus cli config core data fs loop net server)
PHASES    = $(filter-out %/test_deletions.py,$(wildcard tests/house/test_*.py)) tests/review tests/service tests/reflection \
            tests/perception/stages tests/planning/rules $(addprefix tests/acting/,approvals graph sandbox tooling)

.PHONY: run test check check-core check-phases $(GROUPS) histories docs accept cluster starts simulate soak endure systemd servers bench bench-compare profile hops house heart tape told pins clean

run: $(VENV)/.run  ## set up and run the service on config.toml
	@$(BIN)/spar run

test:  ## set up and run the gate: format, lint, types and contracts beside groups of tests
	@echo "the static checks and eleven groups of tests run side by side; each shows itself when it has ended"
	@$(MAKE) --no-print-directory --keep-going --jobs=9 --output-sync=target $(GROUPS)

check: $(VENV)/.test  ## what to run while you work: format, lint, types, contracts, unit tests, the tests of what you changed
	@$(MAKE) --no-print-directory --keep-going --jobs=3 --output-sync=target static check-core check-phases

check-core: ; @$(BIN)/python -m pytest $(CORE)
check-phases: ; @$(BIN)/python -m pytest $(PHASES) $$($(BIN)/python -m tests.changed $(CORE))

test-process-a: ; @$(BIN)/python -m pytest $(PROCESS_A)
test-process-e: ; @$(BIN)/python -m pytest $(PROCESS_E)
test-process-s: ; @$(BIN)/python -m pytest $(PROCESS_S)
test-killed: ; @$(BIN)/python -m pytest $(KILLED)
test-cluster: ; @$(BIN)/python -m pytest --ignore=$(NODES) $(CLUSTER)
test-nodes: ; @$(BIN)/python -m pytest $(NODES)
test-slow: ; @$(BIN)/python -m pytest $(SLOW)
test-acting: ; @$(BIN)/python -m pytest $(ACTING)
test-running: ; @$(BIN)/python -m pytest $(RUNNING)
test-served: ; @$(BIN)/python -m pytest $(SERVED)
test-others: ; @$(BIN)/python -m pytest $(addprefix --ignore=,tests/process $(KILLED) $(CLUSTER) $(SLOW) $(ACTING) $(RUNNING) $(SERVED))

$(GROUPS): $(VENV)/.test

static:
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/python -m tests.docs.programs .cache/programs  # those that people are shown
	@$(BIN)/mypy $(if $(CI),--cache-dir=/dev/null) $(PACKAGES) .cache/programs  # a cache nobody reads takes a fifth
	@$(BIN)/lint-imports

accept: $(VENV)/.test  ## kill agents everywhere and print what came of it, for half an hour (ARGS=--short: four minutes; ARGS="--memory postgres": another process takes over)
	@$(BIN)/python -m tests.faults accept $(ARGS)
	$(if $(ARGS),,@$(BIN)/python -m tests.storage)

cluster: $(VENV)/.test  ## several processes on one database of PostgreSQL: print counts and figures beside what is owed (ARGS=--short: four minutes; the gate has its counts; ARGS="--kills 1000 --stops 400 --seeds 10000")
	@$(BIN)/python -m tests.cluster $(ARGS)

starts: $(VENV)/.test  ## start a service 300 times (NUMBER=…) while all cores are busy: each has to end well; the gate starts three
	@$(BIN)/python -m tests.faults.starts $(NUMBER)

simulate: $(VENV)/.test  ## the agent under a virtual clock and seeded faults (SEED=7, or SEED=1-1000; STEPS=150)
	@$(BIN)/python -m tests.simulation.simulate $(or $(SEED),1-100) $(STEPS)

histories: $(VENV)/.test  ## play 100,000 drawn histories of sessions without a process (NUMBER=…); the gate plays 5,000
	@$(BIN)/python -m tests.decisions $(NUMBER)

soak: $(VENV)/.test  ## a million cycles (CYCLES=…), and what grew meanwhile
	@$(BIN)/python -m tests.simulation.soak $(CYCLES)

endure: $(VENV)/.test  ## a good session beside trouble for ten minutes (ARGS="--minutes 1")
	@$(BIN)/python -m tests.simulation.endure $(ARGS)

systemd: $(VENV)/.test  ## the unit under a real systemd in namespaces of its own: installed, killed, reloaded, taken away (needs root)
	@$(BIN)/python -m tests.deploy.under_systemd

servers: | $(VENV)  ## bring the MCP servers, the small language model, TextWorld, axe-core and the pyright that some tests need (needs node, npm, gcc); without them those are skipped
	@PYTHON=$(BIN)/python sh tests/servers/install.sh

bench:  ## measure spar beside its peers (installs them in an environment of their own)
	@PYTHON=$(PYTHON) sh benchmarks/run.sh $(ARGS)

bench-compare: $(VENV)/.run  ## print the last run that `make bench ARGS=--json` kept beside the one before (ARGS=FILE)
	@$(BIN)/python -m benchmarks.history $(ARGS)

profile: $(VENV)/.test  ## print where the processor time of a row of the benchmark goes, by named step (ROW=9)
	@$(BIN)/python -m benchmarks.profile $(or $(ROW),1) $(ARGS)

hops: $(VENV)/.test  ## count the steps of a cycle, a message, a call, a command, a request through the files (ARGS="--way call")
	@$(BIN)/python -m benchmarks.hops $(ARGS)

house: $(VENV)/.run  ## count the lines of code of the areas that are to become smaller, and of all packages
	@$(BIN)/python -m benchmarks.house

heart: $(VENV)/.test  ## print what the core is to become beside what it is: steps, lines, loaded code, ports, histories
	@$(BIN)/python -m benchmarks.heart

tape: $(VENV)/.test  ## print what the record of a conversation costs; record 100,000 cycles of a month in virtual time, backtest a changed rule, explain each disagreement (CYCLES=…)
	@$(BIN)/python -m benchmarks.record
	@$(BIN)/python -m benchmarks.tape $(CYCLES)

told: $(VENV)/.test  ## print what a model is told and what it costs, beside two peers (openai-agents where `make bench` has installed it)
	@$(or $(wildcard benchmarks/.venv/bin/python),$(BIN)/python) -m benchmarks.told $(ARGS)

docs: $(VENV)/.test  ## write what comes from the code: pages of docs/reference, the pictures of states, of spar top and of spar chat, the dashboard, the rules of deploy/kubernetes
	@$(BIN)/python -m tests.docs.reference
	@$(BIN)/python -m tests.docs.states
	@$(BIN)/python -m tests.docs.overview
	@$(BIN)/python -m tests.docs.prompts
	@$(BIN)/python -m tests.docs.dashboard
	@$(BIN)/python -m tests.docs.manifests
	@$(BIN)/python -m tests.docs.top_picture
	@$(BIN)/python -m tests.docs.chat_picture

pins:  ## take the newest versions of all libraries into an environment of their own, and write them to constraints.txt
	@$(PYTHON) -m venv --upgrade-deps .cache/pins
	@.cache/pins/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[test]'
	@head -n 1 constraints.txt >.cache/pins/constraints.txt
	@.cache/pins/bin/python -m pip freeze --exclude-editable >>.cache/pins/constraints.txt
	@mv .cache/pins/constraints.txt constraints.txt && rm -rf .cache/pins

clean:  ## forget the environments
	rm -rf $(VENV) benchmarks/.venv .cache/servers .cache/postgresql-*

$(VENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "spar needs Python 3.11 or newer; say which with: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --upgrade pip  # that of 3.11 is slow

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

# Packages, and parts of them, of which the tests import little or nothing: half of all modules.
SELDOM = anthropic|cryptography|fsspec|genai_prices|google|pip|setuptools|numpy|onnxruntime|pygments|huggingface_hub|mypy|mypyc|graphql|prompt_toolkit|pyasn1_modules|gymnasium|grafana_foundation_sdk|beta|admin|durable_exec|_incubating|realtime|resources|schemathesis|table_grapheme_overrides|tests|ui|websockets|werkzeug

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable '.[test]'
	-@$(BIN)/python -m compileall -qq -j 0 -x '/($(SELDOM))/' $(VENV)/lib $(PACKAGES)  # on all cores, once
	@touch $(VENV)/.run $@
