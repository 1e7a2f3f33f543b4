#!/usr/bin/env bash
# Mutates the code of one security-relevant crate and reports which mutants its own tests miss:
#   scripts/mutants.sh seal|channel|mediator|audit [OPTION OF CARGO MUTANTS...]
# A sample of every twelfth mutant: scripts/mutants.sh channel --shard 0/12
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

crate=${1:?seal, channel, mediator or audit}
shift
# Fewer random cases than `make test` plays: a mutant is caught by a test that states the claim.
export PROPTEST_CASES=${PROPTEST_CASES:-32}
# The libraries of crates.io stay compiled between two runs, although each run works on a fresh copy of the sources.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target/mutants}

case $crate in
  seal | channel | mediator) what=(--package "p4shield-$crate") tests=(--lib --tests) ;;
  audit)
    what=(--package p4shield-agent --file 'crates/guest/agent/src/audit/**')
    # One plays more moves than a mutant is worth, the other one takes longer than all others together.
    tests=(--lib audit:: -- --skip each_former_hole_put_back_is_found
      --skip many_packets_without_a_digest_accuse_no_cloud) ;;
  *) echo "mutants.sh: $crate is no crate that it knows: seal, channel, mediator or audit" >&2; exit 2 ;;
esac
exec cargo-mutants mutants "${what[@]}" --sharding round-robin --no-shuffle \
  --output "$CARGO_TARGET_DIR/$crate" "$@" -- "${tests[@]}"
