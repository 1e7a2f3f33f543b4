//! Clients of the switch, whose bytes come and go over the port to the host.

use crate::host::{Host, Received};
use p4shield_line::switch::{FromSwitch, MAX_CLIENTS, MAX_PIECE, ToSwitch};
use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
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
    clients: BTreeMap<u32, UnixStream>,
}

impl Relay {
    pub(crate) fn new(host: Arc<Host>, socket: &Path) -> Self {
        Self { host, socket: socket.to_owned(), clients: BTreeMap::new() }
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
                let opened = self.open(number);
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
                    let _ = client.shutdown(Shutdown::Both);
                }
            }
            ToSwitch::Setup { .. } | ToSwitch::Stop => {}
        }
    }

    /// Keeps a client, or tells the host that it is gone.
    fn keep(&mut self, number: u32, client: io::Result<UnixStream>) {
        match client {
            Ok(client) => drop(self.clients.insert(number, client)),
            Err(error) => {
                crate::report(&anyhow::Error::new(error).context(format!("client {number}")));
                self.clients.remove(&number);
                self.host.send(&FromSwitch::Close(number)).unwrap_or_else(|e| crate::report(&e));
            }
        }
    }

    /// Connects a client, whose answers a thread passes on.
    fn open(&self, number: u32) -> io::Result<UnixStream> {
        if self.clients.len() >= MAX_CLIENTS || self.clients.contains_key(&number) {
            return Err(io::Error::other("there are too many clients"));
        }
        let client = UnixStream::connect(&self.socket)?;
        client.set_write_timeout(Some(PATIENCE))?;
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
