//! The attacker's side: enter the sandbox, then attack.

use crate::attacks::{self, ATTACKS, DEEDS};
use p4shield_runtime::sandbox::{self, Limits, Options, seccomp};
use std::io::{Read, Write};

/// User of the attacker.
pub(crate) const UID: u32 = 0x7000_0001;

/// What the attacker prints when it has entered its layers and is about to attack.
pub(crate) const READY: &str = "READY\n";

/// Enters the sandbox with these layers, waits until standard input ends, runs the attack, prints the result
/// on standard error, and ends.
pub(crate) fn run(name: &str, layers: &str) -> ! {
    let prepared = attacks::Prepared::from_env();
    if layers != "none" {
        let keep = vec![0, prepared.channel.fd];
        let options = Options { uid: UID, allow_missing: vec![], keep, limits: Limits::default() };
        if layers == "no-user-namespaces" {
            exhaust_user_namespaces();
        }
        match sandbox::enter(&options) {
            Ok(report) => assert!(report.missing.is_empty() && report.landlock_abi > 0, "{report:?}"),
            Err(e) => end(&format!("{e}")),
        }
    }
    prepared.allocate_elsewhere();
    let kinds: &[seccomp::Filter] = match layers {
        "control" => &[seccomp::Filter::Control],
        "worker" => &[seccomp::Filter::Worker],
        "verifier" => &[seccomp::Filter::Verifier],
        "desk" => &[seccomp::Filter::Desk],
        "packets" => &[seccomp::Filter::Desk, seccomp::Filter::Packets],
        _ => &[],
    };
    kinds.iter().for_each(|kind| seccomp::apply(*kind).unwrap());
    eprint!("{READY}");
    let _ = std::io::stdin().read(&mut [0]);
    let attacks = ATTACKS.iter().map(|a| (a.name, a.attempt)).chain(DEEDS.iter().copied());
    let attack = attacks.into_iter().find_map(|(known, attempt)| (known == name).then_some(attempt));
    match attack.expect("the name is known")(&prepared) {
        Ok(()) => end("SUCCEEDED"),
        Err(e) => end(&e.to_string()),
    }
}

/// Enters a user namespace in which no further user namespaces may be created.
fn exhaust_user_namespaces() {
    // SAFETY: NEWUSER takes no descriptors away from other threads, of which there are none.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) }.unwrap();
    std::fs::write("/proc/sys/user/max_user_namespaces", "0").unwrap();
}

fn end(text: &str) -> ! {
    let _ = writeln!(std::io::stderr(), "{text}");
    // SAFETY: ends the process; exit handlers would need system calls that no list allows.
    unsafe { libc::_exit(0) }
}
