//! Tests of this program that run in a guest of QEMU, with another kernel or another network card.

use p4shield_testbed::guest::GuestSetup;
use p4shield_testbed::{Guest, process};
use std::fs;
use std::path::{Path, PathBuf};

/// The programs of a topology and of its tests.
const PROGRAMS: [&str; 10] = [
    "ovsdb-server",
    "ovsdb-tool",
    "ovs-vswitchd",
    "ovs-vsctl",
    "ovs-ofctl",
    "ovs-appctl",
    "ip",
    "ethtool",
    "ping",
    "ps",
];
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Seconds for all tests of a guest, by emulation on a busy machine.
const LONGEST: u64 = 900;

fn product() -> PathBuf {
    env!("CARGO_BIN_EXE_p4shield").into()
}

/// Describes a guest with this program, the product, Open vSwitch and more programs; `None` where there can
/// be none, which is reported.
pub(crate) fn setup(programs: &[&str]) -> Option<GuestSetup> {
    if let Err(why) = Guest::usable() {
        p4shield_need::skip("qemu", why);
        return None;
    }
    let mut setup = Guest::setup().program(&std::env::current_exe().unwrap()).program(&product());
    for name in PROGRAMS.iter().chain(programs) {
        let Some(path) = process::find(name) else {
            p4shield_need::skip("programs", format!("there is no program {name}"));
            return None;
        };
        setup = setup.program(&path);
    }
    Some(setup.file(SCHEMA, &fs::read(SCHEMA).unwrap()))
}

/// Runs tests of this program in a guest, with these variables.
pub(crate) fn run(setup: GuestSetup, variables: &str, tests: &[&str]) {
    let mut guest = setup.start().unwrap();
    guest.wait_booted().unwrap();
    let product = product();
    let folder = product.parent().map(Path::display).unwrap();
    // What a distribution has: its folders, and the modes of devices that its udev sets.
    let prepare = format!(
        "mkdir -p /tmp /run /etc /usr /var {folder} && chmod 1777 /tmp && ln -s /bin /usr/sbin; ln -s /bin \
         /usr/bin; ln -s /bin/p4shield {folder}; mount -t bpf bpf /sys/fs/bpf; mount -t tmpfs run /run; \
         chmod 666 /dev/net/tun"
    );
    let prepared = guest.run(&prepare, 60).unwrap();
    assert_eq!(prepared.code, 0, "{}", prepared.output);
    let this = std::env::current_exe().unwrap();
    let (name, all) = (this.file_name().unwrap().to_str().unwrap(), tests.join(" "));
    let line =
        format!("{variables} {name} --include-ignored --exact --test-threads=1 --nocapture {all} 2>&1");
    let result = guest.run(&line, LONGEST).unwrap();
    assert_eq!(result.code, 0, "{}\n{}", result.output, guest.log());
    for test in tests {
        assert!(result.output.contains(&format!("test {test} ")), "{test} did not run: {}", result.output);
    }
}
