//! The whole of P4 Shield with a real guest: an ordinary Linux in QEMU, on a vhost-user port of an unmodified Open
//! vSwitch over DPDK, with agent and auditor inside, which reach their pages through ivshmem devices.

mod cloud;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use cloud::{Attached, Cloud};
use p4shield_testbed::wait_until;

/// A switch that consults nobody, in a cloud that says it does: information arrives and the log runs, and the auditor
/// in the guest still sees that no packet went through the program.
#[test]
fn pages_cross_into_a_guest_and_a_plain_switch_is_found_out() {
    if let Err(why) = Cloud::usable(Attached::No) {
        println!("skipped: {why}");
        return;
    }
    let mut cloud = Cloud::start(Attached::No);
    // Before anybody publishes: what this writes is a forgery to the P4 VM.
    let measured =
        cloud.guest.must("p4shield agent measure --times 200 --info-page pci:0000:00:05.0").unwrap();
    println!("{measured}");
    for mapping in ["device, uncached", "device, write-combining"] {
        assert!(measured.contains(mapping), "{measured}");
    }
    let confused = cloud.guest.run("p4shield agent measure --info-page pci:0000:00:06.0", 60).unwrap();
    assert!(confused.code != 0 && confused.output.contains("confused"), "{confused:?}");
    cloud.start_agent();
    assert!(cloud.vm()["info"]["forged"].as_u64().unwrap() > 0, "{:#}", cloud.status());
    cloud.start_audit();
    wait_until("a ping to the guest", 60, || cloud.ping()).unwrap();
    let summary = cloud.end_audit();
    assert_eq!(summary["exit_code"], 10, "{summary:#}");
    assert_eq!(summary["findings"][0]["finding"], "bypassed", "{summary:#}");
}

/// The seed experiment of P4 Shield, with every part real: while the guest's TCP memory is short, new connections to
/// it are denied in the switch, and those that are established stay.
#[test]
fn a_guest_sheds_new_connections_while_its_tcp_memory_is_short() {
    if let Err(why) = Cloud::usable(Attached::Dpdk) {
        println!("skipped: {why}");
        return;
    }
    let mut cloud = Cloud::start(Attached::Dpdk);
    cloud.start_agent();
    cloud.start_audit();
    cloud.serve();
    let mut established = cloud.connected(7);
    echo(&mut established);

    let mut hogs: Vec<TcpStream> = (0..4).map(|_| cloud.connected(9)).collect();
    hogs.iter_mut().for_each(fill);
    let denied =
        || cloud.connect(7).is_none() && cloud.vm()["ingress"]["judged"] != cloud.vm()["ingress"]["passed"];
    wait_until("denial of new connections", 60, denied).unwrap();
    echo(&mut established);

    drop(hogs);
    cloud.stop_hogs();
    echo(&mut cloud.connected(7));
    echo(&mut established);

    let summary = cloud.end_audit();
    assert_eq!(summary["exit_code"], 0, "{summary:#}\n{:#}", cloud.status());
    assert!(summary["standing"]["ingress"]["verified"].as_u64().unwrap() > 10, "{summary:#}");

    cloud.start_audit();
    (0..3).for_each(|number| cloud.smuggle(number));
    echo(&mut established);
    let summary = cloud.end_audit();
    assert_eq!(summary["exit_code"], 10, "{summary:#}");
    assert_eq!(summary["findings"][0]["finding"], "bypassed", "{summary:#}");
}

/// Says something and hears it back.
fn echo(stream: &mut TcpStream) {
    stream.write_all(b"are you there?").unwrap();
    let mut answer = [0; 14];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"are you there?");
}

/// Sends until the other end takes no more.
fn fill(stream: &mut TcpStream) {
    stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    let block = [0; 1 << 16];
    for _ in 0..64 {
        match stream.write(&block) {
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return,
            Err(e) => panic!("{e}"),
        }
    }
}
