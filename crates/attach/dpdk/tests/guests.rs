//! A real guest, an ordinary Linux in QEMU, on a vhost-user port of the distribution's Open vSwitch
//! with two pairs of queues, and TCP with the world in both directions: with packets of up to 64
//! KiB that the guest leaves to be cut and summed up by others ("TSO"), and without.
//!
//! The world is behind DPDK's `net_tap`, the one device without hardware that cuts such packets. So
//! both directions come from queues that are mediated.

mod common;

use common::daemon::{Cloud, Daemon, Does, text, usable};
use common::switch::{PATIENCE, buffers, last_tally};
use p4shield_frame::ipv4;
use p4shield_testbed::OpenVswitch;
use p4shield_testbed::process::find;
use p4shield_testbed::{Guest, NetNs, wait_until};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const QUEUES: u16 = 2;
const GUEST: [u8; 4] = [10, 0, 1, 1];
const WORLD: &str = "10.0.9.1";
/// The interface of the world, and the port behind it.
const TAP: &str = "world0";

/// The smallest packet, IPv4 header and all, that the program cares for: it carries a part of a message.
const FULL: u16 = 1000;
/// The most that a packet on the wire has. Under load, Linux puts no more than two of them into one.
const ON_THE_WIRE: u16 = 1500;

/// What the program does.
static MOOD: AtomicU8 = AtomicU8::new(PASS);
const PASS: u8 = 0;
/// Another class of service.
const CHANGE: u8 = 1;
/// The same, and four bytes of IPv4 options that say nothing for those that will be cut.
const GROW: u8 = 2;

/// Full packets that were judged: to the guest, and from it.
static FULL_ONES: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
/// Of these, larger than any on the wire.
static LARGE_ONES: AtomicU64 = AtomicU64::new(0);

/// One guest at a time: each test has a polling switch and an emulated machine, which together fill
/// two cores.
static ONE: Mutex<()> = Mutex::new(());

/// Sees Ethernet, IPv4 without options, TCP.
fn program(front: &[u8]) -> Does {
    if front.get(12..15) != Some(&[8, 0, 0x45]) || front.get(23) != Some(&6) {
        return Does::Pass;
    }
    let total = u16::from_be_bytes([front[16], front[17]]);
    if total < FULL {
        return Does::Pass;
    }
    let large = total > ON_THE_WIRE;
    FULL_ONES[usize::from(front[30..34] != GUEST)].fetch_add(1, Ordering::Relaxed);
    LARGE_ONES.fetch_add(large.into(), Ordering::Relaxed);
    let mut new = front.to_vec();
    match MOOD.load(Ordering::Relaxed) {
        GROW if large => {
            new.splice(34..34, [1, 1, 1, 0]);
            new[14] = 0x46;
            new[16..18].copy_from_slice(&(total + 4).to_be_bytes());
        }
        GROW | CHANGE => {}
        _ => return Does::Pass,
    }
    new[15] = 0x28;
    ipv4::set_checksum(&mut new[14..]);
    Does::Rewrite(new)
}

/// What both ends send: no two parts are alike.
fn message() -> Vec<u8> {
    (0..150_000_u32).flat_map(u32::to_be_bytes).collect()
}

/// A switch with a guest on it, both of which have been started.
struct Scene {
    guest: Guest,
    switch: OpenVswitch,
    host: NetNs,
    socket: PathBuf,
}

impl Scene {
    fn new(cloud: &Cloud, tso: bool) -> Self {
        let host = NetNs::create("host").unwrap();
        let socket = cloud.file("guest.sock");
        let setup = Guest::setup().program(&find("ethtool").unwrap()).file("/message", &message());
        let guest = setup.network(&socket, "52:54:00:00:01:01").queues(QUEUES).start().unwrap();
        let environment = cloud.environment().into_iter();
        let setup = environment.fold(OpenVswitch::over_dpdk(), |setup, (name, value)| setup.env(name, value));
        let switch = setup.other_config("userspace-tso-enable", &tso.to_string()).start(&host).unwrap();
        // It wants as many queues to receive as to transmit, and Open vSwitch transmits from its
        // main thread, too.
        let line = format!("add-port {} world -- set Interface world type=dpdk", OpenVswitch::BRIDGE);
        let options =
            [format!("options:dpdk-devargs=net_tap_world,iface={TAP}"), format!("options:n_rxq={QUEUES}")];
        let words: Vec<_> = line.split(' ').chain(options.iter().map(String::as_str)).collect();
        switch.vsctl(&words).unwrap();
        host.ip(&format!("addr add {WORLD}/16 dev {TAP}")).unwrap();
        host.ip(&format!("link set {TAP} up")).unwrap();
        switch.add_vhost_client("guest", &socket).unwrap();
        let mut scene = Self { guest, switch, host, socket };
        scene.guest.wait_booted().unwrap();
        let up = "ip addr add 10.0.1.1/16 dev eth0 && ip link set eth0 up";
        scene.guest.must(&format!("{up} && ethtool -L eth0 combined {QUEUES}")).unwrap();
        scene
    }

    fn wait_ping(&mut self) {
        let mut said = String::new();
        wait_until("a ping from the guest", PATIENCE, || {
            let outcome = self.guest.run(&format!("ping -c1 -W1 {WORLD}"), PATIENCE).unwrap();
            said = outcome.output;
            outcome.code == 0
        })
        .unwrap_or_else(|e| self.explain(&format!("{e}: {said}")));
    }

    /// In the pool that the ports share.
    fn free_buffers(&self) -> u64 {
        buffers(&self.switch.appctl(&["netdev-dpdk/get-mempool-info", "guest"]).unwrap())
    }

    fn explain(&mut self, what: &str) -> ! {
        let line = "ip -s link show eth0; ip neigh; ethtool -S eth0; netstat -tn; ls -l /got; ps";
        let state = self.guest.run(line, PATIENCE);
        let ports = self.switch.appctl(&["dpctl/show", "-s"]);
        panic!("{what}\n{state:?}\n{ports:?}\n{}", self.switch.log())
    }

    /// The guest connects from this processor, and with it from this queue; each end sends the
    /// other the message.
    fn exchange(&mut self, listener: &TcpListener, processor: u16, mood: u8) {
        MOOD.store(mood, Ordering::Relaxed);
        let port = listener.local_addr().unwrap().port();
        let line = format!("taskset {} nc {WORLD} {port} </message >/got", 1 << processor);
        // In the background, so that a guest that does not get there is told by what came.
        let judged = "cmp /message /got >/end.new 2>&1; ls -l /got >>/end.new; mv /end.new /end";
        self.guest.must(&format!("rm -f /end; ({line} 2>/nc; {judged}) &")).unwrap();
        let mut accepted = None;
        wait_until("a connection from the guest", PATIENCE, || {
            accepted = listener.accept().ok();
            accepted.is_some()
        })
        .unwrap_or_else(|e| self.explain(&e.to_string()));
        let (end, received) = talk(accepted.unwrap().0);
        if !(end.is_ok() && received == message()) {
            self.explain(&format!("{mood}: {end:?} after {} bytes from the guest", received.len()));
        }
        // What is on its way to the guest waits in this host's socket until a busy machine has delivered it.
        let mut told = String::new();
        wait_until("the guest's end of it", 3 * PATIENCE, || {
            told = self.guest.run("cat /end /nc", PATIENCE).unwrap().output;
            told.contains(" /got")
        })
        .unwrap_or_else(|e| self.explain(&format!("{mood}: {e}: {told}")));
        // What `cmp` has to say comes first.
        if !told.starts_with('-') {
            self.explain(&format!("{mood}: what came to the guest is not what was sent: {told}"));
        }
    }

    /// Takes everything down, and has each packet accounted for.
    fn end(mut self, daemon: &Daemon) {
        drop(self.guest);
        // Removing a port while Open vSwitch still hears of its guest's end would make it wait for itself.
        let ended = format!("'{}' connection has been destroyed", text(&self.socket));
        wait_until("the guest's end", PATIENCE, || self.switch.log().contains(&ended)).unwrap();
        daemon.wait_lanes(QUEUES.into());
        for port in ["guest", "world"] {
            self.switch.remove(port).unwrap();
        }
        daemon.wait_lanes(0);
        let status = self.switch.stop().unwrap();
        let log = self.switch.log();
        assert!(status.success(), "{status}\n{log}");
        for port in [text(&self.socket).as_str(), "net_tap_world"] {
            for queue in 0..QUEUES.into() {
                let [received, returned, freed, refused, held] = last_tally(&log, port, queue);
                assert_eq!((returned + freed, refused, held), (received, 0, 0), "{port} {queue}");
            }
        }
    }
}

/// Sends the message and hears what the other end says meanwhile.
fn talk(mut stream: TcpStream) -> (std::io::Result<usize>, Vec<u8>) {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(PATIENCE))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(PATIENCE))).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        writer.write_all(&message()).and_then(|()| writer.shutdown(Shutdown::Write))
    });
    let mut received = Vec::new();
    let end = stream.read_to_end(&mut received);
    (end.and_then(|n| sender.join().expect("no panic").map(|()| n)), received)
}

/// Both ends exchange a message over each queue and mood, which takes large packets if these are there.
fn assert_all_judged_and_intact(tso: bool, moods: &[u8]) {
    let ethtool = find("ethtool").map(drop).ok_or_else(|| "ethtool is missing".to_owned());
    if !usable(ethtool.and_then(|()| OpenVswitch::usable()).and_then(|()| Guest::usable())) {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cloud = Cloud::new("10s", "");
    let daemon = cloud.daemon(program);
    let mut scene = Scene::new(&cloud, tso);
    let offloads = scene.guest.must("ethtool -k eth0").unwrap();
    for feature in ["tcp-segmentation-offload", "tx-checksumming"] {
        let on = offloads.contains(&format!("{feature}: on"));
        assert_eq!(on, tso, "{feature}\n{offloads}");
    }
    daemon.wait_lanes(2 * usize::from(QUEUES));
    scene.wait_ping();
    // What a guest says by itself when it has just come up is on its way for a moment.
    let (mut free, mut same) = (0, 0);
    wait_until("a switch at rest", PATIENCE, || {
        let now = scene.free_buffers();
        same = if now == free { same + 1 } else { 0 };
        free = now;
        same == 20
    })
    .unwrap();

    let listener = scene.host.inside(|| TcpListener::bind((WORLD, 0))).unwrap();
    listener.set_nonblocking(true).unwrap();
    for mood in moods {
        for processor in 0..QUEUES {
            let counts = || {
                let full = FULL_ONES.each_ref().map(|n| n.load(Ordering::Relaxed));
                (full, LARGE_ONES.load(Ordering::Relaxed))
            };
            let (full, large) = counts();
            scene.exchange(&listener, processor, *mood);
            let (now, now_large) = counts();
            assert!(now[0] > full[0] && now[1] > full[1], "{mood}: not judged in both directions");
            assert_eq!(now_large > large, tso, "{mood}: large packets");
        }
    }
    let sent = scene.guest.must("ethtool -S eth0").unwrap();
    for queue in 0..QUEUES {
        assert!(!sent.contains(&format!("tx_queue_{queue}_packets: 0\n")), "{queue} sent nothing:\n{sent}");
    }
    wait_until("each packet's buffer", PATIENCE, || scene.free_buffers() == free)
        .unwrap_or_else(|e| panic!("{e}: {} of {free}", scene.free_buffers()));
    scene.end(&daemon);
}

#[test]
fn large_packets_of_all_guest_queues_are_judged_whole() {
    assert_all_judged_and_intact(true, &[PASS, CHANGE, GROW]);
}

#[test]
fn a_multi_queue_guest_without_tso_is_judged() {
    assert_all_judged_and_intact(false, &[PASS, CHANGE]);
}
