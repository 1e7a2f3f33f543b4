#!/usr/bin/env bash
# deb.sh BUILT OUTPUT: packs the binary and the libraries in folder BUILT into .deb packages in folder OUTPUT, with
# dpkg's own tools (decision 034). DEB_COMPRESSION is dpkg-deb's -Z (default: xz).
#
# install.sh has the one list of what is installed; packaging/debian/PACKAGE.files says which package gets a file. A
# file that no package gets is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
built=$(realpath "$1")
mkdir -p "$2"
output=$(realpath "$2")
debian=$PWD/packaging/debian
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
version=${version/-/\~} # 1.0.0-rc.1 is before 1.0.0
# The same sources make the same packages.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
all=$work/all
scripts/install.sh "$built/p4shield" "$all" >/dev/null
mv "$all/usr/local" "$work/usr" && rmdir "$all/usr" && mv "$work/usr" "$all/usr"

# Where Debian wants it.
mv "$all/usr/share/zsh/site-functions" "$all/usr/share/zsh/vendor-completions"
install -Dm644 packaging/systemd/p4shield.default "$all/etc/default/p4shield"
mkdir -p "$all/etc/p4shield"
mv "$all/usr/share/p4shield/agent.conf" "$all/etc/p4shield/agent.conf"
sed -i 's|/usr/local/bin/|/usr/bin/|' "$all"/usr/lib/systemd/system/*.service
gzip -9n "$all"/usr/share/man/man1/*
rm "$all/usr/share/p4shield/installed-files" "$all/usr/share/doc/p4shield/LICENSE"
chmod -R u+rwX,go+rX,go-w "$all"
strip --remove-section=.comment "$all/usr/bin/p4shield"
strip --strip-unneeded --remove-section=.comment "$all"/usr/lib/p4shield/*.so

# What dpkg's tools read.
mkdir "$work/debian"
cp "$debian/control" "$work/debian/control"
{
  printf 'p4shield (%s) unstable; urgency=medium\n\n' "$version"
  printf '  * /usr/share/doc/p4shield/CHANGELOG.md lists the changes.\n\n'
  printf ' -- %s  %s\n' "$(sed -n 's/^Maintainer: //p' "$debian/control")" "$(date -uRd "@$SOURCE_DATE_EPOCH")"
} >"$work/debian/changelog"

pack() {
  local package=$1 root=$work/$1 folder script
  while read -r path; do
    mkdir -p "$root/$(dirname "$path")"
    mv "$all/$path" "$root/$path"
  done <"$debian/$package.files"
  folder=$root/usr/share/doc/$package
  install -Dm644 "$debian/copyright" "$folder/copyright"
  gzip -9n <"$work/debian/changelog" >"$folder/changelog.gz"
  mkdir "$root/DEBIAN"
  for script in preinst postinst prerm postrm; do
    if [ -f "$debian/$package.$script" ]; then
      install -m755 "$debian/$package.$script" "$root/DEBIAN/$script"
    fi
  done
  case $package in p4shield-dpdk | p4shield-xsk)
    sed "s/@KIND@/${package#p4shield-}/g" "$debian/library.prerm" | install -m755 /dev/stdin "$root/DEBIAN/prerm" ;;
  esac
  (
    cd "$root"
    find . -path ./etc -prune -o -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums
    if [ -d etc ]; then find etc -type f -printf '/%p\n' | sort >DEBIAN/conffiles; fi
  )
  mapfile -t objects < <(find "$root/usr/bin" "$root/usr/lib/p4shield" -type f 2>/dev/null)
  cd "$work"
  : >"$package.substvars"
  if [ ${#objects[@]} -gt 0 ]; then
    dpkg-shlibdeps --warnings=0 -T"$package.substvars" "${objects[@]}"
  fi
  dpkg-gencontrol -p"$package" -cdebian/control -ldebian/changelog -T"$package.substvars" -fdebian/files \
    -P"$root" -O"$root/DEBIAN/control"
  dpkg-deb --root-owner-group -Z"${DEB_COMPRESSION:-xz}" --build "$root" "$output" >/dev/null
  cd "$OLDPWD"
}

mapfile -t packages < <(sed -n 's/^Package: //p' "$debian/control")
for package in "${packages[@]}"; do pack "$package"; done
left=$(find "$all" ! -type d)
if [ -n "$left" ]; then
  printf 'deb: no file of packaging/debian names these:\n%s\n' "$left" >&2
  exit 1
fi
for package in "${packages[@]}"; do
  echo "$output/${package}_${version}_$(dpkg --print-architecture).deb"
done
