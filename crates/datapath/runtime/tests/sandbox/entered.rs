//! Proof, from the kernel, that the attacking process is in the sandbox.

use std::collections::HashMap;
use std::fs;

/// The lines of a process's `status`, by name.
type Status = HashMap<String, String>;

/// Returns why the process that continues for `first`, a child of this one, is not within `layers`.
pub(crate) fn check(first: u32, layers: &str, user: Option<u32>) -> Result<(), String> {
    let ours = status("thread-self");
    let filters = |status: &Status| -> usize { status["Seccomp_filters"].parse().unwrap() };
    let added = match layers {
        "none" => return Ok(()),
        "namespaces" => 0,
        "verifier" | "desk" => 2,
        "packets" => 3,
        _ => 1,
    };
    let theirs = status(&successor(first).to_string());
    let uid = user.unwrap_or(super::inside::UID).to_string();
    let namespaces: Vec<&str> = theirs["NSpid"].split_whitespace().collect();
    let depth = ours["NSpid"].split_whitespace().count();
    let facts = [
        ("its user is its own", theirs["Uid"].split_whitespace().all(|id| id == uid)),
        ("it cannot gain privileges", theirs["NoNewPrivs"] == "1"),
        (
            "it has no capabilities",
            ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
                .iter()
                .all(|set| theirs[*set].chars().all(|digit| digit == '0')),
        ),
        ("it is process 1 of its namespace", namespaces.len() == depth + 1 && namespaces[depth] == "1"),
        ("its filter is applied", filters(&theirs) == filters(&ours) + added),
        ("its system calls are filtered", added == 0 || theirs["Seccomp"] == "2"),
    ];
    facts.iter().find(|(_, holds)| !holds).map_or(Ok(()), |(fact, _)| Err(format!("not so: {fact}")))
}

/// Returns the process that took the place of `first`, which may not have ended yet.
fn successor(first: u32) -> u32 {
    let children = fs::read_to_string("/proc/thread-self/children").unwrap();
    let others = children.split_whitespace().map(|pid| pid.parse().unwrap()).filter(|pid| *pid != first);
    let [pid] = others.collect::<Vec<u32>>()[..] else { panic!("one process continues: {children}") };
    pid
}

fn status(process: &str) -> Status {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = |line: &str| line.split_once(':').map(|(k, v)| (k.to_owned(), v.trim().to_owned()));
    text.lines().filter_map(line).collect()
}
