#!/usr/bin/env bash
# run-tests.sh FOLDER [CARGO TEST OPTIONS]: builds the test binaries, then runs several beside each other, since most of
# them wait for packets and processes more than they compute. Leaves the output in FOLDER/output; ends with the ten
# slowest tests. Neither of the existing runners fits: `cargo test` runs one binary after the other, and cargo-nextest
# runs each test in a process of its own, so that every test of a binary repeats its set-up, and takes minutes to install.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath "${1:?usage: $0 FOLDER [CARGO TEST OPTIONS]}")
shift
mkdir -p "$folder/logs"
export folder
# A third binary for two cores, since one of them usually waits.
jobs=${P4SHIELD_TEST_JOBS:-$(($(nproc) * 3 / 2))}

# Prints LABEL EXECUTABLE PACKAGE-FOLDER for each test binary. A label is the crate's path and the test's name: host/daemon:lib.
binaries() {
  cargo test "${@:---workspace}" --locked --no-run --message-format=json-render-diagnostics |
    jq -r --arg top "$PWD/crates/" 'select(.reason == "compiler-artifact" and .profile.test and .executable) |
      (.manifest_path | rtrimstr("/Cargo.toml")) as $package |
      ({test: .target.name, bin: "bin"}[.target.kind[0]] // "lib") as $name |
      "\($package | ltrimstr($top)):\($name) \(.executable) \($package)"'
}

# Passes the output of one binary on, and appends MILLISECONDS LABEL TEST to the list of times. Where tests run beside each
# other, the output does not say how long each of them took. What a test's processes print comes between its name and its end.
stamp() {
  local label=$1 line name='' now last=${EPOCHREALTIME//[!0-9]/}
  [ "$2" = 1 ] || exec cat
  while IFS= read -r line || [ -n "$line" ]; do
    printf '%s\n' "$line"
    case $line in
    "test "*" ... "*) name=${line#test } name=${name%% ... *} line=${line##* ... } ;;
    esac
    case $name:$line in
    ?*:ok | ?*:FAILED | ?*:ignored*)
      now=${EPOCHREALTIME//[!0-9]/}
      printf '%7d %s %s\n' $(((now - last) / 1000)) "$label" "$name" >>"$folder/times"
      last=$now name=''
      ;;
    esac
  done
}

# Runs one binary as `cargo test` would, in the folder of its package: by default one test at a time, since its output then
# says how long each test took. Prints how long it took, and how much time of processors it and its processes had.
run() {
  local label=$1 executable=$2 package=$3 threads=${4:-1} log="$folder/logs/${1//\//.}" begun=$SECONDS status=0 failed=''
  local TIMEFORMAT='%U %S' user=0 system=0
  { time { cd "$package" && CARGO_MANIFEST_DIR=$package "$executable" --test-threads="$threads"; } 2>&1 </dev/null |
    stamp "$label" "$threads" >"$log"; } 2>"$log.time" || status=$?
  cat "$log" >>"$folder/output"
  read -r user system <"$log.time" || true
  if [ "$status" != 0 ]; then
    failed=' FAILED'
    echo "$label" >>"$folder/failed"
  fi
  printf '%5d s %5.0f s  %s%s\n' $((SECONDS - begun)) "$((10#${user/./} + 10#${system/./}))e-3" "$label" "$failed"
}
export -f run stamp
# Runs the binaries of a list, so many at once.
run_all() { xargs -r -P "$1" -L 1 bash -c 'set -o pipefail; run "$@"' _ <"$2"; }

binaries "$@" >"$folder/all"
# What scripts/test-order.txt says, in its order: the slow ones, which start first, those that follow in pairs or alone, and how
# many tests of a binary run at once. A line without that number would end in a blank, which xargs takes for a continuation.
awk -v folder="$folder" '
  FNR == NR { if (/^(first|pairs|alone|others) /) { order[++count] = $2; class[$2] = $1; threads[$2] = $3 }; next }
  { line = $0 " " (threads[$1] ? threads[$1] : 1) }
  $1 in class { lines[$1] = line; next }
  { print line > (folder "/others") }
  END { for (i = 1; i <= count; i++) { label = order[i]
    if (label in lines) print lines[label] > (folder "/" class[label]); else print label } }
' scripts/test-order.txt "$folder/all" >"$folder/unknown"
if [ $# = 0 ] && [ -s "$folder/unknown" ]; then
  echo "run-tests: scripts/test-order.txt names binaries that do not exist: $(paste -sd' ' "$folder/unknown")" >&2
  exit 1
fi
touch "$folder"/{first,others,pairs,alone,failed,times}
cat "$folder/first" "$folder/others" >"$folder/beside"
printf '%s binaries, %s at once, then %s in pairs, then %s alone; the time of each, and that of processors\n' \
  "$(wc -l <"$folder/all")" "$jobs" "$(wc -l <"$folder/pairs")" "$(wc -l <"$folder/alone")"
run_all "$jobs" "$folder/beside"
run_all 2 "$folder/pairs"
run_all 1 "$folder/alone"

printf '\nThe slowest tests, in milliseconds:\n'
sort -rn "$folder/times" | sed -n 1,10p
if [ -s "$folder/failed" ]; then
  while IFS= read -r label; do
    printf '\n== %s failed:\n' "$label"
    cat "$folder/logs/${label//\//.}"
  done <"$folder/failed"
  printf '\nfailed: %s\n' "$(paste -sd' ' "$folder/failed")"
  exit 1
fi
