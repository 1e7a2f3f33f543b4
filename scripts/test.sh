#!/usr/bin/env bash
# Every test that this machine can run. Tests that need more than it has print `skipped: why`.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

cargo test --workspace --locked
# The sizes of what is preloaded into switches, which only optimised builds have.
cargo test --locked --release -p p4shield-attach-inline --test switch_libraries
# The rings and the sleep protocol, model-checked: every interleaving that the memory model allows.
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
  cargo test --locked --release -p p4shield-channel -p p4shield-xsk-relay --test loom
