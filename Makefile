# Verbena: RDMA on any Linux machine. The front door; the work is done by Meson and by the scripts in tests/ and bench/.
# SPDX-License-Identifier: MIT

BUILD ?= build
MESON_ARGS ?=

.PHONY: run build check test bench document soak install deb clean format help

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## install what is missing, build, and show a stock RDMA program at work
	@tests/install-packages run
	@$(MAKE) --no-print-directory build
	@bench/show

build: ## only build, into build/
	@[ -f $(BUILD)/build.ninja ] || meson setup $(BUILD) $(MESON_ARGS) >/dev/null
	@ninja -C $(BUILD) --quiet

check: ## before each commit, four minutes at most: style, units, a stock program on each transport
	@tests/install-packages test
	@$(MAKE) --no-print-directory build BUILD=build-check MESON_ARGS=-Dc_args=-DVB_LOCK_RANKS
	@BUILD=build-check tests/check

test: ## all tests: units, stock programs, sanitizers
	@tests/install-packages test
	@tests/run-all

bench: ## figures beside those of a peer measured in the same run; a page with plots
	@tests/install-packages bench
	@$(MAKE) --no-print-directory build
	@bench/run

document: ## measure all figures, and write them into README.md and docs/performance.md
	@tests/install-packages bench
	@$(MAKE) --no-print-directory build
	@bench/run --document

soak: ## the long run
	@tests/install-packages test
	@$(MAKE) --no-print-directory build
	@tests/soak

install: build ## install below the Meson prefix
	@meson install -C $(BUILD)

deb: ## Debian packages, in build-deb/
	@tests/install-packages deb
	@data/deb

format: ## clang-format over the sources
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean: ## remove what was built
	@rm -rf build build-*
