#!/usr/bin/env bash
# install.sh BINARY [DESTDIR]: installs binary, libraries for switches (built beside it), completions, man pages and the
# systemd unit below DESTDIR/usr/local.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=$1 prefix="${2:-}/usr/local"

install -Dm755 "$binary" "$prefix/bin/p4shield"
install -Dm644 -t "$prefix/lib/p4shield" "$(dirname "$binary")"/libp4shield_{dpdk,xsk,inline}.so
"$binary" man "$prefix/share/man/man1"
mkdir -p "$prefix/share/bash-completion/completions" "$prefix/share/zsh/site-functions" \
  "$prefix/share/fish/vendor_completions.d"
"$binary" completions bash >"$prefix/share/bash-completion/completions/p4shield"
"$binary" completions zsh >"$prefix/share/zsh/site-functions/_p4shield"
"$binary" completions fish >"$prefix/share/fish/vendor_completions.d/p4shield.fish"
install -Dm644 packaging/systemd/p4shield.service "$prefix/lib/systemd/system/p4shield.service"
install -Dm644 -t "$prefix/share/p4shield/programs" examples/programs/*.p4
install -Dm644 examples/p4shield.toml "$prefix/share/p4shield/p4shield.toml"
echo "installed below $prefix"
