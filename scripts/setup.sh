#!/usr/bin/env bash
# Brings a fresh Debian or Ubuntu machine to where P4 Shield builds, tests and runs. Safe to run again: what is
# there is left alone, and then it needs no network.
set -euo pipefail

packages=(
  build-essential pkg-config ca-certificates curl # Rust's linker, native libraries, rustup
  clang llvm libelf-dev zlib1g-dev libbpf-dev     # the XDP and tc programs; llvm-objdump in tests
  iproute2 ethtool iputils-ping iperf3            # network namespaces and traffic of demo and tests
  nginx-light wrk memcached libmemcached-tools    # bench workloads' servers, and the clients that put load on them
  nftables                                        # its VMs that forward
  openvswitch-switch                              # the demo's switch: OVS's userspace datapath
  openvswitch-switch-dpdk dpdk-dev libdpdk-dev    # the tests' unmodified DPDK switches (OVS, testpmd) and DPDK's headers
  qemu-system-x86 busybox-static cpio             # the tests' guests
  nftables                                        # the bridge as the NIC switch, in a guest
  libvirt-clients libxml2-utils                   # libvirt's schema, for the tests' domains
  libvirt-daemon libvirt-daemon-driver-qemu       # libvirt, which a test has start one
  mininet                                         # the tests' networks of P4 switches
  valgrind                                        # the library inside a switch, watched for leaks
  jq                                              # the how-to guides' commands
)

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

missing=()
for p in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || die "these packages are missing and there is no apt-get to install them: ${missing[*]}"
  [ "$(id -u)" = 0 ] || die "run this as root once (or: sudo $0), these packages are missing: ${missing[*]}"
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # Servers that come with the packages must not listen on the machine's own ports, now or after the next boot.
  services=()
  for service in nginx memcached; do
    [ -e "/etc/init.d/$service" ] || services+=("$service")
  done
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\ncase "${1%%.service}" in nginx|memcached) exit 101 ;; esac\nexit 0\n' >"$policy"
    chmod 755 "$policy"
  fi
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  for service in "${services[@]}"; do
    update-rc.d "$service" disable >/dev/null
  done
fi

# Cargo from rustup's default place, also in a shell that has not read its profile yet.
export PATH="$HOME/.cargo/bin:$PATH"
toolchain=$(sed -n 's/^channel = "\(.*\)"/\1/p' "$(dirname "$0")/../rust-toolchain.toml")
if ! command -v cargo >/dev/null; then
  say "installing Rust $toolchain with rustup"
  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
    sh -s -- -y --quiet --profile minimal --component rustfmt,clippy --default-toolchain "$toolchain"
elif ! cargo "+$toolchain" --version >/dev/null 2>&1; then
  command -v rustup >/dev/null || die "Rust $toolchain is needed, found $(cargo --version); install rustup or that version"
  say "installing Rust $toolchain"
  rustup toolchain install "$toolchain" --profile minimal --component rustfmt,clippy
fi
say "ready: $(cargo "+$toolchain" --version)"
