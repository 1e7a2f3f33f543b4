# What a new user types. `make demo` and `make test` set the machine up first; both work as root in a container or VM.
SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:$(PATH)

TARGET := $(or $(CARGO_TARGET_DIR),target)
# `release` compiles fast; `dist` takes longer, and its code is faster and smaller. What is installed is of `dist`.
RELEASE := $(TARGET)/release
DIST := $(TARGET)/dist
PRODUCT := -p p4shield -p p4shield-attach-dpdk -p p4shield-attach-xsk -p p4shield-attach-inline -p p4shield-attach-ethdev

.PHONY: help setup build build-dev dist uservm demo check test soak lint bench install uninstall deb clean

help: ## Show this text
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install packages and the Rust toolchain (as root, Debian or Ubuntu)
	@scripts/setup.sh

build: setup ## Build the release binary, the libraries that switches load, and the programs of virtual machines
	cargo build --release --locked $(PRODUCT)
	scripts/static.sh p4vm "$(RELEASE)/static"
	scripts/static.sh switchvm "$(RELEASE)/static"
	scripts/static.sh tenantvm "$(RELEASE)/static"

uservm: setup ## Build target/dist/static/uservm: agent and auditor as one static file, for user VMs of any distribution
	scripts/static.sh uservm "$(DIST)/static" dist

# One call of cargo for both: separate ones would compile the crates that they share with different features.
build-dev: setup
	@echo "make: compiling what is not compiled yet of 340 crates; all of them take about 7 minutes on 2 cores"
	cargo build --release --locked $(PRODUCT) -p p4shield-dev

dist: setup ## Build what `make install` and `make deb` install
	cargo build --profile dist --locked $(PRODUCT)
	scripts/static.sh p4vm "$(DIST)/static" dist
	scripts/static.sh switchvm "$(DIST)/static" dist
	scripts/static.sh tenantvm "$(DIST)/static" dist

demo: build-dev ## Show a P4 program guarding live traffic, and attack it (DEMO=--quick: under 30 seconds; DEMO="--compartment vm": with virtual machines)
	@echo "make: running the demonstration"
	$(RELEASE)/p4shield-dev demo $(DEMO)

check: setup ## Check what every commit has to pass: format, subjects, the tree's rules, clippy, documentation
	scripts/check.sh

test: setup ## Run every test
	scripts/test.sh

soak: setup ## Run every test, with long campaigns of random inputs, kills and changes
	P4SHIELD_EFFORT=full scripts/test.sh

lint: setup ## Check the same, and fuzz targets and dependencies
	scripts/lint.sh

bench: build-dev ## Measure engine and channel on this machine
	$(RELEASE)/p4shield-dev bench engine
	$(RELEASE)/p4shield-dev bench channel

install: dist ## Install binary, libraries, completions, man pages, documents and systemd unit below $(DESTDIR)/usr/local
	scripts/install.sh "$(DIST)/p4shield" "$(DESTDIR)"

uninstall: ## Remove what `make install` installed
	scripts/uninstall.sh "$(DESTDIR)"

deb: dist ## Build the .deb packages in target/debian (DEB=folder for another one)
	scripts/deb.sh "$(DIST)" "$(or $(DEB),$(TARGET)/debian)"

clean: ## Remove what was built
	cargo clean
