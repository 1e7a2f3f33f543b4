# Executes the steps of a page of docs/tutorials in one shell, as a reader does. Run by tutorial.rs, which has written
# each step's commands to $FOLDER/steps/N, and N.expected if the page shows what it prints.
# Wants: $P4SHIELD, the binary; $P4VM and $SWITCHVM, the programs of virtual machines; $LIBRARIES, the folder of the libraries; $SOURCE, the source folder; $FOLDER.
set -eu
. "$SOURCE/crates/cli/p4shield/tests/copy.sh"
ip link set lo up

# The page's `make install`, with the test's binary instead of a release build.
make() {
  [ "$*" = install ] || return 1
  mkdir "$FOLDER/built" && cp "$P4SHIELD" "$LIBRARIES"/libp4shield_{dpdk,xsk,inline,ethdev}.so "$FOLDER/built/"
  install -D "$P4VM" "$FOLDER/built/static/p4vm"
  install -D "$SWITCHVM" "$FOLDER/built/static/switchvm"
  install -D "$TENANTVM" "$FOLDER/built/static/tenantvm"
  scripts/install.sh "$FOLDER/built/p4shield"
}
# Replaces what differs between machines.
same() {
  sed -E "$(cat "$FOLDER/same.sed")" "$1"
}
set +eu -m
cd "$SOURCE"
for step in $(ls "$FOLDER/steps" | grep -v expected | sort -n); do
  commands=$FOLDER/steps/$step
  expected=$commands.expected
  # A step whose output the page does not show prints nothing.
  [ -e "$expected" ] || : >"$expected"
  for try in $(seq 20); do
    . "$commands" >"$FOLDER/output" 2>&1
    if [ "$(same "$FOLDER/output")" = "$(same "$expected")" ]; then break; fi
    # An audit during which P4 VM, auditor, client or server had no core says so; it is repeated.
    if [ "$try" -lt 5 ] && grep -q '^ip netns exec vm p4shield audit ' "$commands"; then continue; fi
    # A reader who is too fast looks again, but does nothing twice.
    if grep -qvE '^(p4shield (status|metrics|program tables|switch (table list|status))|ip netns exec client curl)( |$)' "$commands"; then break; fi
    sleep 1
  done
  echo "== $(cat "$commands")"
  cat "$FOLDER/output"
  if [ "$(same "$FOLDER/output")" != "$(same "$expected")" ]; then
    echo "-- the page shows:"
    cat "$expected"
    exit 1
  fi
done
echo "the tour is over"
