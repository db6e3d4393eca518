# SPDX-License-Identifier: MIT OR Apache-2.0
#
# A thin layer over cargo and scripts/: what is up to date is left alone, so
# every target can be run again at once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
CARGO_HOME ?= $(HOME)/.cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Of this machine, whatever .cargo/config.toml names.
export CARGO_BUILD_TARGET ?= $(shell uname -m)-unknown-linux-gnu
PLUMB := $(TARGET)/$(CARGO_BUILD_TARGET)/release/plumb

# Where the shells look, below /usr and /usr/local alike.
BASH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d

export PATH := $(CARGO_HOME)/bin:$(PATH)

.PHONY: help setup build arm64 x86-64 page demo test test-debian13 book compatibility soak fuzz lint deny bench bench-paper dist dist-test install uninstall clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9 -]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: ## install the Debian packages and the Rust toolchain that are missing
	@scripts/setup.sh build run test

build: ## compile plumb
	@scripts/setup.sh build
	@cargo build --release --locked
	@scripts/embed.sh
	@echo "built: $(PLUMB)"

arm64 x86-64: ## compile the agent for guests of that architecture as well
	@scripts/guest.sh $@
	@if [ -x $(PLUMB) ]; then scripts/embed.sh; fi

page: ## build the HTML page without data, and what its tests need, in target/web
	@scripts/setup.sh build
	@web/build.sh $(TARGET)/web --with-tests
	@echo "built: $(TARGET)/web/dist/index.html"

demo: ## from nothing to the IP layer's cost: set up, build, fetch a kernel, measure
	@scripts/demo.sh

test: ## set up, lint, and run every test that can run here
	@scripts/setup.sh --try build run test arm64
	@scripts/test.sh

test-debian13: ## some of the tests, as built by `make test`, in a root of Debian 13, as root
	@scripts/debian13.sh

book: ## the documents as a searchable book, in target/book
	@scripts/setup.sh --try build test
	@scripts/book.sh

compatibility: ## add what tests ran on to docs/compatibility.md
	@scripts/compatibility.py $(wildcard $(TARGET)/test-ran $(TARGET)/debian13-ran)

soak: ## the tests that take long, for most of an hour: same against same, kills, a kernel's build
	@scripts/setup.sh --try build run test soak
	@scripts/soak.sh

fuzz: ## fuzz the parsers with coverage, for SECONDS_EACH (600)
	@scripts/setup.sh build
	@scripts/fuzz.sh $(or $(SECONDS_EACH),600)

lint: ## formatting, lints and the documentation of code
	@scripts/setup.sh --try build test
	@scripts/lint.sh

deny: $(TARGET)/tools/bin/cargo-deny ## licences, bans and sources of the dependencies
	@$< --locked check --hide-inclusion-graph licenses bans sources

# In the dev profile: its release profile takes many times as long to compile
# (fat LTO), and the check takes seconds either way.
$(TARGET)/tools/bin/cargo-deny:
	@scripts/setup.sh build
	@root=$$(mkdir -p $(TARGET)/tools && cd $(TARGET)/tools && pwd) && \
		CARGO_PROFILE_DEV_DEBUG=0 cargo install cargo-deny --version 0.20.2 --locked --debug \
			--root "$$root" --target-dir "$$root/build" && \
		rm -rf "$$root/build"

bench: ## measure what measuring costs: time, memory, the plugin's slowdown
	@scripts/setup.sh build run
	@cargo build --release --locked
	@scripts/kernel.sh
	@cargo bench --locked --package netplumb-report --bench page
	@cargo bench --locked --package netplumb

bench-paper: ## draw the figures of the XDP paper again, as root
	@scripts/setup.sh --try build run test
	@cargo build --release --locked
	@$(PLUMB) run experiments/xdp-paper.toml

dist: ## packages for Debian and tarballs, for x86-64 and arm64, in target/dist
	@scripts/setup.sh build arm64 dist
	@scripts/dist.sh

dist-test: ## install and purge the package of `make dist` in bare roots of Debian 12 and 13, as root
	@scripts/setup.sh dist other-qemu
	@scripts/dist-test.sh

install: ## install plumb below PREFIX (/usr/local)
	@test -x $(PLUMB) || { echo "there is nothing to install yet: make build" >&2; exit 1; }
	@scripts/embed.sh $(PLUMB)
	install -D -m 755 $(PLUMB) $(DESTDIR)$(PREFIX)/bin/plumb
	$(PLUMB) man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(BASH_COMPLETIONS) $(ZSH_COMPLETIONS) $(FISH_COMPLETIONS)
	$(PLUMB) completions bash >$(BASH_COMPLETIONS)/plumb
	$(PLUMB) completions zsh >$(ZSH_COMPLETIONS)/_plumb
	$(PLUMB) completions fish >$(FISH_COMPLETIONS)/plumb.fish
	install -d $(DESTDIR)$(PREFIX)/share/netplumb/experiments
	install -m 644 experiments/*.toml $(DESTDIR)$(PREFIX)/share/netplumb/experiments
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/netplumb/experiments/usbnet-review experiments/usbnet-review/*.patch
	install -d $(DESTDIR)$(PREFIX)/share/doc/netplumb/LICENSES
	install -m 644 LICENSES/* $(DESTDIR)$(PREFIX)/share/doc/netplumb/LICENSES

uninstall: ## remove what install installed
	rm -f $(DESTDIR)$(PREFIX)/bin/plumb
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/share/man/man1/,plumb.1 plumb-*.1)
	rm -f $(BASH_COMPLETIONS)/plumb $(ZSH_COMPLETIONS)/_plumb $(FISH_COMPLETIONS)/plumb.fish
	rm -rf $(DESTDIR)$(PREFIX)/share/netplumb $(DESTDIR)$(PREFIX)/share/doc/netplumb

clean: ## remove what was built (kernels stay: plumb kernel rm)
	rm -rf $(TARGET)
