//! Requests and responses between a client and a server on two kernel interfaces of the switch.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use p4shield_testbed::{NetNs, process, wait_until};
use serde::Serialize;

use super::lab::{CLIENT, Lab, SERVER};
use super::shield::Shield;
use super::{Latency, Mode, Options, Protocol};
use crate::Error;
use crate::stats::Percentiles;

/// What the switch forwards besides the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Nothing.
    Idle,
    /// Datagrams at half the rate of which it can carry all.
    Half,
}

impl Load {
    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Half => "half",
        }
    }
}

/// A response that takes longer is lost, and asked for again.
const LOST: Duration = Duration::from_millis(200);
/// Seconds that the first ping may take.
const PATIENCE: u64 = 60;
/// Payload of the datagrams that load the switch.
const LOAD_BYTES: usize = 64;
/// The most messages that [`Load::Half`] sends without a pause.
const LOAD_BURST: u64 = 16;

/// Client, switch and server.
pub(super) struct World {
    pub(super) mode: Mode,
    pub(super) client: NetNs,
    pub(super) server: NetNs,
    _lab: Lab,
    _shield: Shield,
    _host: NetNs,
}

impl World {
    /// Builds it and waits until the first ping is through.
    pub(super) fn start(options: &Options, mode: Mode) -> Result<Self, Error> {
        let [host, client, server] =
            [NetNs::create("bench")?, NetNs::create("client")?, NetNs::create("server")?];
        for (ns, port, address) in [(&client, "s0", CLIENT), (&server, "s1", SERVER)] {
            host.veth(port, ns, "eth0")?;
            ns.ip(&format!("addr add {address}/24 dev eth0"))?;
            ns.send_whole_packets("eth0")?;
        }
        let devices = ["s0", "s1"].map(|s| format!("net_af_packet_{s},iface={s},qpairs=2"));
        let ports = options.switch.port_names(&devices);
        let mut shield = Shield::start(options, mode, &ports)?;
        shield.start_agent(&server)?;
        let lab = Lab::start(options.switch, &host, &shield.environment(), &devices)?;
        let to = SERVER.to_string();
        wait_until("a ping through the switch", PATIENCE, || {
            process::run(client.command("ping").args(["-c1", "-W1", &to])).is_ok()
        })?;
        Ok(Self { mode, client, server, _lab: lab, _shield: shield, _host: host })
    }

    /// Every message size with both protocols on an idle switch, and the first size on a half-loaded one.
    pub(super) fn latencies(&self, options: &Options) -> Result<Vec<Latency>, Error> {
        let mut all = Vec::new();
        for &message in &options.messages {
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                all.push(self.latency(options, protocol, Load::Idle, message)?);
            }
        }
        if let Some(&message) = options.messages.first() {
            let gap = self.half_load()?;
            let stop = AtomicBool::new(false);
            let sender = self.flood_socket()?;
            let under_load: Result<Vec<_>, _> = std::thread::scope(|s| {
                s.spawn(|| send_paced(&sender, gap, &stop));
                let measured = [Protocol::Udp, Protocol::Tcp]
                    .map(|protocol| self.latency(options, protocol, Load::Half, message));
                stop.store(true, Ordering::Relaxed);
                measured.into_iter().collect()
            });
            all.extend(under_load?);
        }
        Ok(all)
    }

    fn latency(
        &self,
        options: &Options,
        protocol: Protocol,
        load: Load,
        message: u32,
    ) -> Result<Latency, Error> {
        let mut micros = match protocol {
            Protocol::Udp => self.udp(options.round_trips, message as usize),
            Protocol::Tcp => self.tcp(options.round_trips, message as usize),
        }
        .map_err(|e| Error::Switch(format!("requests and responses over {}: {e}", protocol.name())))?;
        let micros = Percentiles::of(&mut micros);
        Ok(Latency { mode: self.mode, protocol, load, message, micros, ratio: f64::NAN })
    }

    fn udp(&self, count: usize, message: usize) -> std::io::Result<Vec<f64>> {
        let server = self.server.inside(|| UdpSocket::bind((SERVER, 0)))?;
        let client = self.client.inside(|| UdpSocket::bind((CLIENT, 0)))?;
        client.connect(server.local_addr()?)?;
        client.set_read_timeout(Some(LOST))?;
        server.set_read_timeout(Some(LOST))?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut buffer = vec![0; message];
                while !stop.load(Ordering::Relaxed) {
                    if let Ok((n, from)) = server.recv_from(&mut buffer) {
                        let _ = server.send_to(&buffer[..n], from);
                    }
                }
            });
            let mut buffer = vec![0; message];
            let times = trips(count, || {
                client.send(&buffer)?;
                client.recv(&mut buffer).map(drop)
            });
            stop.store(true, Ordering::Relaxed);
            times
        })
    }

    fn tcp(&self, count: usize, message: usize) -> std::io::Result<Vec<f64>> {
        let listener = self.server.inside(|| TcpListener::bind((SERVER, 0)))?;
        let to: SocketAddr = listener.local_addr()?;
        let mut client =
            self.client.inside(|| TcpStream::connect_timeout(&to, Duration::from_secs(PATIENCE)))?;
        let (mut server, _) = listener.accept()?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        std::thread::scope(|s| {
            s.spawn(move || {
                let mut buffer = vec![0; message];
                while server.read_exact(&mut buffer).is_ok() && server.write_all(&buffer).is_ok() {}
            });
            let mut buffer = vec![0; message];
            let times = trips(count, || {
                client.write_all(&buffer)?;
                client.read_exact(&mut buffer)
            });
            client.shutdown(std::net::Shutdown::Both)?;
            times
        })
    }

    fn flood_socket(&self) -> Result<UdpSocket, Error> {
        let failed = |e: std::io::Error| Error::Switch(format!("cannot load the switch: {e}"));
        let socket = self.client.inside(|| UdpSocket::bind((CLIENT, 0))).map_err(failed)?;
        // Nobody listens at the discard port; the answers that say so are limited by the kernel.
        socket.connect((SERVER, 9)).map_err(failed)?;
        Ok(socket)
    }

    /// The time between two bursts at half of the rate that arrives when the client sends all it can.
    fn half_load(&self) -> Result<Duration, Error> {
        let failed = |e: std::io::Error| Error::Switch(format!("cannot load the switch: {e}"));
        let sink = self.server.inside(|| UdpSocket::bind((SERVER, 0))).map_err(failed)?;
        sink.set_read_timeout(Some(LOST)).map_err(failed)?;
        let source = self.client.inside(|| UdpSocket::bind((CLIENT, 0))).map_err(failed)?;
        source.connect(sink.local_addr().map_err(failed)?).map_err(failed)?;
        let (stop, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
        let time = Duration::from_millis(500);
        std::thread::scope(|s| {
            s.spawn(|| send_paced(&source, Duration::ZERO, &stop));
            s.spawn(|| {
                let mut buffer = [0; LOAD_BYTES];
                while !stop.load(Ordering::Relaxed) {
                    arrived.fetch_add(u64::from(sink.recv(&mut buffer).is_ok()), Ordering::Relaxed);
                }
            });
            std::thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
        });
        let bursts = arrived.load(Ordering::Relaxed).div_ceil(2 * LOAD_BURST).max(1);
        Ok(time / u32::try_from(bursts).unwrap_or(u32::MAX))
    }
}

/// Sends bursts of datagrams `gap` apart until told to stop.
fn send_paced(socket: &UdpSocket, gap: Duration, stop: &AtomicBool) {
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..LOAD_BURST {
            // Refused while nobody listens, or while the queue is full: then it is not sent, which is as good.
            let _ = socket.send(&[0; LOAD_BYTES]);
        }
        next += gap;
        if let Some(wait) = next.checked_duration_since(Instant::now()) {
            std::thread::sleep(wait);
        }
    }
}

/// Times `count` round trips, after a tenth as many that warm up. One that is lost is not a sample; many are an error.
fn trips(count: usize, mut trip: impl FnMut() -> std::io::Result<()>) -> std::io::Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    let mut lost = 0;
    let warm_up = count / 10;
    for i in 0..count + warm_up {
        let start = Instant::now();
        match trip() {
            Ok(()) if i >= warm_up => times.push(start.elapsed().as_nanos() as f64 / 1e3),
            Ok(()) => {}
            Err(_) if lost < 20 => lost += 1,
            Err(e) => return Err(e),
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_round_trips_are_no_samples_and_many_are_an_error() {
        let mut n = 0;
        let some = trips(100, || {
            n += 1;
            if n % 10 == 0 { Err(std::io::ErrorKind::TimedOut.into()) } else { Ok(()) }
        });
        assert_eq!(some.unwrap().len(), 90);
        assert!(trips(100, || Err(std::io::ErrorKind::TimedOut.into())).is_err());
    }
}
