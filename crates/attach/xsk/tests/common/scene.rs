//! Two VMs and the host between them, as network namespaces.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use p4shield_testbed::process::run;
use p4shield_testbed::{NetNs, wait_until};

/// A namespace with the interfaces `s0` and `s1`, whose other ends are `eth0` of two others with addresses.
pub(crate) struct Scene {
    pub(crate) host: NetNs,
    pub(crate) one: NetNs,
    pub(crate) two: NetNs,
}

/// Addresses of the two VMs.
pub(crate) const ONE: &str = "10.9.3.1";
pub(crate) const TWO: &str = "10.9.3.2";

impl Scene {
    pub(crate) fn new() -> Self {
        let [host, one, two] = ["xsk", "one", "two"].map(|n| NetNs::create(n).unwrap());
        for (ns, port, address) in [(&one, "s0", ONE), (&two, "s1", TWO)] {
            host.veth(port, ns, "eth0").unwrap();
            ns.send_whole_packets("eth0").unwrap();
            ns.ip(&format!("addr add {address}/24 dev eth0")).unwrap();
        }
        Self { host, one, two }
    }

    /// Sets the MTU of every interface.
    pub(crate) fn lengthen(&self, mtu: u32) {
        for (ns, interface) in
            [(&self.host, "s0"), (&self.host, "s1"), (&self.one, "eth0"), (&self.two, "eth0")]
        {
            ns.ip(&format!("link set {interface} mtu {mtu}")).unwrap();
        }
    }

    pub(crate) fn ping(&self) -> bool {
        run(self.one.command("ping").args(["-c1", "-W2", TWO])).is_ok()
    }

    pub(crate) fn wait_ping(&self) {
        wait_until("a ping", 60, || self.ping()).unwrap();
    }

    /// Sends `sizes` bytes over one connection each, all at once, and checks that they return unchanged.
    pub(crate) fn echo(&self, sizes: &[usize]) {
        let listener = self.two.inside(|| TcpListener::bind((TWO, 0)).unwrap());
        let to = listener.local_addr().unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in sizes {
                    let mut stream = accept(&listener);
                    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                    s.spawn(move || {
                        let mut back = stream.try_clone().unwrap();
                        std::io::copy(&mut stream, &mut back).unwrap();
                        back.shutdown(std::net::Shutdown::Write).unwrap();
                    });
                }
            });
            for &size in sizes {
                s.spawn(move || {
                    let stream =
                        self.one.inside(|| TcpStream::connect_timeout(&to, Duration::from_secs(60)).unwrap());
                    exchange(stream, size);
                });
            }
        });
    }
}

/// Accepts a connection, with a time limit.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut accepted = None;
    let some = wait_until("a connection", 90, || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    some.unwrap();
    let (stream, _) = accepted.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
}

fn exchange(mut stream: TcpStream, size: usize) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let sent: Vec<u8> = (0..size).map(|n| (n / 7 * 31) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            writer.write_all(&sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(got == sent, "{size} bytes came back as {} others", got.len());
    });
}
