//! The unit of a P4 switch, with the sample of its configuration.

use std::path::Path;

use crate::common::unit::{Environment, Unit};
use crate::common::{code, example, p4shield, stderr};

const UNIT: &str = include_str!("../../../../../packaging/systemd/p4shield-switch@.service");
const SAMPLE: &str = include_str!("../../../../../packaging/systemd/switch.conf");

/// Returns the words of ExecStart with the variables of `file`.
fn command(file: &str, instance: &str) -> Vec<String> {
    Unit::parse(UNIT, instance).command(&Environment::parse(file))
}

#[test]
fn the_sample_of_a_switch_says_what_its_unit_runs() {
    let run = command(SAMPLE, "s1");
    let want = "/usr/local/bin/p4shield switch run --socket /run/p4shield/switch-s1.sock --port 1=eth1 \
                --port 2=eth2 -- /etc/p4shield/switch/router.p4";
    assert_eq!(run.join(" "), want);
    for name in ["PROGRAM", "EXTERNS", "PORTS", "OPTIONS"] {
        assert!(SAMPLE.lines().any(|line| line.starts_with(&format!("{name}="))), "{name}");
    }
}

#[test]
fn the_command_accepts_what_the_sample_may_say() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().display().to_string();
    let example_options = SAMPLE.lines().find_map(|line| line.strip_prefix("# OPTIONS=")).unwrap();
    let entries = folder.path().join("s1-commands.txt");
    std::fs::write(&entries, "table_set_default routes drop\n").unwrap();
    let file = SAMPLE
        .replace("\nOPTIONS=\n", &format!("\nOPTIONS={example_options}\n"))
        // Interfaces that no machine has.
        .replace("=eth", "=p4s-none")
        .replace("127.0.0.1:9465", "127.0.0.1:0")
        .replace("/etc/p4shield/switch/router.p4", &example("programs/router.p4"))
        .replace("/etc/p4shield/switch/s1-commands.txt", &entries.display().to_string());
    let run: Vec<_> = command(&file, "s1").into_iter().map(|w| w.replace("/run/p4shield", &socket)).collect();
    assert!(run.contains(&"--metrics".to_owned()) && Path::new(&run[0]).ends_with("p4shield"), "{run:?}");
    let words: Vec<_> = run[1..].iter().map(String::as_str).collect();
    let started = p4shield(&words);
    assert_eq!(code(&started), 1, "{}", stderr(&started));
    assert!(stderr(&started).contains("p4s-none1"), "{}", stderr(&started));
    // Mistakes that a person has to correct, after which the unit does not try again.
    let unit = Unit::parse(UNIT, "s1");
    let prevented = unit.value("RestartPreventExitStatus").unwrap();
    let wrong = |from: &str, to: &str| {
        let words: Vec<_> = words.iter().map(|w| w.replace(from, to)).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        code(&p4shield(&words)).to_string()
    };
    let codes = [wrong("1=p4s", "one=p4s"), wrong("router.p4", "../p4shield.toml")];
    assert!(codes.iter().all(|code| prevented.split(' ').any(|p| p == code)), "{codes:?}");
}
