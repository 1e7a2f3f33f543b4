//! The switch of a network card, on an emulated one: a guest of QEMU with two cards (82576, `igb`) at one
//! wire. Tests of `inside` run in the guest, where virtual functions are in network namespaces:
//!
//! ```text
//! VLAN 10: VM a1 (2), gateway ga (1)     compartment ia (0) ─ eth0 ─ wire ─ eth1
//! VLAN 20: VM b1 (3)
//! ```
//!
//! It takes the first QEMU of PATH, which may be unpacked anywhere.
//!
//! The emulation has VLANs and MAC addresses of virtual functions. It enforces no check of source addresses,
//! has no links and no counters of virtual functions.

mod bed;
mod inside;
#[allow(dead_code, reason = "taps are other tests'")]
#[path = "../nic/raw.rs"]
mod raw;

use std::path::PathBuf;
use std::process::Command;

use p4shield_testbed::Guest;

/// The tests of `inside`, in the order in which they run.
const INSIDE: [&str; 10] = [
    "inside::a_card_that_is_too_small_is_refused",
    "inside::a_change_concerns_its_port_only",
    "inside::a_killed_processs_change_is_completed",
    "inside::a_rate_is_set_and_taken_back",
    "inside::a_vlan_outside_keeps_compartments_out_of_tenants",
    "inside::delete_leaves_what_another_made",
    "inside::delete_removes_what_apply_made",
    "inside::functions_get_their_settings",
    "inside::source_checks_are_on",
    "inside::vlans_isolate_functions",
];

/// Returns QEMU's options for two cards at one wire.
fn cards() -> Vec<String> {
    let mut options = vec!["-machine".to_owned(), "q35".to_owned()];
    for card in 0..2 {
        options.extend(["-netdev".to_owned(), format!("hubport,hubid=0,id=n{card}")]);
        let port = format!("pcie-root-port,id=rp{card},slot={card},chassis={card}");
        let nic = format!("igb,bus=rp{card},netdev=n{card},mac=52:54:00:00:00:0{card}");
        options.extend(["-device".to_owned(), port, "-device".to_owned(), nic]);
    }
    options
}

/// Returns the path of a program.
fn program(name: &str) -> PathBuf {
    let folders = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    folders.map(|folder| folder.join(name)).into_iter().find(|path| path.exists()).expect(name)
}

#[test]
fn a_network_card_is_the_nic_switch() {
    if let Err(why) = Guest::usable() {
        return p4shield_need::skip("qemu", why);
    }
    // A QEMU without the device says so on the other output, and succeeds.
    let help = Command::new("qemu-system-x86_64").args(["-device", "igb,help"]).output().unwrap();
    if !String::from_utf8_lossy(&help.stdout).contains("igb options") {
        return p4shield_need::skip("qemu-igb", "this QEMU has no igb (QEMU 8.0 has; Debian 12 has 7.2)");
    }
    if let Err(why) = Guest::usable_with_drivers() {
        return p4shield_need::skip("qemu", why);
    }
    let this = std::env::current_exe().unwrap();
    let name = this.file_name().unwrap().to_str().unwrap().to_owned();
    let setup = Guest::setup().program(&this).program(&program("ip"));
    let mut guest = setup.drivers(&["igb", "igbvf", "8021q"]).options(cards()).start().unwrap();
    guest.wait_booted().unwrap();
    let result = guest.run(&format!("{name} --ignored --test-threads=1 --nocapture 2>&1"), 900).unwrap();
    println!("{}", result.output);
    assert_eq!(result.code, 0, "{}\n{}", result.output, guest.log());
    for test in INSIDE {
        assert!(result.output.contains(&format!("test {test} ...")), "{test} did not run");
    }
    let summary = format!("test result: ok. {} passed; 0 failed; 0 ignored", INSIDE.len());
    assert!(result.output.contains(&summary), "{}", result.output);
}
