#!/usr/bin/env bash
# What to run before every commit: format, commit subjects, dependencies, the tree's own rules, the snapshots of public
# interfaces, clippy for the whole workspace, and its documentation. `make lint` begins with the same.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$HOME/.cargo/bin:$PATH"

# tool COMMAND VERSION [OPTIONS]: installs a cargo command in this version. Unoptimised: it compiles longer than it runs.
tool() {
  local name=$1 version=$2
  shift 2
  [ "$("$name" --version 2>/dev/null | awk '{print $NF}')" = "$version" ] ||
    cargo install --quiet --locked --debug "$name@$version" "$@"
}

cargo fmt --all --check
scripts/subjects.sh
# The fuzz targets are a workspace of their own, whose lock file has this workspace's crates.
cargo update --quiet --workspace --locked --manifest-path fuzz/Cargo.toml
tool cargo-machete 0.9.2
cargo machete --skip-target-dir
cargo test --quiet --locked -p p4shield-lint --test rules --test public_api
cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
