#!/bin/sh
# rustc-remap.sh RUSTC ARGUMENTS: runs the compiler for p4vm.sh, and replaces the paths in P4VM_PATHS, a line FROM=TO each.
IFS='
'
for path in ${P4VM_PATHS:?p4vm.sh sets it}; do
  set -- "$@" "--remap-path-prefix=$path"
done
exec "$@"
