#!/usr/bin/env bash
# static.sh PROGRAM FOLDER [PROFILE]: builds a static program of virtual machines, p4vm, switchvm, tenantvm or uservm, as
# FOLDER/PROGRAM, in the profile `release` or another one. The same sources give the same bytes on every path: compiled-in paths are replaced.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:?usage: $0 PROGRAM FOLDER [PROFILE]}
folder=${2:?usage: $0 PROGRAM FOLDER [PROFILE]}
profile=${3:-release}
export PATH="$HOME/.cargo/bin:$PATH"

# The distribution's C library is part of the program: no library exists beside it. A target of its own, since these
# flags are for nothing that runs while it is built.
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-$PWD/target}/p4vm
# A static program cannot look up `getrandom` by name, and the crate would open /dev/urandom instead, which does not exist.
# The program and its heap, which the kernel places up to 1 GiB behind it at random, lie above the addresses of machine
# code (p4shield_bpf::CODE_AREA): otherwise one P4 VM in 16 would not start.
flags=(-C target-feature=+crt-static -C relocation-model=static -C strip=symbols -C link-arg=-Wl,--image-base=0x20000000
  --cfg 'getrandom_backend="linux_getrandom"')
# The wrapper adds what depends on the paths. In RUSTFLAGS it would become a part of the names of crates, and libraries that
# are compiled already would be compiled again in another checkout.
STATIC_PATHS=$(printf '%s\n' "$PWD=/p4shield" "${CARGO_HOME:-$HOME/.cargo}/registry=/registry" \
  "$(rustc --print sysroot)=/rust" "$target=/target")
export STATIC_PATHS
# libbpf-sys finds the static libelf here.
LIBBPF_SYS_LIBRARY_PATH=$(pkg-config --variable=libdir libelf)
export LIBBPF_SYS_LIBRARY_PATH
# All packages, whichever is built: otherwise the crates that they share would be compiled twice, with other features.
RUSTC_WRAPPER=$PWD/scripts/rustc-remap.sh RUSTFLAGS="${flags[*]}" \
  cargo build --profile "$profile" --locked -p p4shield-p4vm -p p4shield-switchvm -p p4shield-tenantvm -p p4shield-uservm \
  --features p4shield-uservm/static --bin "$program" --target "$host" --target-dir "$target"
# Several tests may run this at once, and others use the file.
install -Dm755 "$target/$host/$profile/$program" "$folder/$program.$$"
mv -f "$folder/$program.$$" "$folder/$program"
