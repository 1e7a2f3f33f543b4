#!/usr/bin/env bash
# Every test that this machine can run; the last lines state how many ran, and which could not and why. With
# P4SHIELD_REQUIRE=all a test that cannot run fails; P4SHIELD_LACKS names what the machine lacks nevertheless.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export P4SHIELD_SKIPPED=$folder/skipped
touch "$P4SHIELD_SKIPPED"

scripts/run-tests.sh "$folder"
cargo test --quiet --workspace --doc --locked | tee -a "$folder/output"
# The rings and the sleep protocols, model-checked: every interleaving that the memory model allows.
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
  cargo test --locked --release -p p4shield-channel -p p4shield-mailbox -p p4shield-xsk-relay --test loom | tee -a "$folder/output"

passed=$(awk '/^test result: / { n += $4 } END { print n + 0 }' "$folder/output")
printf '\n%s tests passed, %s of them without running:\n' "$passed" "$(wc -l <"$P4SHIELD_SKIPPED")"
sort "$P4SHIELD_SKIPPED"
