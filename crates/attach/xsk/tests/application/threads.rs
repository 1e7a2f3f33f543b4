//! Two threads for one socket: one sleeps in `poll` while the other moves the packets it waits for.

use std::fs::File;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::daemon::Cloud;
use crate::common::library;
use crate::common::scene::{ONE, Scene, TWO};
use p4shield_testbed::{Guarded, process, wait_until};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/application/pollers.c");

#[test]
fn a_sleeping_thread_wakes_for_another_threads_packets() {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    if !Path::new("/usr/include/xdp/xsk.h").is_file() {
        p4shield_need::skip("libxdp-headers", "libxdp's headers (package libxdp-dev) are not installed");
        return;
    }
    let (scene, cloud) = (Scene::new(), Cloud::new("drop", "10s"));
    let daemon = cloud.daemon(|_, _| true);
    let folder = tempfile::Builder::new().prefix("p4shield-pollers").tempdir().unwrap();
    let program = folder.path().join("pollers");
    process::run(Command::new("cc").args(["-O2", SOURCE, "-lxdp", "-lpthread", "-o"]).arg(&program)).unwrap();
    let output = folder.path().join("output");
    let mut command = scene.host.command(&program);
    command.arg("s0").env("LD_PRELOAD", library()).env("P4SHIELD_CONFIG", cloud.config());
    command.stdin(Stdio::null()).stdout(File::create(&output).unwrap());
    let _application = Guarded::spawn(&mut command).unwrap();
    daemon.wait_lanes(1);
    // The second VM is only an address.
    scene.one.ip(&format!("neigh replace {TWO} lladdr 02:00:00:00:00:02 dev eth0")).unwrap();
    let socket = scene.one.inside(|| UdpSocket::bind((ONE, 0)).unwrap());
    let got = || {
        let text = std::fs::read_to_string(&output).unwrap();
        let last = text.lines().filter_map(|l| l.strip_prefix("got ")?.parse::<u64>().ok()).next_back();
        last.unwrap_or(0)
    };
    // Packets that come before the P4 VM are dropped.
    wait_until("a first packet", 60, || socket.send_to(&[0], (TWO, 9)).is_ok() && got() > 0).unwrap();
    for _ in 0..200 {
        let before = got();
        socket.send_to(&[0], (TWO, 9)).unwrap();
        wait_until("the thread that sleeps", 30, || got() > before).unwrap();
    }
}
