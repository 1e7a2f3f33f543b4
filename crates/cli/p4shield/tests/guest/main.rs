//! P4 Shield with a real guest: an ordinary Linux in QEMU, on a vhost-user port of an unmodified Open vSwitch
//! over DPDK. Agent and auditor run in the guest, installed from the Debian packages, and reach their pages
//! through ivshmem devices.

mod cloud;
#[path = "../common/mod.rs"]
mod common;
mod installed;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use cloud::{Attached, Cloud};
use p4shield_testbed::wait_until;
use serde_json::Value;

/// One guest at a time: each test has a polling switch and an emulated machine, which together fill two
/// cores.
static ONE: Mutex<()> = Mutex::new(());

/// The switch does not load the library, although the cloud claims it does: information arrives and the log
/// runs, and the auditor in the guest still finds that no packet went through the program.
#[test]
fn an_auditor_in_a_guest_exposes_a_plain_switch() {
    if let Err(why) = Cloud::usable(Attached::No) {
        p4shield_need::skip("guest", why);
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cloud = Cloud::start(Attached::No);
    // Before the agent publishes: to the P4 VM, what this command writes is a forgery.
    let measured =
        cloud.guest.must("p4shield agent measure --times 200 --info-page pci:0000:00:05.0").unwrap();
    println!("{measured}");
    for mapping in ["device, uncached", "device, write-combining"] {
        assert!(measured.contains(mapping), "{measured}");
    }
    let confused = cloud.guest.run("p4shield agent measure --info-page pci:0000:00:06.0", 60).unwrap();
    assert!(confused.code != 0 && confused.output.contains("swapped"), "{confused:?}");
    cloud.start_agent();
    assert!(cloud.vm()["info"]["forged"].as_u64().unwrap() > 0, "{:#}", cloud.status());
    cloud.restart_daemon();
    cloud.wait_known();
    cloud.start_audit();
    // Where the guest's kernel sent a packet of its own while the audit began, the next ones may belong to
    // records before it, so that the auditor reports them as unaudited. Those of later records bypassed the
    // program.
    for _ in 0..6 {
        wait_until("a ping to the guest", 60, || cloud.ping()).unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
    let summary = cloud.end_audit();
    assert_eq!(blames(&summary), ["bypassed", "bypassed"], "both ways: {summary:#}");
}

/// The main experiment of the P4 Shield paper: while the guest's TCP memory is short, the program denies new
/// connections to it in the switch, and established ones stay.
#[test]
fn a_guest_sheds_new_connections_while_its_tcp_memory_is_short() {
    if let Err(why) = Cloud::usable(Attached::Dpdk) {
        p4shield_need::skip("guest", why);
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cloud = Cloud::start(Attached::Dpdk);
    assert_mediated(&cloud);
    cloud.start_agent();
    cloud.start_audit();
    cloud.serve();
    let mut established = cloud.connected(7);
    echo(&mut established);

    // All are connected before the first fills the memory.
    let connected: Vec<TcpStream> = (0..4).map(|_| cloud.connected(9)).collect();
    let hogs: Vec<Hog> = connected.into_iter().map(Hog::new).collect();
    wait_until("denial of new connections", 60, || {
        cloud.connect(7).is_none() && dropped_by_program(&cloud) > 0
    })
    .unwrap_or_else(|e| panic!("{e}\n{:#}", cloud.status()));
    echo(&mut established);

    drop(hogs);
    cloud.stop_hogs();
    echo(&mut cloud.connected(7));
    echo(&mut established);

    let summary = cloud.end_audit();
    assert!(blames(&summary).is_empty(), "{summary:#}\n{:#}", cloud.status());
    for direction in ["ingress", "egress"] {
        let standing = &summary["standing"][direction];
        assert!(standing["aligned"] == true && standing["verified"].as_u64().unwrap() > 10, "{summary:#}");
    }

    // What the switch sends of its own accord is judged where it leaves for the guest.
    let passed = |cloud: &Cloud| cloud.vm()["ingress"]["passed"].as_u64().unwrap();
    let before = passed(&cloud);
    cloud.start_audit();
    (0..3).for_each(|number| cloud.smuggle(number));
    echo(&mut established);
    wait_until("the smuggled packets' verdicts", 60, || passed(&cloud) >= before + 4)
        .unwrap_or_else(|e| panic!("{e}: {before}\n{:#}", cloud.status()));
    let summary = cloud.end_audit();
    assert!(blames(&summary).is_empty(), "{summary:#}");
}

/// Asserts that every port of the switch is mediated in its role.
fn assert_mediated(cloud: &Cloud) {
    let status = cloud.status();
    let ports = status["switches"][0]["ports"].as_array().unwrap();
    let mut roles: Vec<&str> =
        ports.iter().filter(|p| p["mediated"] == true).filter_map(|p| p["role"].as_str()).collect();
    roles.sort_unstable();
    assert_eq!(roles, ["uplink", "vm"], "{status:#}");
}

/// Returns the findings of a summary. On a loaded machine packets may miss their deadline and a record may be
/// late; any other finding needs an attack.
fn blames(summary: &Value) -> Vec<&str> {
    let kinds = summary["findings"].as_array().unwrap().iter().filter_map(|f| f["finding"].as_str());
    kinds.filter(|kind| !["withheld", "log_delayed", "log_stopped", "unrecorded"].contains(kind)).collect()
}

/// Returns the number of packets to the guest that the tenant's program dropped.
fn dropped_by_program(cloud: &Cloud) -> u64 {
    let vm = cloud.vm();
    let reasons = vm["ingress"]["dropped"].as_array().cloned().unwrap_or_default();
    reasons.iter().filter(|r| r[0] == "program").filter_map(|r| r[1].as_u64()).sum()
}

/// Sends a message and receives its echo.
fn echo(stream: &mut TcpStream) {
    stream.write_all(b"are you there?").unwrap();
    let mut answer = [0; 14];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"are you there?");
}

/// A connection that sends until the receiver's window is closed. It never sends more at once than the queue
/// of an emulated guest holds: a packet that the switch drops there would rightly end the audit's certainty.
struct Hog {
    stream: TcpStream,
    thread: Option<JoinHandle<()>>,
}

impl Hog {
    fn new(stream: TcpStream) -> Self {
        let mut writer = stream.try_clone().unwrap();
        let thread = std::thread::spawn(move || {
            while writer.write_all(&[0; 1 << 14]).is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self { stream, thread: Some(thread) }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
