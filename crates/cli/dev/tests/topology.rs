//! `p4shield-dev bench topology` in small, as a user runs it. The tests check what is reported, never times
//! or rates.

use std::path::Path;
use std::process::{Command, Output};

use p4shield_testbed::usable;
use serde_json::Value;

/// Rates that a busy machine carries.
const SMALL: [&str; 6] = ["--milliseconds", "300", "--rates", "500,1000", "--latency-rate", "500"];

/// Runs the benchmark; `None` where it cannot run.
fn bench(words: &[&str]) -> Option<Output> {
    if let Err(why) = usable() {
        p4shield_need::skip("machine", why);
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    let out = command.args(["bench", "topology"]).args(SMALL).args(words).output().unwrap();
    assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    Some(out)
}

/// Checks that a cell has all figures, and that each tenant's packets were carried.
fn check(cell: &Value, rounds: usize) {
    let tenants = usize::try_from(cell["tenants"].as_u64().unwrap()).unwrap();
    let of_tenants = cell["tenant_pps"].as_array().unwrap();
    assert_eq!(of_tenants.len(), tenants, "{cell:#}");
    assert!(of_tenants.iter().all(|pps| pps.as_f64() > Some(0.0)), "{cell:#}");
    assert_eq!(cell["rounds"], rounds, "{cell:#}");
    for spread in ["pps", "overload_pps", "ratio", "p50_us", "p99_us", "busy_cores", "memory_mb"] {
        assert_eq!(cell[spread]["rounds"].as_array().unwrap().len(), rounds, "{spread}: {cell:#}");
    }
    for figure in ["pps", "ratio", "p50_us", "p99_us", "memory_mb"] {
        assert!(cell[figure]["median"].as_f64() > Some(0.0), "{figure}: {cell:#}");
    }
    let jain = cell["jain"].as_f64().unwrap();
    assert!(jain > 1.0 / (tenants as f64 + 1.0) && jain < 1.0 + 1e-9, "{cell:#}");
    let switches = if cell["level"].as_str().unwrap().starts_with('2') { tenants } else { 1 };
    assert_eq!(cell["switches"], switches, "{cell:#}");
}

#[test]
fn both_levels_carry_both_tenants_packets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let words = ["--rounds", "2", "--p4", "without", "--json", "--report", path, "--svg", path];
    let Some(out) = bench(&words) else { return };
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let cells = report["cells"].as_array().unwrap();
    let levels: Vec<_> = cells.iter().map(|c| c["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["baseline", "2"], "{report:#}");
    cells.iter().for_each(|cell| check(cell, 2));
    assert!(cells.iter().all(|cell| cell["cores"] == 1), "{report:#}");
    assert_eq!(report["bars"].as_array().unwrap().len(), 1, "{report:#}");
    let written = std::fs::read(folder.path().join("topology.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), report);
    for name in ["throughput", "latency", "cores", "memory"] {
        check_svg(&folder.path().join(format!("topology-{name}.svg")));
    }
    let page = std::fs::read_to_string(folder.path().join("topology.html")).unwrap();
    assert_eq!((page.matches("<svg").count(), page.matches("<table>").count()), (4, 2), "{page}");
}

#[test]
fn p4_switches_are_compared_with_one_on_the_host() {
    let words = ["--rounds", "1", "--p4", "without", "--levels", "baseline-p4,2-p4", "--json"];
    let Some(out) = bench(&words) else { return };
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let cells = report["cells"].as_array().unwrap();
    let levels: Vec<_> = cells.iter().map(|c| c["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["baseline-p4", "2-p4"], "{report:#}");
    cells.iter().for_each(|cell| check(cell, 1));
    assert_eq!(report["bars"][0]["bar"], ">= 0.9", "{report:#}");
}

#[test]
fn each_level_is_measured_with_and_without_programs() {
    let Some(out) = bench(&["--rounds", "1", "--json", "--levels", "baseline,2-p4"]) else { return };
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4, "{report:#}");
    for cell in cells {
        let ratios = cell["plain_ratio"]["rounds"].as_array().unwrap();
        assert_eq!(ratios.len(), usize::from(cell["p4"] == "with"), "{cell:#}");
        assert!(cell["pps"]["median"].as_f64() > Some(0.0), "{cell:#}");
    }
}

#[test]
fn a_quick_run_has_one_set_of_switches_for_all_scenarios() {
    if let Err(why) = usable() {
        return p4shield_need::skip("machine", why);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    command.args(["bench", "topology", "--quick", "--scenarios", "p2p,p2v,v2v", "--levels", "2", "--json"]);
    command.args(["--tenants", "1", "--p4", "without", "--rates", "500,1000", "--latency-rate", "500"]);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let cells = report["cells"].as_array().unwrap();
    let scenarios: Vec<_> = cells.iter().map(|c| c["scenario"].as_str().unwrap()).collect();
    assert_eq!(scenarios, ["p2p", "p2v", "v2v"], "{report:#}");
    for cell in cells {
        assert_eq!((&cell["rounds"], &cell["switches"]), (&2.into(), &1.into()), "{cell:#}");
        assert!(cell["pps"]["median"].as_f64() > Some(0.0), "{cell:#}");
    }
}

#[test]
fn p2p_with_programs_is_refused() {
    if usable().is_err() {
        return p4shield_need::skip("machine", usable().unwrap_err());
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    command.args(["bench", "topology", "--p4", "with", "--scenarios", "p2p"]);
    let out = command.output().unwrap();
    assert!(!out.status.success());
    let why = String::from_utf8_lossy(&out.stderr);
    assert!(why.contains("no program judges packets of p2p"), "{why}");
}

/// Checks that a chart is well-formed and has a bar for each of two cells.
fn check_svg(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut open = Vec::new();
    for tag in text.split('<').skip(1).map(|rest| rest.split_once('>').unwrap().0) {
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{text}");
        } else if !tag.ends_with('/') && !tag.starts_with(['?', '!']) {
            open.push(name);
        }
    }
    assert!(open.is_empty() && text.starts_with("<svg"), "{open:?}\n{text}");
    for cell in ["p2v, 2 tenants, 64 B, baseline", "p2v, 2 tenants, 64 B, level 2"] {
        assert!(text.contains(cell), "{text}");
    }
}

#[test]
fn every_scenario_carries_packets_of_all_lengths() {
    let lists =
        ["--p4", "without", "--levels", "baseline,1,2", "--scenarios", "p2p,p2v,v2v", "--bytes", "64,1500"];
    let Some(out) = bench(&[&["--rounds", "1", "--json", "--tenants", "1"], &lists[..]].concat()) else {
        return;
    };
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 18, "{report:#}");
    cells.iter().for_each(|cell| check(cell, 1));
    assert!(cells.iter().all(|c| (c["order"] == "none") == (c["level"] == "baseline")), "{report:#}");
}

#[test]
fn isolated_switches_have_a_core_each() {
    let words = ["--rounds", "1", "--p4", "without", "--json", "--levels", "2", "--cores", "isolated"];
    let Some(out) = bench(&words) else { return };
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let [cell] = &report["cells"].as_array().unwrap()[..] else { panic!("{report:#}") };
    assert_eq!((&cell["switches"], &cell["cores"]), (&2.into(), &2.into()), "{report:#}");
    assert_eq!((&report["cores"], report["bars"].as_array().unwrap().len()), (&"isolated".into(), 0));
}

#[test]
fn the_table_has_a_row_for_each_cell() {
    let Some(out) = bench(&["--rounds", "1", "--p4", "without", "--tenants", "4", "--levels", "2"]) else {
        return;
    };
    let text = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
    let [_, names, row] = lines[..] else { panic!("{text}") };
    for name in ["scenario", "tenant_pps", "jain", "ratio", "p50_us", "p99_us", "busy_cores", "memory_mb"] {
        assert!(names.split_whitespace().any(|word| word == name), "{name} is missing: {text}");
    }
    assert!(row.trim_start().starts_with("p2v"), "{text}");
}

#[test]
fn a_run_goes_on_with_what_its_file_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results");
    let file_name = file.to_str().unwrap();
    let words = ["--rounds", "1", "--p4", "without", "--json", "--levels", "2", "--resume", file_name];
    if bench(&[&words[..], &["--tenants", "1"]].concat()).is_none() {
        return;
    }
    let first = std::fs::read_to_string(&file).unwrap();
    assert_eq!(first.lines().count(), 2, "{first}");
    // As if it had been interrupted while it wrote.
    std::fs::write(&file, format!("{first}{{\"round\":1,\"scenario")).unwrap();
    let out = bench(&[&words[..], &["--tenants", "1,2"]].concat()).unwrap();
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["cells"].as_array().unwrap().len(), 2, "{report:#}");
    let second = std::fs::read_to_string(&file).unwrap();
    assert_eq!(second.lines().count(), 3, "{second}");
    assert!(second.starts_with(&first), "the first cell was measured again: {second}");
}
