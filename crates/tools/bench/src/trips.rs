//! Requests and responses, and floods, between sockets in two network namespaces.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Context;
use p4shield_testbed::NetNs;

use crate::cores;
use crate::protocol::Protocol;

/// A response that takes longer counts as lost; the client repeats the request.
pub(crate) const LOST: Duration = Duration::from_millis(200);
/// Number of round trips that may be lost, besides a tenth of all.
const TOLERATED: usize = 20;
/// Extra time for a flood of which nothing arrives.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time in which a connection, or a response on it, must arrive.
const CONNECT: Duration = Duration::from_secs(60);
/// The longest payload of a datagram over IPv4.
pub(crate) const LONGEST_DATAGRAM: u32 = 65_507;
/// Most bytes that a flood's receiver reads at once.
const READ: usize = 256 << 10;

/// Client and server.
#[derive(Clone, Copy)]
pub(crate) struct Endpoints<'w> {
    pub(crate) client: (&'w NetNs, Ipv4Addr),
    pub(crate) server: (&'w NetNs, Ipv4Addr),
    /// The core of all their threads; default: any.
    pub(crate) core: Option<usize>,
}

impl Endpoints<'_> {
    /// Measures `count` round trips of a message of this many bytes, in microseconds.
    pub(crate) fn trips(&self, protocol: Protocol, count: usize, message: usize) -> anyhow::Result<Vec<f64>> {
        match protocol {
            Protocol::Udp => self.udp_trips(count, message),
            Protocol::Tcp => self.tcp_trips(count, message),
        }
        .with_context(|| format!("requests and responses over {}", crate::name(protocol)))
    }

    /// Measures the million bits per second that arrive while the client sends messages at full speed.
    pub(crate) fn flood(&self, protocol: Protocol, message: usize, time: Duration) -> anyhow::Result<f64> {
        match protocol {
            Protocol::Udp => self.udp_flood(message, time),
            Protocol::Tcp => self.tcp_flood(message, time),
        }
        .with_context(|| format!("a flood over {}", crate::name(protocol)))
    }

    fn settle(&self) {
        if let Some(core) = self.core {
            cores::pin(core);
        }
    }

    /// Opens the client's connected datagram socket and the server's.
    fn datagrams(&self) -> io::Result<(UdpSocket, UdpSocket)> {
        let ((client, from), (server, to)) = (self.client, self.server);
        let server = server.inside(|| UdpSocket::bind((to, 0)))?;
        let client = client.inside(|| UdpSocket::bind((from, 0)))?;
        client.connect(server.local_addr()?)?;
        client.set_read_timeout(Some(LOST))?;
        server.set_read_timeout(Some(LOST))?;
        Ok((client, server))
    }

    /// Opens both ends of a connection.
    fn connection(&self) -> io::Result<(TcpStream, TcpStream)> {
        let ((client, _), (server, to)) = (self.client, self.server);
        let listener = server.inside(|| TcpListener::bind((to, 0)))?;
        let to: SocketAddr = listener.local_addr()?;
        let client = client.inside(|| TcpStream::connect_timeout(&to, CONNECT))?;
        let (server, _) = listener.accept()?;
        Ok((client, server))
    }

    fn udp_trips(&self, count: usize, message: usize) -> io::Result<Vec<f64>> {
        let (client, server) = self.datagrams()?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                self.settle();
                let mut buffer = vec![0; message];
                while !stop.load(Relaxed) {
                    if let Ok((n, from)) = server.recv_from(&mut buffer) {
                        let _ = server.send_to(&buffer[..n], from);
                    }
                }
            });
            let times = self.on_its_core(|| {
                let mut buffer = vec![0; message];
                trips(count, TOLERATED + count / 10, |n| {
                    // The number distinguishes a late response from the response to the next request.
                    let number = n as u8;
                    buffer.iter_mut().take(1).for_each(|b| *b = number);
                    client.send(&buffer)?;
                    while client.recv(&mut buffer)? == 0 || buffer[0] != number {}
                    Ok(())
                })
            });
            stop.store(true, Relaxed);
            times
        })
    }

    fn tcp_trips(&self, count: usize, message: usize) -> io::Result<Vec<f64>> {
        let (mut client, mut server) = self.connection()?;
        client.set_nodelay(true)?;
        client.set_read_timeout(Some(CONNECT))?;
        server.set_nodelay(true)?;
        std::thread::scope(|s| {
            s.spawn(move || {
                self.settle();
                let mut buffer = vec![0; message];
                while server.read_exact(&mut buffer).is_ok() && server.write_all(&buffer).is_ok() {}
            });
            let times = self.on_its_core(|| {
                let mut buffer = vec![0; message];
                trips(count, 0, |_| {
                    client.write_all(&buffer)?;
                    client.read_exact(&mut buffer)
                })
            });
            client.shutdown(std::net::Shutdown::Both)?;
            times
        })
    }

    fn udp_flood(&self, message: usize, time: Duration) -> io::Result<f64> {
        let (client, server) = self.datagrams()?;
        let (stop, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|s| {
            s.spawn(|| {
                self.settle();
                let mut buffer = vec![0; message];
                while !stop.load(Relaxed) {
                    let n = server.recv(&mut buffer).unwrap_or_default();
                    arrived.fetch_add(n as u64, Relaxed);
                }
            });
            s.spawn(|| {
                self.settle();
                let buffer = vec![0; message];
                while !stop.load(Relaxed) {
                    // Fails while a queue is full; the datagram is then simply not sent.
                    let _ = client.send(&buffer);
                }
            });
            let mbps = watch(&arrived, time);
            stop.store(true, Relaxed);
            Ok(mbps)
        })
    }

    fn tcp_flood(&self, message: usize, time: Duration) -> io::Result<f64> {
        let (client, mut server) = self.connection()?;
        client.set_write_timeout(Some(LOST))?;
        let (stop, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|s| {
            s.spawn(|| {
                self.settle();
                let mut buffer = vec![0; READ];
                while let Ok(n @ 1..) = server.read(&mut buffer) {
                    arrived.fetch_add(n as u64, Relaxed);
                }
            });
            s.spawn(|| {
                self.settle();
                let buffer = vec![0; message];
                while !stop.load(Relaxed) {
                    // Bytes that do not fit in time are not sent; all bytes of the stream are equal.
                    let _ = (&client).write(&buffer);
                }
                let _ = client.shutdown(std::net::Shutdown::Both);
            });
            let mbps = watch(&arrived, time);
            stop.store(true, Relaxed);
            Ok(mbps)
        })
    }

    /// Runs `f` on a thread that is bound to the core.
    fn on_its_core<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|s| {
            let thread = s.spawn(|| {
                self.settle();
                f()
            });
            thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
        })
    }
}

/// Measures million bits per second from a counter of bytes, after a quarter of `time` as warm-up. If nothing
/// arrives in time, waits longer, so that the figure is not zero.
fn watch(arrived: &AtomicU64, time: Duration) -> f64 {
    std::thread::sleep(time / 4);
    let (start, before) = (Instant::now(), arrived.load(Relaxed));
    std::thread::sleep(time);
    while arrived.load(Relaxed) == before && start.elapsed() < time + PATIENCE {
        std::thread::sleep(time / 4);
    }
    let bytes = arrived.load(Relaxed) - before;
    bytes as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e6
}

/// Times `count` round trips, after a tenth as many for warm-up. Lost ones are not samples; too many are an
/// error.
fn trips(
    count: usize,
    tolerated: usize,
    mut trip: impl FnMut(usize) -> io::Result<()>,
) -> io::Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    let mut lost = 0;
    let warm_up = count / 10;
    for i in 0..count + warm_up {
        let start = Instant::now();
        match trip(i) {
            Ok(()) if i >= warm_up => times.push(start.elapsed().as_nanos() as f64 / 1e3),
            Ok(()) => {}
            Err(_) if lost < tolerated => lost += 1,
            Err(e) => return Err(e),
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_lost_round_trips_are_skipped_and_many_fail() {
        let mut n = 0;
        let some = trips(100, TOLERATED, |_| {
            n += 1;
            if n % 10 == 0 { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
        });
        assert_eq!(some.unwrap().len(), 90);
        assert!(trips(100, TOLERATED, |_| Err(io::ErrorKind::TimedOut.into())).is_err());
    }
}
