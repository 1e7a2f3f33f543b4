//! End-to-end tests of a P4 VM: a process in its sandbox, with a host, a mediator and traffic.
//!
//! This binary starts itself as the P4 VM (`p4vm` as first argument, then the number
//! of the socket to what collects evidence, if there is one), which needs a process with one thread;
//! a test under libtest's harness is not one.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is its own harness")]

mod bundles;
mod changes;
mod door;
mod handshake;
mod messages;
mod programs;
mod rig;
mod rotation;
mod tests;

use p4shield_runtime::p4vm;
use p4shield_runtime::sandbox::Limits;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|a| a == "p4vm") {
        let limits = Limits::default();
        let options = p4vm::Options {
            control_fd: 0,
            evidence_fd: args.get(2).map(|fd| fd.parse().unwrap()),
            uid: 0x7000_0002,
            allow_missing: vec![],
            limits,
            busy: false,
            cpu: None,
            delay: std::time::Duration::ZERO,
        };
        if let Err(e) = p4vm::run(&options) {
            eprintln!("{e}");
            std::process::exit(1);
        }
        return;
    }
    let filter = args.iter().skip(1).find(|a| !a.starts_with('-')).cloned().unwrap_or_default();
    let mut failed = 0;
    for (name, test) in tests::TESTS
        .iter()
        .chain(bundles::TESTS)
        .chain(changes::TESTS)
        .chain(door::TESTS)
        .chain(messages::TESTS)
        .chain(rotation::TESTS)
        .chain(handshake::TESTS)
        .filter(|(name, _)| name.contains(&filter))
    {
        let ok = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        failed += i32::from(!ok);
    }
    std::process::exit(failed.min(1));
}
