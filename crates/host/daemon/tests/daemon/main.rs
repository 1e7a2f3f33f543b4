//! End-to-end tests of the daemon: P4 VMs are killed, stopped and corrupted under traffic.
//!
//! This binary starts itself as a P4 VM (`p4vm ...`), as the process of wires (`wires`) and as a daemon
//! (`daemon CONFIG [log]`), as `p4shield` does, as a switch with a preloaded library (`switch CONFIG PORT`),
//! and as a P4 VM in a virtual machine (`vmm ...`) with what stands in for QEMU there (`qemu FOLDER ...`).

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the test binary is its own harness")]

mod absent;
mod adoption;
mod attachment;
mod attacks;
mod bundles;
mod changes;
mod durable;
mod epochs;
mod fixture;
mod hostile_machine;
mod inspect;
mod keys;
mod operations;
mod stand_in;
mod switches;
mod tenant_socket;
mod verified;
mod wires;

use p4shield_control::PROTOCOL_VERSION;
use p4shield_runtime::p4vm;
use p4shield_runtime::sandbox::Limits;
use std::process::{Command, Output};

type Test = (&'static str, fn());

const TESTS: &[&[Test]] = &[
    operations::TESTS,
    changes::TESTS,
    durable::TESTS,
    bundles::TESTS,
    absent::TESTS,
    inspect::TESTS,
    keys::TESTS,
    attacks::TESTS,
    hostile_machine::TESTS,
    epochs::TESTS,
    wires::TESTS,
    switches::TESTS,
    adoption::TESTS,
    tenant_socket::TESTS,
    verified::TESTS,
];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        // What an upgrade checks first.
        Some("p4vm") if args[2] == "--protocol" => {
            println!("{PROTOCOL_VERSION}");
            end(Ok(()));
        }
        Some("run") => {
            end(p4shield_daemon::config::Config::load(args[4].as_ref()).map(drop).map_err(|e| e.to_string()))
        }
        Some("p4vm") => end(p4vm::run(&options(&args[2..])).map_err(|e| e.to_string())),
        Some("vmm") => end(hostile_machine::vmm(&args[2..])),
        Some("qemu") => end(stand_in::run(args[2].as_ref(), &args[3..])),
        // With too little memory to continue after it entered its sandbox.
        Some("p4vm-starved") => {
            let mut options = options(&args[2..]);
            options.limits.address_space = 1 << 20;
            end(p4vm::run(&options).map_err(|e| e.to_string()));
        }
        Some("daemon") => {
            if args.get(3).is_some_and(|option| option == "log") {
                tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
            }
            end(p4shield_daemon::run(args[2].as_ref()).map_err(|e| format!("{e:?}")));
        }
        Some("wires") => end(p4shield_daemon::serve_wires().map_err(|e| e.to_string())),
        Some("switch") => {
            switches::run(&args[2], &args[3]);
            end(Ok(()));
        }
        _ => {}
    }
    let filter = args.iter().skip(1).find(|a| !a.starts_with('-')).cloned().unwrap_or_default();
    let tests: Vec<_> = TESTS.iter().copied().flatten().filter(|(name, _)| name.contains(&filter)).collect();
    let waits = |(name, _): &&Test| tests.len() > 1 && hostile_machine::TESTS.iter().any(|(n, _)| n == name);
    let (apart, here): (Vec<_>, Vec<_>) = tests.iter().copied().partition(waits);
    let mut ok = true;
    for (name, test) in here {
        let passed = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        ok &= passed;
    }
    ok &= all_at_once(&apart);
    std::process::exit(i32::from(!ok));
}

/// Runs tests that hardly do anything but wait, each in a process of its own. Returns whether all passed.
fn all_at_once(tests: &[Test]) -> bool {
    let program = std::env::current_exe().expect("this program");
    let run = |name: &str| Command::new(&program).arg(name).output().expect("this program runs");
    std::thread::scope(|scope| {
        let runs: Vec<_> = tests.iter().map(|(name, _)| scope.spawn(|| run(name))).collect();
        let failed = runs.into_iter().map(|run| {
            let Output { status, stdout, stderr } = run.join().expect("no panic");
            eprint!("{}", String::from_utf8_lossy(&stderr));
            print!("{}", String::from_utf8_lossy(&stdout));
            usize::from(!status.success())
        });
        failed.sum::<usize>() == 0
    })
}

fn end(result: Result<(), String>) -> ! {
    if let Err(e) = &result {
        eprintln!("{e}");
    }
    std::process::exit(i32::from(result.is_err()));
}

/// Parses the command line that the daemon gives a P4 VM.
fn options(args: &[String]) -> p4vm::Options {
    let values = |name: &str| {
        let name = name.to_owned();
        args.chunks_exact(2).filter(move |c| c[0] == name).map(|c| c[1].clone())
    };
    let number = |name: &str| values(name).next().unwrap().parse::<u64>().unwrap();
    p4vm::Options {
        control_fd: number("--control-fd") as i32,
        evidence_fd: None,
        uid: number("--uid") as u32,
        allow_missing: values("--allow-missing").map(|m| m.parse().unwrap()).collect(),
        limits: Limits { address_space: number("--memory"), ..Limits::default() },
        busy: args.iter().any(|a| a == "--busy"),
        cpu: values("--cpu").next().map(|c| c.parse().unwrap()),
        delay: std::time::Duration::ZERO,
    }
}
