//! The namespaces of the tests, and the thread that forwards between the two ports.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use p4shield_afxdp::{FrameCounts, Mode, Socket, SocketConfig, Umem, UmemConfig};
use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts, Error, PortStatus};
use p4shield_switch::{BATCH, PacketIo};
use p4shield_testbed::process::run;
use p4shield_testbed::{Guarded, NetNs, wait_until};

const LEFT: &str = "10.7.0.1";
pub(crate) const RIGHT: &str = "10.7.0.2";

/// Returns whether tests with network namespaces can run, and reports the reason if not.
pub(crate) fn usable() -> bool {
    p4shield_testbed::usable().map_err(|why| p4shield_need::skip("machine", why)).is_ok()
}

/// Two hosts with a veth each, whose other ends `p0` and `p1` are to be ports.
pub(crate) struct Scene {
    pub(crate) left: NetNs,
    pub(crate) right: NetNs,
    pub(crate) host: Arc<NetNs>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with_queues(1)
    }

    pub(crate) fn with_queues(queues: u32) -> Self {
        let [host, left, right] = ["ioh", "iol", "ior"].map(|n| NetNs::create(n).unwrap());
        let count = format!("numrxqueues {queues} numtxqueues {queues}");
        for (port, ns, address) in [("p0", &left, LEFT), ("p1", &right, RIGHT)] {
            // Else the kernel sends while ports are opened, and a frame without a socket is counted.
            ns.disable_ipv6().unwrap();
            let name = ns.name();
            host.ip(&format!("link add {port} {count} type veth peer name eth0 {count} netns {name}"))
                .unwrap();
            host.ip(&format!("link set {port} up")).unwrap();
            ns.ip("link set eth0 up").unwrap();
            ns.ip(&format!("addr add {address}/24 dev eth0")).unwrap();
        }
        Self { left, right, host: Arc::new(host) }
    }

    /// Runs `ip` on the host.
    pub(crate) fn host(&self, words: &str) -> String {
        self.host.ip(words).unwrap()
    }

    /// Returns whether one of three pings is answered.
    pub(crate) fn pings(&self) -> bool {
        run(self.left.command("ping").args(["-c3", "-i0.05", "-W1", RIGHT])).is_ok()
    }

    pub(crate) fn wait_forwarding(&self) {
        wait_until("a ping through the ports", 10, || self.pings()).unwrap();
    }

    /// Sends 20 MB with iperf3 and these options.
    pub(crate) fn transfer(&self, options: &[&str]) {
        let mut server = self.right.command("iperf3");
        let mut server =
            Guarded::spawn(server.args(["--server", "--one-off"]).stdout(Stdio::null())).unwrap();
        let client = || {
            let mut client = self.left.command("iperf3");
            client.args(["--client", RIGHT, "--bytes", "20M", "--connect-timeout", "1000"]).args(options);
            run(&mut client).is_ok()
        };
        wait_until("a transfer with iperf3", 30, client).unwrap();
        wait_until("the server's end", 10, || server.ended().is_some()).unwrap();
    }

    /// Returns the offloads of the ports, as ethtool prints them.
    pub(crate) fn offloads(&self) -> String {
        let show = |port| run(self.host.command("ethtool").args(["-k", port])).unwrap();
        show("p0") + &show("p1")
    }

    /// Opens a socket on queue 0, without an XDP program.
    pub(crate) fn bind_socket(&self, interface: &str) -> Socket {
        let line = self.host(&format!("-o link show {interface}"));
        let index = line.split(':').next().unwrap().parse().unwrap();
        let umem = Umem::new(UmemConfig { frames: 64, frame_size: 2048, huge_pages: false }).unwrap();
        let config = SocketConfig { interface: index, queue: 0, ring: 64, mode: Mode::Copy };
        self.host.inside(|| Socket::bind(&umem, &config)).unwrap()
    }
}

/// The state of the ports before they are closed.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) frames: FrameCounts,
    pub(crate) ports: Vec<PortStatus>,
}

/// A thread that sends every packet of port 0 to port 1, and back.
pub(crate) struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<End, Error>>,
}

impl Forwarder {
    /// Starts it once its ports are open.
    pub(crate) fn start(scene: &Scene, config: AfxdpConfig) -> Result<Self, Error> {
        let (stop, host) = (Arc::new(AtomicBool::new(false)), Arc::clone(&scene.host));
        let (opened, ready) = mpsc::channel();
        let stopped = Arc::clone(&stop);
        let work = move || {
            let mut ports = AfxdpPorts::open(&config)?;
            let _ = opened.send(());
            while !stopped.load(Ordering::Relaxed) {
                forward(&mut ports)?;
            }
            let all =
                (0..ports.ports()).filter_map(|n| ports.status(n).transpose()).collect::<Result<_, _>>();
            Ok(End { frames: ports.frames(), ports: all? })
        };
        let thread = std::thread::spawn(move || host.inside(work));
        match ready.recv() {
            Ok(()) => Ok(Self { stop, thread }),
            Err(_) => Err(thread.join().unwrap().expect_err("it ended before its ports were open")),
        }
    }

    /// Ends it, and closes its ports.
    pub(crate) fn stop(self) -> Result<End, Error> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// One round: a batch of each port, then a short sleep if there was nothing.
pub(crate) fn forward(ports: &mut AfxdpPorts) -> Result<(), Error> {
    let mut received = 0;
    let mut batch: Vec<Vec<u8>> = Vec::new();
    for port in 0..2 {
        received += ports.receive(port, BATCH, |packet| batch.push(packet.to_vec()))?;
        for packet in batch.drain(..) {
            ports.send(1 - port, &packet);
        }
    }
    ports.flush()?;
    if received == 0 { ports.wait(Duration::from_millis(50), None) } else { Ok(()) }
}
