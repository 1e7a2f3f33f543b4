#!/usr/bin/env bash
# What to run before every commit: format, commit subjects, the tree's own rules, and clippy for the whole workspace.
# `make lint` begins with the same.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

cargo fmt --all --check
scripts/subjects.sh
cargo test --quiet --locked -p p4shield-lint --test rules
cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
