# What a new user types. `make demo` and `make test` set the machine up first; both work as root in a container or VM.
SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:$(PATH)

RELEASE := $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: help setup build build-dev demo test lint doc bench install uninstall deb clean

help: ## Show this text
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install packages and the Rust toolchain (as root, Debian or Ubuntu)
	@scripts/setup.sh

build: setup ## Build the release binary, the libraries that switches load, and the program of virtual machines
	cargo build --release --locked -p p4shield -p p4shield-attach-dpdk -p p4shield-attach-xsk \
	  -p p4shield-attach-inline
	scripts/p4vm.sh "$(RELEASE)/static"

build-dev: build
	cargo build --release --locked -p p4shield-dev

demo: build-dev ## Show a P4 program guarding live traffic, and attack it (DEMO=--quick: under 30 seconds; DEMO="--compartment vm")
	$(RELEASE)/p4shield-dev demo $(DEMO)

test: setup ## Run every test
	scripts/test.sh

lint: setup ## Check format, lints and documentation
	scripts/lint.sh

bench: build-dev ## Measure engine and channel on this machine
	$(RELEASE)/p4shield-dev bench engine
	$(RELEASE)/p4shield-dev bench channel

install: build ## Install binary, libraries, completions, man pages, documents and systemd unit below $(DESTDIR)/usr/local
	scripts/install.sh "$(RELEASE)/p4shield" "$(DESTDIR)"

uninstall: ## Remove what `make install` installed
	scripts/uninstall.sh "$(DESTDIR)"

deb: build ## Build the .deb packages in target/debian (DEB=folder for another one)
	scripts/deb.sh "$(RELEASE)" "$(or $(DEB),$(dir $(RELEASE))debian)"

clean: ## Remove what was built
	cargo clean
