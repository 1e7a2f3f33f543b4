//! Requests and responses, and floods, between sockets in two network namespaces.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use p4shield_testbed::NetNs;

use crate::switch::Protocol;
use crate::{Error, cores};

/// A response that takes longer is lost, and asked for again.
pub(crate) const LOST: Duration = Duration::from_millis(200);
/// So many round trips may be lost, and a tenth of all.
const TOLERATED: usize = 20;
/// How much longer a flood is given if nothing of it arrives.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest that a connection, or a response over one, may take to come about.
const CONNECT: Duration = Duration::from_secs(60);
/// The longest payload of a datagram over IPv4.
pub(crate) const LONGEST_DATAGRAM: u32 = 65_507;
/// What a flood's receiver reads at most at once.
const READ: usize = 256 << 10;

/// Who talks with whom.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'w> {
    pub(crate) client: (&'w NetNs, Ipv4Addr),
    pub(crate) server: (&'w NetNs, Ipv4Addr),
    /// The core that all their threads have; any if there is none.
    pub(crate) core: Option<usize>,
}

impl Ends<'_> {
    /// Microseconds of `count` round trips of a message of so many bytes, there and back.
    pub(crate) fn trips(&self, protocol: Protocol, count: usize, message: usize) -> Result<Vec<f64>, Error> {
        match protocol {
            Protocol::Udp => self.udp_trips(count, message),
            Protocol::Tcp => self.tcp_trips(count, message),
        }
        .map_err(|e| Error::Switch(format!("requests and responses over {}: {e}", protocol.name())))
    }

    /// Million bits a second of messages that arrive, while the client sends as many of so many bytes as it can.
    pub(crate) fn flood(&self, protocol: Protocol, message: usize, time: Duration) -> Result<f64, Error> {
        match protocol {
            Protocol::Udp => self.udp_flood(message, time),
            Protocol::Tcp => self.tcp_flood(message, time),
        }
        .map_err(|e| Error::Switch(format!("a flood over {}: {e}", protocol.name())))
    }

    fn settle(&self) {
        if let Some(core) = self.core {
            cores::pin(core);
        }
    }

    /// A connected datagram socket of the client, and the server's.
    fn datagrams(&self) -> io::Result<(UdpSocket, UdpSocket)> {
        let ((client, from), (server, to)) = (self.client, self.server);
        let server = server.inside(|| UdpSocket::bind((to, 0)))?;
        let client = client.inside(|| UdpSocket::bind((from, 0)))?;
        client.connect(server.local_addr()?)?;
        client.set_read_timeout(Some(LOST))?;
        server.set_read_timeout(Some(LOST))?;
        Ok((client, server))
    }

    /// Both ends of a connection.
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
                    // By its number, a response that came too late is told from that to the next request.
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
                    // Refused while a queue is full: then it is not sent, which is as good.
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
                    // What does not fit in time is not sent; the stream's bytes are all the same.
                    let _ = (&client).write(&buffer);
                }
                let _ = client.shutdown(std::net::Shutdown::Both);
            });
            let mbps = watch(&arrived, time);
            stop.store(true, Relaxed);
            Ok(mbps)
        })
    }

    /// Runs it on a thread that has the core.
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

/// Million bits a second that are counted in bytes meanwhile, after a quarter of the time to get going. Where nothing comes
/// in time it takes longer, so that it is known how little it was.
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

/// Times `count` round trips, after a tenth as many that warm up. One that is lost is not a sample; many are an error.
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
    fn lost_round_trips_are_no_samples_and_many_are_an_error() {
        let mut n = 0;
        let some = trips(100, TOLERATED, |_| {
            n += 1;
            if n % 10 == 0 { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
        });
        assert_eq!(some.unwrap().len(), 90);
        assert!(trips(100, TOLERATED, |_| Err(io::ErrorKind::TimedOut.into())).is_err());
    }
}
