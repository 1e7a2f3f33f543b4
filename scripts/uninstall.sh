#!/usr/bin/env bash
# uninstall.sh [DESTDIR]: removes what install.sh installed below DESTDIR/usr/local, and folders that are empty then.
# Configuration, keys and state stay.
set -euo pipefail
prefix="${1:-}/usr/local" list=share/p4shield/installed-files

if [ ! -f "$prefix/$list" ]; then
  echo "nothing is installed below $prefix"
  exit 0
fi
cd "$prefix"
# Read first: the list removes itself.
mapfile -t files <"$list"
for file in "${files[@]}"; do
  case $file in
  *..*) echo "uninstall: $prefix/$list is damaged: $file" >&2; exit 1 ;;
  ./*) rm -f -- "$file" ;;
  *) echo "uninstall: $prefix/$list is damaged: $file" >&2; exit 1 ;;
  esac
done
for file in "${files[@]}"; do
  folder=$(dirname "$file")
  if [ -d "$folder" ] && [ "$folder" != . ]; then rmdir -p --ignore-fail-on-non-empty -- "$folder" 2>/dev/null || true; fi
done
echo "removed what was installed below $prefix"
