#!/usr/bin/env bash
# install.sh BINARY [DESTDIR]: installs binary, libraries for switches and the programs of virtual machines (built beside
# it), completions, man pages, documents, examples and the systemd units below DESTDIR/usr/local, with a list of all files for uninstall.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=$1 prefix="${2:-}/usr/local"

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
install -Dm755 "$binary" "$stage/bin/p4shield"
install -Dm644 -t "$stage/lib/p4shield" "$(dirname "$binary")"/libp4shield_{dpdk,xsk,inline,ethdev}.so
install -Dm755 -t "$stage/lib/p4shield" "$(dirname "$binary")"/static/{p4vm,switchvm,tenantvm}
"$binary" man "$stage/share/man/man1"
mkdir -p "$stage/share/bash-completion/completions" "$stage/share/zsh/site-functions" \
  "$stage/share/fish/vendor_completions.d"
"$binary" completions bash >"$stage/share/bash-completion/completions/p4shield"
"$binary" completions zsh >"$stage/share/zsh/site-functions/_p4shield"
"$binary" completions fish >"$stage/share/fish/vendor_completions.d/p4shield.fish"
install -Dm644 -t "$stage/lib/systemd/system" packaging/systemd/*.service
install -Dm644 -t "$stage/share/p4shield" packaging/systemd/{agent,switch}.conf
install -Dm644 -t "$stage/share/p4shield/programs" examples/programs/*.p4
install -Dm755 -t "$stage/share/p4shield/mininet" packaging/mininet/p4shield_mininet.py
install -Dm644 -t "$stage/share/p4shield/models" crates/lang/p4/models/*.p4
install -Dm644 examples/p4shield.toml "$stage/share/p4shield/p4shield.toml"
install -Dm644 -t "$stage/share/p4shield/prometheus" packaging/prometheus/*.yml
install -Dm644 -t "$stage/share/p4shield/grafana" packaging/grafana/p4shield.json
mkdir -p "$stage/share/doc/p4shield"
cp -R README.md CHANGELOG.md LICENSE* docs "$stage/share/doc/p4shield/"

# Files of an earlier version that this one no longer has.
scripts/uninstall.sh "${2:-}" >/dev/null
list=share/p4shield/installed-files
(cd "$stage" && { find . -type f -o -type l; echo "./$list"; } | sort -u) >"$stage.list"
mv "$stage.list" "$stage/$list"
# File by file: the modes of folders that exist stay.
while read -r file; do
  install -D -m "$(stat -c %a "$stage/$file")" "$stage/$file" "$prefix/$file"
done <"$stage/$list"
echo "installed below $prefix"
