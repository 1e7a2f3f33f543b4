//! `p4shield-dev bench isolation` in small, as a user runs it. The tests check that each adversary acted, and
//! what is reported, never times or rates.

use std::process::{Command, Output};

use p4shield_testbed::usable;
use serde_json::Value;

/// Rates that a busy machine carries.
const SMALL: [&str; 4] = ["--rate", "500", "--p4-rate", "500"];

/// Runs the benchmark; `None` where it cannot run.
fn bench(words: &[&str]) -> Option<Output> {
    if let Err(why) = usable() {
        p4shield_need::skip("machine", why);
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    let out = command.args(["bench", "isolation", "--json"]).args(SMALL).args(words).output().unwrap();
    assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    Some(out)
}

fn report(words: &[&str]) -> Option<Value> {
    bench(words).map(|out| serde_json::from_slice(&out.stdout).unwrap())
}

/// Returns the rows with this adversary.
fn rows<'r>(report: &'r Value, attack: &str) -> Vec<&'r Value> {
    let rows: Vec<_> = report["rows"].as_array().unwrap().iter().filter(|r| r["attack"] == attack).collect();
    assert!(!rows.is_empty(), "{attack}: {report:#}");
    rows
}

/// Returns the number before these words of a row's outcome.
fn number(row: &Value, words: &str) -> u64 {
    let outcome = row["outcome"].as_str().unwrap();
    let before = outcome.split_once(words).unwrap_or_else(|| panic!("no `{words}` in {outcome}")).0;
    before.split_whitespace().last().unwrap().parse().unwrap()
}

#[test]
fn a_sweep_makes_the_adversarys_switch_remember_much() {
    let attacks = "idle,ordinary,outside,tenant";
    let words = ["--seconds", "2", "--p4", "without", "--attacks", attacks];
    let Some(report) = report(&words) else { return };
    let rows = report["rows"].as_array().unwrap();
    let kinds: Vec<_> = rows.iter().map(|r| (r["level"].as_str(), r["attack"].as_str())).collect();
    let attacks: Vec<_> = attacks.split(',').map(Some).collect();
    let expected: Vec<_> =
        ["baseline", "2"].into_iter().flat_map(|l| attacks.iter().map(move |a| (Some(l), *a))).collect();
    assert_eq!(kinds, expected, "{report:#}");
    for row in rows {
        let sweeps = row["attack"] == "outside" || row["attack"] == "tenant";
        assert_eq!(sweeps, row["flows"].as_u64() > Some(50), "{report:#}");
        assert_eq!(row["attack"] == "idle", row["acts"] == 0, "{report:#}");
        // On a busy machine a sweep at the baseline may leave nothing.
        let is_served = row["level"] == "2" || !sweeps;
        assert!(!is_served || row["received_pps"].as_f64() > Some(0.0), "{report:#}");
    }
    assert_eq!(report["bars"].as_array().unwrap().len(), 3, "{report:#}");
}

#[test]
fn a_killed_switch_is_started_and_killed_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let words = ["--seconds", "5", "--p4", "without", "--attacks", "kill", "--report", path];
    let Some(report) = report(&words) else { return };
    for row in rows(&report, "kill") {
        // Each kill is of a switch that the daemon has started anew.
        assert!(number(row, " times") >= 2, "{report:#}");
        assert!(row["level"] == "2" || row["verdict"] == "harmed", "the switch is shared: {report:#}");
    }
    let page = std::fs::read_to_string(folder.path().join("isolation.html")).unwrap();
    assert!(page.contains("<th>baseline<th>level 2") && page.contains("<tr><th>kill"), "{page}");
    assert_eq!(page.matches("<svg").count(), 2, "{page}");
    let written = std::fs::read(folder.path().join("isolation.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), report);
}

#[test]
fn p4_switches_meet_all_adversaries_but_bombs() {
    let attacks = "ordinary,tenant,kill,memory";
    let words = ["--seconds", "3", "--p4", "without", "--levels", "2-p4", "--attacks", attacks];
    let Some(report) = report(&words) else { return };
    let kinds: Vec<_> = report["rows"].as_array().unwrap().iter().map(|r| r["attack"].as_str()).collect();
    assert_eq!(kinds, ["idle", "ordinary", "tenant", "kill"].map(Some), "{report:#}");
    for row in ["ordinary", "tenant"].iter().flat_map(|attack| rows(&report, attack)) {
        assert!(row["acts"].as_u64() > Some(0) && row["flows"].is_null(), "{report:#}");
    }
    // The daemon starts it anew.
    assert!(number(rows(&report, "kill")[0], " times") >= 2, "{report:#}");
}

#[test]
fn bombs_go_off_in_the_adversarys_compartment() {
    let words = ["--seconds", "3", "--p4", "without", "--attacks", "memory,forks,sessions"];
    let Some(report) = report(&words) else { return };
    for row in rows(&report, "memory") {
        let (most, allowed) = (number(row, " MiB at once"), number(row, " are allowed"));
        // A cgroup ends it there; where there is none, the bomb ends itself.
        assert!(most >= 32 && most <= 2 * allowed, "{report:#}");
    }
    for row in ["forks", "sessions"].iter().flat_map(|attack| rows(&report, attack)) {
        let (more, allowed) = (number(row, " processes more"), number(row, " are allowed"));
        assert!(more >= 10 && more < allowed, "{report:#}");
    }
}

#[test]
fn p4_adversaries_act_and_runs_resume() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results");
    let resume = ["--seconds", "4", "--levels", "2", "--p4", "with", "--resume", file.to_str().unwrap()];
    let all = "burn,stop,ring,scribble";
    let Some(first) = report(&[&resume[..], &["--attacks", all]].concat()) else { return };
    let row = |attack| rows(&first, attack)[0];
    // Its program lets all through, so the budget stopped it.
    assert!(number(row("burn"), " packets dropped (program)") > 0, "{first:#}");
    assert!(number(row("stop"), " processes stopped") > 0, "{first:#}");
    assert!(number(row("ring"), " packets dropped (full)") > 0, "{first:#}");
    assert!(number(row("scribble"), " MiB written") > 0, "{first:#}");
    assert!(number(row("scribble"), " packets dropped (fault)") > 0, "{first:#}");
    let lines = || std::fs::read_to_string(&file).unwrap().lines().count();
    assert_eq!(lines(), 6, "settings, idle and four adversaries");
    let second = report(&[&resume[..], &["--attacks", all]].concat()).unwrap();
    let outcomes = |report: &Value| -> Vec<_> {
        report["rows"].as_array().unwrap().iter().map(|row| row["outcome"].to_string()).collect()
    };
    // Counts of packets would differ if one had been measured again.
    assert_eq!((lines(), outcomes(&second)), (6, outcomes(&first)));
}
