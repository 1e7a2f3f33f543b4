#!/usr/bin/env bash
# p4c's own programs and test scripts through our compiler, verifier and engine: the tables of docs/reference/conformance.md. Fails below the
# bar. The folder `testdata` of p4lang/p4c is named by P4C_TESTDATA; `p4include` and `backends` are looked for beside it.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

if [ ! -d "${P4C_TESTDATA:-}" ]; then
  echo "skipped: P4C_TESTDATA names no folder of p4c's testdata"
  if [ "${P4SHIELD_REQUIRE:-}" = all ] && [[ ",${P4SHIELD_LACKS:-}," != *,p4c-testdata,* ]]; then exit 1; fi
  exit 0
fi
functions=(--functions crates/lang/stf/tests/externs)
if [ -d "$P4C_TESTDATA/extern_modules" ]; then functions+=(--functions "$P4C_TESTDATA/extern_modules"); fi
cargo run --quiet --release --locked -p p4shield -- conformance --programs --at-least 95 \
  --corpus "$P4C_TESTDATA/p4_16_samples" --corpus "$P4C_TESTDATA/p4_16_samples/parser-inline" \
  -I "$P4C_TESTDATA/../p4include" "${functions[@]}"
