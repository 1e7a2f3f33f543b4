#!/bin/sh
# rustc-remap.sh RUSTC ARGUMENTS: runs the compiler for static.sh, and replaces the paths in STATIC_PATHS, a line FROM=TO each.
IFS='
'
for path in ${STATIC_PATHS:?static.sh sets it}; do
  set -- "$@" "--remap-path-prefix=$path"
done
exec "$@"
