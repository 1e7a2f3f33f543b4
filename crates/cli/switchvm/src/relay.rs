//! Clients of the switch, whose bytes come and go over the port to the host.

use crate::host::{Host, Received};
use p4shield_line::switch::{FromSwitch, MAX_CLIENTS, MAX_PIECE, ToSwitch};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest time for the switch to take what a client sends.
const PATIENCE: Duration = Duration::from_secs(30);

/// Passes the bytes of clients on.
pub(crate) struct Relay {
    host: Arc<Host>,
    socket: PathBuf,
    metrics: Option<SocketAddr>,
    clients: BTreeMap<u32, File>,
}

impl Relay {
    /// Clients of commands connect to `socket`, those of metrics to `metrics`.
    pub(crate) fn new(host: Arc<Host>, socket: &Path, metrics: Option<SocketAddr>) -> Self {
        Self { host, socket: socket.to_owned(), metrics, clients: BTreeMap::new() }
    }

    /// Serves until the host ends the switch or goes away, which sets `stop`.
    pub(crate) fn serve(mut self, mut received: Received, stop: &AtomicBool) {
        loop {
            match received.next() {
                Ok(ToSwitch::Stop) => break,
                Ok(message) => self.take(message),
                Err(error) => {
                    crate::report(&error);
                    break;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    }

    fn take(&mut self, message: ToSwitch) {
        match message {
            ToSwitch::Open(number) => {
                let opened = self.command().and_then(|stream| self.open(number, stream));
                self.keep(number, opened);
            }
            ToSwitch::OpenMetrics(number) => {
                let opened = self.scrape().and_then(|stream| self.open(number, stream));
                self.keep(number, opened);
            }
            ToSwitch::Data(number, bytes) => {
                // A client may have been closed while its bytes were on the way.
                let written = self.clients.get_mut(&number).map(|client| client.write_all(&bytes));
                if let Some(Err(error)) = written {
                    self.keep(number, Err(error));
                }
            }
            ToSwitch::Close(number) => {
                if let Some(client) = self.clients.remove(&number) {
                    let _ = rustix::net::shutdown(&client, rustix::net::Shutdown::Both);
                }
            }
            ToSwitch::Setup { .. } | ToSwitch::Stop => {}
        }
    }

    /// Keeps a client, or tells the host that it is gone.
    fn keep(&mut self, number: u32, client: io::Result<File>) {
        match client {
            Ok(client) => drop(self.clients.insert(number, client)),
            Err(error) => {
                crate::report(&anyhow::Error::new(error).context(format!("client {number}")));
                self.clients.remove(&number);
                self.host.send(&FromSwitch::Close(number)).unwrap_or_else(|e| crate::report(&e));
            }
        }
    }

    fn command(&self) -> io::Result<OwnedFd> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream.into())
    }

    fn scrape(&self) -> io::Result<OwnedFd> {
        let address = self.metrics.ok_or_else(|| io::Error::other("the switch serves no metrics"))?;
        let stream = TcpStream::connect(address)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream.into())
    }

    /// Takes a client, whose answers a thread passes on.
    fn open(&self, number: u32, stream: OwnedFd) -> io::Result<File> {
        if self.clients.len() >= MAX_CLIENTS || self.clients.contains_key(&number) {
            return Err(io::Error::other("there are too many clients"));
        }
        let client = File::from(stream);
        let (mut answers, host) = (client.try_clone()?, Arc::clone(&self.host));
        std::thread::Builder::new().name(format!("client-{number}")).spawn(move || {
            let mut buffer = vec![0; MAX_PIECE];
            while let Ok(n @ 1..) = answers.read(&mut buffer) {
                if host.send(&FromSwitch::Data(number, buffer[..n].to_vec())).is_err() {
                    return;
                }
            }
            let _ = host.send(&FromSwitch::Close(number));
        })?;
        Ok(client)
    }
}
