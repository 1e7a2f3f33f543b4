//! Attacks the sandbox from inside.
//!
//! The test starts this binary with `--attack NAME LAYERS`; the process enters the sandbox as a P4 VM does,
//! and then attacks as a compromised P4 VM would. Each attack must fail in the sandbox and succeed outside of
//! it: an attack that never succeeds shows nothing. Before the attack, the test reads the process's state
//! from the kernel ([`entered`]): a sandbox that was not entered refuses nothing. The sandbox needs a process
//! with one thread, which a test under libtest's harness is not.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is its own harness")]

mod attacks;
mod entered;
mod inside;

use attacks::{ATTACKS, Attack, DEEDS};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};

/// The result of an attack.
#[derive(Debug, PartialEq, Eq)]
enum AttackResult {
    /// The process was not in the sandbox when it was about to attack.
    NotEntered(String),
    Succeeded,
    Refused(String),
    Killed(i32),
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|a| a == "--attack") {
        inside::run(&args[2], &args[3]);
    }
    let filter = args.iter().skip(1).find(|a| !a.starts_with('-')).cloned().unwrap_or_default();
    let mut failed = 0;
    let mut run = |name: String, test: &dyn Fn()| {
        if name.contains(&filter) {
            let ok = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)).is_ok();
            println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
            failed += usize::from(!ok);
        }
    };
    for attack in ATTACKS {
        run(format!("{}_succeeds_outside_the_sandbox", attack.name), &|| succeeds_outside(attack));
        if attack.namespaces {
            run(format!("{}_fails_without_seccomp_too", attack.name), &|| fails_without_seccomp(attack));
        }
        for kind in attack.seccomp {
            run(format!("{}_is_refused_to_{kind}", attack.name), &|| fails_in_full(attack, kind));
        }
    }
    for layers in ["namespaces", "control", "worker", "verifier", "desk", "packets"] {
        for (deed, _) in DEEDS {
            run(format!("{deed}_succeeds_within_{layers}"), &|| {
                assert_eq!(attempt(deed, layers, None), AttackResult::Succeeded);
            });
        }
    }
    run("an_ordinary_user_can_enter_the_sandbox".into(), &an_ordinary_user_can_enter);
    run("a_sandbox_that_is_not_entered_refuses_nothing".into(), &a_sandbox_that_is_not_entered);
    run("a_missing_measure_is_an_error".into(), &a_missing_measure_is_an_error);
    std::process::exit(i32::from(failed > 0));
}

fn succeeds_outside(attack: &Attack) {
    assert_eq!(attempt(attack.name, "none", None), AttackResult::Succeeded);
}

fn fails_without_seccomp(attack: &Attack) {
    let result = attempt(attack.name, "namespaces", None);
    assert!(matches!(result, AttackResult::Refused(_) | AttackResult::Killed(_)), "{result:?}");
}

fn fails_in_full(attack: &Attack, kind: &str) {
    let result = attempt(attack.name, kind, None);
    assert!(matches!(result, AttackResult::Refused(_) | AttackResult::Killed(libc::SIGSYS)), "{result:?}");
}

fn an_ordinary_user_can_enter() {
    let result = attempt("nothing", "worker", Some(65534));
    assert_eq!(result, AttackResult::Succeeded);
}

fn a_missing_measure_is_an_error() {
    // Without free user namespaces the kernel returns ENOSPC, as where they are disabled.
    let result = attempt("nothing", "no-user-namespaces", None);
    assert!(matches!(&result, AttackResult::NotEntered(e) if e.contains("user namespace")), "{result:?}");
}

/// The test itself does not take a sandbox that cannot be entered, or lacks its filter, for a refusal.
fn a_sandbox_that_is_not_entered() {
    for layers in ["no-user-namespaces", "worker-without-filter"] {
        let result = attempt("reading_a_file", layers, None);
        assert!(matches!(result, AttackResult::NotEntered(_)), "{layers}: {result:?}");
    }
}

/// Starts this binary to run an attack within `layers`. Returns the result.
#[expect(clippy::zombie_processes, reason = "`reap` waits for it and for the process that takes its place")]
fn attempt(name: &str, layers: &str, user: Option<u32>) -> AttackResult {
    let leaked =
        rustix::fs::open("/etc/passwd", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    let victims = attacks::Victims::new();
    // By descriptor: the directory of the binary may be closed to another user.
    let exe =
        rustix::fs::open("/proc/self/exe", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    let mut command = Command::new(format!("/proc/self/fd/{}", exe.as_raw_fd()));
    command
        .args(["--attack", name, layers])
        .envs(victims.env(&leaked))
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    if let Some(uid) = user {
        command.uid(uid).gid(uid);
    }
    let (output, error) = std::io::pipe().unwrap();
    let mut child = command.stderr(error).spawn().unwrap();
    drop(command);
    let mut output = BufReader::new(output);
    let mut text = String::new();
    output.read_line(&mut text).unwrap();
    let state = if text == inside::READY {
        text.clear();
        entered::check(child.id(), layers, user)
    } else {
        Err("it ended before the attack".to_owned())
    };
    // The attack begins when its standard input ends.
    drop(child.stdin.take());
    output.read_to_string(&mut text).unwrap();
    let last = reap(child.id());
    drop((leaked, exe));
    match (state, last.signal(), text.trim().lines().last()) {
        (Err(why), _, _) => AttackResult::NotEntered(format!("{why}: {}", text.trim())),
        (_, Some(signal), _) => AttackResult::Killed(signal),
        (_, None, Some("SUCCEEDED")) => AttackResult::Succeeded,
        (_, None, _) => AttackResult::Refused(text.trim().to_owned()),
    }
}

/// Waits for the started process and for the one that continues in its place. Returns the latter's
/// status, or the former's if there is no other.
fn reap(first: u32) -> ExitStatus {
    let mut result = None;
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live integer; all children of this process belong to this test, which runs
        // alone.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if pid < 0 {
            return result.expect("there was a child");
        }
        if pid.unsigned_abs() != first || result.is_none() {
            result = Some(ExitStatus::from_raw(status));
        }
    }
}
