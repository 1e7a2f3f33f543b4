#!/usr/bin/env bash
# guest-kernel.sh FOLDER [KIND]: unpacks the distribution's own kernel into FOLDER, without installing it: FOLDER/vmlinuz and
# FOLDER/modules/VERSION. KIND is `cloud`, the default, whose drivers are those of virtual devices, or `any`, with drivers of
# network cards, too. The tests' guests run it. Safe to run again and by several at once; what is there is left alone and needs no network.
set -euo pipefail

folder=${1:?usage: $0 FOLDER [cloud|any]}
die() { printf 'guest-kernel: %s\n' "$*" >&2; exit 1; }

mkdir -p "$folder"
exec 9>"$folder/.lock"
flock 9
[ ! -e "$folder/vmlinuz" ] || exit 0
for tool in apt-get apt-cache dpkg; do
  command -v "$tool" >/dev/null || die "$tool is missing; guests run a kernel package of Debian"
done

# The metapackage's name is stable, and it depends on the newest kernel.
case ${2:-cloud} in
cloud) meta=linux-image-cloud-$(dpkg --print-architecture) ;;
any) meta=linux-image-$(dpkg --print-architecture) ;;
*) die "$2 is no kind of kernel: cloud or any" ;;
esac
newest() { apt-cache depends "$meta" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n1; }

work=$(mktemp -d --tmpdir="$folder")
trap 'rm -rf "$work"' EXIT
download() {
  package=$(newest)
  [ -n "$package" ] && (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$package" >/dev/null 2>&1)
}
# Package lists may be missing, or older than what the mirror still has.
download || { apt-get update -qq >/dev/null 2>&1 && download; } ||
  die "no network, or no package $meta: apt-get download $(newest) failed"

dpkg -x "$work"/linux-image-*.deb "$work/unpacked"
modules=$(find "$work/unpacked" -type d -path '*/lib/modules/*' -prune | head -n1)
kernel=$(find "$work/unpacked/boot" -name 'vmlinuz-*' | head -n1)
[ -n "$modules" ] && [ -n "$kernel" ] || die "package $package has no kernel or no modules where they are expected"
rm -rf "$folder/modules"
mkdir "$folder/modules"
mv "$modules" "$folder/modules/"
mv "$kernel" "$folder/vmlinuz" # last: it says that all is there
