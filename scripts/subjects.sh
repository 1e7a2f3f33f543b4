#!/usr/bin/env bash
# Checks the subjects of commits that the remote's main does not have yet, or else of the last one:
# `area: imperative`, at most 72 characters, no full stop.
set -euo pipefail
cd "$(dirname "$0")/.."

git rev-parse --quiet --verify HEAD >/dev/null 2>&1 || { echo "subjects: skipped: this is no git checkout"; exit 0; }
range=(-1)
if git rev-parse --quiet --verify origin/main >/dev/null; then range=(origin/main..HEAD); fi
wrong=$(git log --no-merges --format=%s "${range[@]}" |
  awk 'length > 72 || !/^[A-Za-z0-9][A-Za-z0-9,\/_. -]*: [^ ].*[^.]$/')
if [ -n "$wrong" ]; then
  printf 'commit subjects that are not `area: imperative` with at most 72 characters:\n%s\n' "$wrong" >&2
  exit 1
fi
