//! `p4shield-dev bench workloads` in small, as a user runs it. The tests check what is reported, never times
//! or rates.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{PoisonError, RwLock};

use p4shield_testbed::{process, usable, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A load that a busy machine carries. In one second, one of two streams may starve.
const SMALL: [&str; 4] = ["--seconds", "4", "--connections", "4"];
/// Debian's packages and their programs.
const PACKAGES: [(&str, &str); 5] = [
    ("iperf3", "iperf3"),
    ("nginx-light", "nginx"),
    ("wrk", "wrk"),
    ("memcached", "memcached"),
    ("libmemcached-tools", "memcaslap"),
];

/// Held while packets are generated: programs of the tests beside would take the generator's core.
static ALONE: RwLock<()> = RwLock::new(());

/// Prepares the benchmark.
fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    command.args(["bench", "workloads"]).args(SMALL).args(words);
    command
}

/// Reports whether the machine has what the benchmark needs.
fn can_run() -> bool {
    if let Err(why) = usable() {
        p4shield_need::skip("machine", why);
        return false;
    }
    if let Some((package, _)) = PACKAGES.iter().find(|(_, program)| process::find(program).is_none()) {
        p4shield_need::skip(package, format!("the package {package} is not installed"));
        return false;
    }
    true
}

/// Runs the benchmark to its end; `None` where it cannot run.
fn bench(words: &[&str]) -> Option<Output> {
    if !can_run() {
        return None;
    }
    let _beside_others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let out = command(words).output().unwrap();
    assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    Some(out)
}

fn report(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Checks that a cell has all figures, and that each tenant's server answered.
fn check(cell: &Value, rounds: usize) {
    let tenants = usize::try_from(cell["tenants"].as_u64().unwrap()).unwrap();
    let of_tenants = cell["tenant_throughput"].as_array().unwrap();
    assert_eq!(of_tenants.len(), tenants, "{cell:#}");
    assert!(of_tenants.iter().all(|one| one.as_f64() > Some(0.0)), "{cell:#}");
    assert_eq!((&cell["rounds"], &cell["failed"]), (&rounds.into(), &0.into()), "{cell:#}");
    let times = if cell["workload"] == "iperf3" { 0 } else { rounds };
    for spread in ["throughput", "busy_cores", "memory_mb"] {
        assert_eq!(cell[spread]["rounds"].as_array().unwrap().len(), rounds, "{spread}: {cell:#}");
    }
    for spread in ["p50_us", "p90_us", "p99_us"] {
        assert_eq!(cell[spread]["rounds"].as_array().unwrap().len(), times, "{spread}: {cell:#}");
    }
    assert_eq!(cell["tenant_p99_us"].as_array().unwrap().len(), tenants * times.min(1), "{cell:#}");
    let at = |figure: &str| cell[figure]["median"].as_f64().unwrap();
    assert!(at("throughput") > 0.0 && at("memory_mb") > 0.0, "{cell:#}");
    assert!(at("p50_us") <= at("p90_us") && at("p90_us") <= at("p99_us"), "{cell:#}");
    assert!(times == 0 || at("p50_us") > 0.0, "{cell:#}");
    let jain = cell["jain"].as_f64().unwrap();
    assert!(jain > 1.0 / (tenants as f64 + 1.0) && jain < 1.0 + 1e-9, "{cell:#}");
    let is_shared = ["baseline", "1"].iter().any(|level| cell["level"] == *level);
    let switches = if is_shared { 1 } else { tenants };
    assert_eq!((&cell["switches"], &cell["cores"]), (&switches.into(), &1.into()), "{cell:#}");
}

/// Runs a workload at the baseline and at level 2, there also with VMs whose devices keep their offloads.
fn levels_carry(workload: &str, unit: &str) {
    let levels = "baseline,2,2-offloads";
    let words = ["--workloads", workload, "--levels", levels, "--rounds", "1", "--json"];
    let Some(out) = bench(&words) else { return };
    let report = report(&out);
    let cells = report["cells"].as_array().unwrap();
    let measured: Vec<_> = cells.iter().map(|c| c["level"].as_str().unwrap()).collect();
    assert_eq!(measured.join(","), levels, "{report:#}");
    assert!(report["congestion"].as_str().is_some_and(|algorithm| !algorithm.is_empty()), "{report:#}");
    for cell in cells {
        check(cell, 1);
        assert_eq!((&cell["workload"], &cell["unit"]), (&workload.into(), &unit.into()), "{cell:#}");
        assert_eq!(cell["ratio"]["rounds"].as_array().unwrap().len(), 1, "{cell:#}");
        assert_eq!(cell["order"] == "none", cell["level"] == "baseline", "{cell:#}");
    }
}

#[test]
fn levels_carry_both_tenants_iperf3() {
    levels_carry("iperf3", "Mbit/s");
}

#[test]
fn levels_carry_both_tenants_web_pages() {
    levels_carry("web", "requests/s");
}

#[test]
fn levels_carry_both_tenants_memcached() {
    levels_carry("memcached", "operations/s");
}

#[test]
fn a_chain_of_vms_carries_every_workload() {
    if process::find("nft").is_none() {
        p4shield_need::skip("nftables", "the package nftables is not installed");
        return;
    }
    let words = ["--scenarios", "v2v", "--levels", "baseline,2", "--tenants", "1", "--rounds", "1", "--json"];
    let Some(out) = bench(&words) else { return };
    let report = report(&out);
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 6, "{report:#}");
    cells.iter().for_each(|cell| check(cell, 1));
    assert!(cells.iter().all(|c| c["scenario"] == "v2v"), "{report:#}");
}

#[test]
fn the_page_has_both_figures_and_the_papers_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    if !can_run() {
        return;
    }
    measure_packets(path);
    let packets = folder.path().join("topology.json");
    let words = ["--rounds", "1", "--levels", "baseline,1,2", "--json", "--report", path, "--svg", path];
    let out = bench(&[&words[..], &["--topology", packets.to_str().unwrap()]].concat()).unwrap();
    let written = std::fs::read(folder.path().join("workloads.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), report(&out));
    for name in ["iperf3", "web", "memcached", "web-times", "memcached-times"] {
        let svg = std::fs::read_to_string(folder.path().join(format!("workloads-{name}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("p2v, 2 tenants, level 2"), "{svg}");
    }
    check_page(&folder.path().join("workloads.html"));
}

/// Writes a report of `bench topology` into a folder.
fn measure_packets(folder: &str) {
    let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    let mut packets = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    packets.args([
        "bench",
        "topology",
        "--p4",
        "without",
        "--milliseconds",
        "500",
        "--rates",
        "500",
        "--latency-rate",
        "500",
    ]);
    packets.args(["--rounds", "1", "--levels", "baseline,1,2", "--report", folder]);
    let out = packets.output().unwrap();
    assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
}

/// Checks a page of both figures.
fn check_page(file: &Path) {
    let page = std::fs::read_to_string(file).unwrap();
    // Four of packets, five of programs.
    assert_eq!((page.matches("<svg").count(), page.matches("<table>").count()), (9, 3), "{page}");
    for row in
        ["p2v, packets/s: level 2 over baseline<td>2: nearly 0.4 Mpps over nearly 0.2 Mpps", "p2v, 64 B<td>2"]
    {
        assert!(page.contains(row), "{row} is missing: {page}");
    }
    let costs = page.split("Where a gain of 1.5 to 2 comes from").nth(1).unwrap();
    // Names of the columns, packets, three workloads.
    assert_eq!(costs.matches("<tr>").count(), 5, "{page}");
    for row in
        ["iperf3, p2v<td>2<td>Mbit<td>", "web, p2v<td>2<td>request<td>", "memcached, p2v<td>2<td>operation"]
    {
        assert!(costs.contains(row), "{row} is missing: {page}");
    }
}

#[test]
fn the_table_has_a_row_for_each_cell() {
    let Some(out) = bench(&["--rounds", "1", "--tenants", "4", "--levels", "2"]) else { return };
    let text = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
    let [_, names, rows @ ..] = &lines[..] else { panic!("{text}") };
    for name in
        ["workload", "by_tenant", "jain", "ratio", "p50_us", "p90_us", "p99_us", "busy_cores", "memory_mb"]
    {
        assert!(names.split_whitespace().any(|word| word == name), "{name} is missing: {text}");
    }
    let workloads: Vec<_> = rows.iter().filter_map(|row| row.split_whitespace().next()).collect();
    assert_eq!(workloads, ["iperf3", "web", "memcached"], "{text}");
}

#[test]
fn a_run_goes_on_with_what_its_file_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results");
    let words = ["--rounds", "1", "--json", "--levels", "2", "--tenants", "1", "--resume"];
    let words = [&words[..], &[file.to_str().unwrap()]].concat();
    if bench(&[&words[..], &["--workloads", "web"]].concat()).is_none() {
        return;
    }
    let first = std::fs::read_to_string(&file).unwrap();
    assert_eq!(first.lines().count(), 2, "{first}");
    // As if it had been interrupted while it wrote.
    std::fs::write(&file, format!("{first}{{\"round\":1,\"work")).unwrap();
    let out = bench(&[&words[..], &["--workloads", "web,memcached"]].concat()).unwrap();
    assert_eq!(report(&out)["cells"].as_array().unwrap().len(), 2);
    let second = std::fs::read_to_string(&file).unwrap();
    assert_eq!(second.lines().count(), 3, "{second}");
    assert!(second.starts_with(&first), "the first cell was measured again: {second}");
    let other = command(&[&words[..], &["--page", "5"]].concat()).output().unwrap();
    let error = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && error.contains("--page 11300"), "{error}");
}

/// Returns the state of a process (proc(5)); `None` if there is none.
fn state(pid: i64) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split(' ').next()?.to_owned())
}

#[test]
fn an_interrupted_run_leaves_no_program() {
    if !can_run() {
        return;
    }
    let words = ["--workloads", "web", "--levels", "2", "--rounds", "1", "--seconds", "60"];
    let _beside_others = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    let mut bench = command.args(["bench", "workloads"]).args(words).spawn().unwrap();
    let name = |pid: &i64| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let programs = || {
        let all = process::children(bench.id().into());
        all.into_iter().filter(|pid| ["wrk\n", "nginx\n"].contains(&&*name(pid))).collect::<Vec<_>>()
    };
    let began = wait_until("two servers and two clients", 120, || programs().len() == 4);
    let programs = programs();
    kill_process(Pid::from_child(&bench), Signal::INT).unwrap();
    let status = bench.wait().unwrap();
    began.unwrap();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status}");
    // Until their new parent looks, they are zombies.
    let is_over = |pid: &i64| state(*pid).is_none_or(|state| state == "Z");
    wait_until("the end of the programs", 30, || programs.iter().all(is_over)).unwrap();
}
