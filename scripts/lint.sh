#!/usr/bin/env bash
# What scripts/check.sh checks, fuzz targets, and the licences and advisories of dependencies: warnings are errors.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

. scripts/check.sh
# This only compiles the fuzz targets.
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target} cargo check --quiet --locked --bins --manifest-path fuzz/Cargo.toml

tool cargo-deny 0.20.2 --no-default-features
cargo deny --log-level warn check --hide-inclusion-graph licenses bans sources
# The database of advisories is a git repository outside the registries.
if timeout 30 git ls-remote --quiet https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; then
  cargo deny --log-level warn check advisories
elif [ -n "${P4SHIELD_REQUIRE_ADVISORIES:-}" ]; then
  echo "lint: github.com/RustSec/advisory-db cannot be reached, and P4SHIELD_REQUIRE_ADVISORIES demands it" >&2
  exit 1
else
  echo "lint: skipped: advisories (github.com/RustSec/advisory-db cannot be reached)"
fi
