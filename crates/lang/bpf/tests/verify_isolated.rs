//! Verification in a child process. The test has its own harness, because a zygote is forked from a process
//! with one thread.
//!
//! `verify_isolated serve` is the command for [`Isolated::command`]; without arguments all tests run.

#![allow(clippy::print_stdout, reason = "the test has its own harness")]

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use p4shield_bpf::Linked;
use p4shield_bpf::asm::assemble;
use p4shield_bpf::verify::isolated::{ARGUMENTS, SYSCALLS};
use p4shield_bpf::verify::{Budget, Isolated, IsolatedError, Limit, Limits, Reason, Refusal, serve_stdio};

const SAFE: &str = "ldxdw r2, [r1+0]
    ldxdw r3, [r1+8]
    mov r4, r2
    add r4, 14
    mov r0, 0
    jgt r4, r3, out
    ldxb r0, [r2+13]
    and r0, 1
out: exit";

fn safe() -> Linked {
    assemble(SAFE).expect("assembles")
}

fn unsafe_access() -> Linked {
    assemble("ldxdw r2, [r1+0]\n ldxb r0, [r2+0]\n exit").expect("assembles")
}

/// A program on which PREVAIL panics, see `an_unknown_error_is_a_refusal`.
fn panics() -> Linked {
    let text = "stw [r10-8], 0
        stw [r10-4], -1
        ldxdw r2, [r10-8]
        mov r3, 1
        lsh r3, r2
        mov r0, 1
        exit";
    assemble(text).expect("assembles")
}

/// A program that takes many seconds and megabytes: many branches, each with another pair of registers.
fn expensive() -> Linked {
    let mut text = "mov r6, r1\n mov r7, 0\n".to_owned();
    for i in 0..450 {
        let off = -8 * (1 + i % 60);
        text += &format!(
            "ldxw r2, [r6+16]\n and r2, 255\n jgt r2, {}, a{i}\n add r7, r2\n stxdw [r10{off}], r7\n\
             a{i}: mov r3, r7\n sub r3, r2\n",
            i % 200
        );
    }
    text += "mov r0, 1\n exit";
    assemble(&text).expect("assembles")
}

fn check(isolated: &mut Isolated, linked: &Linked, budget: Budget) -> Result<usize, Refusal> {
    isolated.check(linked, &Limits::default(), &budget).map(|r| r.instructions)
}

fn serves(isolated: &mut Isolated) {
    let budget = Budget::default();
    assert_eq!(check(isolated, &safe(), budget), Ok(9));
    let refusal = check(isolated, &unsafe_access(), budget).expect_err("refused");
    assert_eq!(refusal.reason(), Some(Reason::PacketBounds), "{refusal}");
    let refusal = check(isolated, &panics(), budget).expect_err("refused");
    assert_eq!(refusal.reason(), Some(Reason::Unproven), "{refusal}");
    assert!(refusal.to_string().contains("panic"), "{refusal}");
    // The zygote still serves.
    assert_eq!(check(isolated, &safe(), budget), Ok(9));
}

fn a_zygote_serves() {
    serves(&mut Isolated::spawn().expect("spawns"));
}

fn a_command_serves() {
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command.arg("serve");
    serves(&mut Isolated::command(command).expect("starts"));
}

fn another_program_is_no_verifier() {
    let refused = Isolated::command(Command::new("true"));
    assert!(matches!(refused, Err(IsolatedError::Start(_))), "{refused:?}");
}

fn exceeded_limits_are_distinguished() {
    let mut isolated = Isolated::spawn().expect("spawns");
    let plenty = Budget::default();
    let cases = [
        (Limit::Wall, expensive(), Budget { wall: Duration::from_millis(50), ..plenty }),
        (Limit::Cpu, expensive(), Budget { cpu: Duration::from_millis(1), ..plenty }),
        (Limit::Memory, expensive(), Budget { memory_bytes: 8 << 20, ..plenty }),
    ];
    for (limit, program, budget) in cases {
        let refusal = check(&mut isolated, &program, budget).expect_err("too expensive");
        assert_eq!(refusal, Refusal::Resources { limit });
        assert_eq!(check(&mut isolated, &safe(), plenty), Ok(9), "the zygote serves after {limit}");
    }
}

/// Neither zombies nor running children remain.
fn nothing_is_left_behind() {
    let mut isolated = Isolated::spawn().expect("spawns");
    let budget = Budget { wall: Duration::from_millis(50), ..Budget::default() };
    for _ in 0..3 {
        check(&mut isolated, &expensive(), budget).expect_err("too expensive");
        check(&mut isolated, &safe(), Budget::default()).expect("is safe");
    }
    let zygote = isolated.pid();
    assert_eq!(children_of(zygote), Vec::<u32>::new());
    drop(isolated);
    assert!(!PathBuf::from(format!("/proc/{zygote}")).exists(), "the zygote outlives its handle");
}

fn children_of(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).expect("the kernel lists children");
    text.split_whitespace().map(|w| w.parse().expect("a number")).collect()
}

/// The zygote and its child die with an owner that is killed during a verification.
fn zygote_and_child_die_with_their_owner() {
    let mut owner = Command::new(std::env::current_exe().expect("known"));
    let mut owner = owner.arg("own").process_group(0).spawn().expect("starts");
    let family = |root: u32| {
        let zygotes = children_of(root);
        zygotes.iter().flat_map(|z| children_of(*z)).chain(zygotes.clone()).collect::<Vec<u32>>()
    };
    let started = wait_for(|| family(owner.id()).len() == 2);
    let family = family(owner.id());
    owner.kill().expect("is ours");
    owner.wait().expect("is ours");
    assert!(started, "no verification is running: {family:?}");
    let gone = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    assert!(wait_for(|| family.iter().all(gone)), "{family:?} are still running");
}

fn wait_for(mut done: impl FnMut() -> bool) -> bool {
    (0..500).any(|_| {
        let now = done();
        if !now {
            std::thread::sleep(Duration::from_millis(10));
        }
        now
    })
}

/// Main function of a process that owns a zygote and waits for a long verification.
fn own() {
    let mut isolated = Isolated::spawn().expect("spawns");
    let _ = isolated.check(&expensive(), &Limits::default(), &Budget::default());
}

fn descriptors_are_closed() {
    let secret = std::fs::File::open("/etc/hostname").expect("opens");
    let isolated = Isolated::spawn().expect("spawns");
    let fds = std::fs::read_dir(format!("/proc/{}/fd", isolated.pid())).expect("ours");
    let open: Vec<_> = fds.filter_map(|f| std::fs::read_link(f.expect("reads").path()).ok()).collect();
    drop(secret);
    assert!(open.len() == 1 && open[0].to_string_lossy().starts_with("socket:"), "{open:?}");
}

/// Returns the filter that allows the documented system calls with the documented arguments.
fn documented_filter() -> Result<seccompiler::BpfProgram, seccompiler::Error> {
    use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

    let mut rules: BTreeMap<_, Vec<SeccompRule>> = SYSCALLS.iter().map(|n| (*n, Vec::new())).collect();
    for call in SYSCALLS {
        let mut alternatives = vec![vec![]];
        for limit in ARGUMENTS.iter().filter(|limit| limit.call == *call) {
            let mut longer = Vec::new();
            for (conditions, value) in
                alternatives.iter().flat_map(|c| limit.values.iter().map(move |v| (c, v)))
            {
                let op = SeccompCmpOp::MaskedEq(limit.mask);
                let mut conditions: Vec<SeccompCondition> = conditions.clone();
                conditions.push(SeccompCondition::new(limit.argument, SeccompCmpArgLen::Qword, op, *value)?);
                longer.push(conditions);
            }
            alternatives = longer;
        }
        alternatives.retain(|conditions| !conditions.is_empty());
        let alternatives: Result<_, _> = alternatives.into_iter().map(SeccompRule::new).collect();
        rules.insert(*call, alternatives?);
    }
    let arch = std::env::consts::ARCH.try_into()?;
    let (otherwise, allowed) = (SeccompAction::KillProcess, SeccompAction::Allow);
    Ok(seccompiler::SeccompFilter::new(rules, otherwise, allowed, arch)?.try_into()?)
}

/// Verification works in an empty root, without privileges, with only the documented system calls.
fn it_works_locked_down() {
    let empty = tempfile::tempdir().expect("makes");
    let path = empty.path().to_owned();
    let lockdown = move || {
        let filter = documented_filter().map_err(io::Error::other)?;
        rustix::process::chroot(path)?;
        rustix::process::chdir("/")?;
        seccompiler::apply_filter(&filter).map_err(io::Error::other)
    };
    let mut isolated = Isolated::spawn_with(lockdown).expect("spawns");
    serves(&mut isolated);
    let budget = Budget { wall: Duration::from_millis(50), ..Budget::default() };
    let refusal = check(&mut isolated, &expensive(), budget).expect_err("too expensive");
    assert_eq!(refusal, Refusal::Resources { limit: Limit::Wall });
    let budget = Budget { memory_bytes: 8 << 20, ..Budget::default() };
    let refusal = check(&mut isolated, &expensive(), budget).expect_err("too expensive");
    assert_eq!(refusal, Refusal::Resources { limit: Limit::Memory });
}

/// As in a P4 VM with less memory than a verification may use: it cannot raise its limit.
fn a_budget_is_clamped_to_the_owners_limit() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

    let most = 512 << 20;
    let lockdown = || {
        setrlimit(Resource::As, Rlimit { current: Some(most), maximum: Some(most) })?;
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
        Ok(())
    };
    let mut isolated = Isolated::spawn_with(lockdown).expect("spawns");
    assert_eq!(check(&mut isolated, &safe(), Budget { memory_bytes: 2 * most, ..Budget::default() }), Ok(9));
}

fn a_failed_lockdown_is_reported() {
    let refused = Isolated::spawn_with(|| Err(io::Error::other("no such filter")));
    assert!(matches!(&refused, Err(IsolatedError::Lockdown(why)) if why == "no such filter"), "{refused:?}");
}

fn threads_are_refused() {
    let refused = std::thread::scope(|s| s.spawn(Isolated::spawn).join().expect("no panic"));
    assert!(matches!(refused, Err(IsolatedError::Threads)), "{refused:?}");
}

fn a_dead_zygote_is_unavailable() {
    let mut isolated = Isolated::spawn().expect("spawns");
    let pid = rustix::process::Pid::from_raw(isolated.pid().cast_signed()).expect("a number");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("is ours");
    for _ in 0..2 {
        let refusal = check(&mut isolated, &safe(), Budget::default()).expect_err("the zygote is dead");
        assert!(matches!(refusal, Refusal::Unavailable { .. }), "{refusal}");
    }
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("serve") => return serve_stdio().expect("the owner follows the protocol"),
        Some("own") => return own(),
        _ => {}
    }
    let tests: [(&str, fn()); 11] = [
        ("a_zygote_serves", a_zygote_serves),
        ("a_command_serves", a_command_serves),
        ("another_program_is_no_verifier", another_program_is_no_verifier),
        ("exceeded_limits_are_distinguished", exceeded_limits_are_distinguished),
        ("nothing_is_left_behind", nothing_is_left_behind),
        ("zygote_and_child_die_with_their_owner", zygote_and_child_die_with_their_owner),
        ("descriptors_are_closed", descriptors_are_closed),
        ("it_works_locked_down", it_works_locked_down),
        ("a_budget_is_clamped_to_the_owners_limit", a_budget_is_clamped_to_the_owners_limit),
        ("a_failed_lockdown_is_reported", a_failed_lockdown_is_reported),
        ("a_dead_zygote_is_unavailable", a_dead_zygote_is_unavailable),
    ];
    // A failing test panics and ends the program. `threads_are_refused` is last because it starts a thread.
    for (name, test) in tests.into_iter().chain([("threads_are_refused", threads_are_refused as fn())]) {
        test();
        println!("test {name} ... ok");
    }
}
