//! Real sockets on both sides: a server inside the user VM, a client outside.
//!
//! The server has two ports. On [`ECHO`] it answers what it is sent, which shows that a connection is alive.
//! On [`HOARD`] it accepts and never reads, so that what the client sends stays in the kernel's socket
//! buffers and used TCP memory grows.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use p4shield_testbed::NetNs;
use serde::{Deserialize, Serialize};

/// Port of the server that echoes.
pub(crate) const ECHO: u16 = 7000;
/// Port of the server that never reads.
pub(crate) const HOARD: u16 = 7001;

/// The work of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Connections that last and exchange data.
    pub(crate) established: usize,
    /// Connections of a group that can fill memory.
    pub(crate) hoarders: usize,
    /// Groups of these.
    pub(crate) groups: usize,
    /// Time after which a lasting connection without an answer counts as stalled.
    pub(crate) patience: Duration,
    /// Time after which a connection attempt counts as denied: shorter than the kernel's first SYN
    /// retransmission (one second), so that one attempt is one SYN.
    pub(crate) attempt: Duration,
    /// Time between attempts, and between questions on lasting connections.
    pub(crate) pause: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            established: 8,
            hoarders: 48,
            groups: 1,
            patience: Duration::from_secs(2),
            attempt: Duration::from_millis(500),
            pause: Duration::from_millis(50),
        }
    }
}

/// The server inside the user VM. Stops on drop.
#[derive(Debug)]
pub(crate) struct Server {
    stop: Arc<AtomicBool>,
    release: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on both ports of `address` inside `vm`.
    pub(crate) fn start(vm: &NetNs, address: IpAddr) -> std::io::Result<Self> {
        vm.inside(|| Self::here(address))
    }

    /// As [`Self::start`], in the caller's network namespace.
    pub(crate) fn here(address: IpAddr) -> std::io::Result<Self> {
        let listen = |port| {
            let l = TcpListener::bind(SocketAddr::new(address, port))?;
            l.set_nonblocking(true).map(|()| l)
        };
        let (echo, hoard) = (listen(ECHO)?, listen(HOARD)?);
        let (stop, release) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let flags = (Arc::clone(&stop), Arc::clone(&release));
        let thread = std::thread::spawn(move || serve(&echo, &hoard, &flags.0, &flags.1));
        Ok(Self { stop, release, thread: Some(thread) })
    }

    /// Closes the connections with unread data, which frees their memory.
    pub(crate) fn release(&self) {
        self.release.store(true, Ordering::Relaxed);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

fn serve(echo: &TcpListener, hoard: &TcpListener, stop: &AtomicBool, release: &AtomicBool) {
    let (mut echoing, mut hoarded) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        while let Ok((s, _)) = echo.accept() {
            if s.set_nonblocking(true).is_ok() {
                echoing.push(s);
            }
        }
        while let Ok((s, _)) = hoard.accept() {
            hoarded.push(s);
        }
        if release.swap(false, Ordering::Relaxed) {
            hoarded.retain(is_empty);
        }
        echoing.retain_mut(answer);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns whether there is nothing to read.
fn is_empty(s: &TcpStream) -> bool {
    s.set_nonblocking(true).is_ok() && s.peek(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
}

/// Echoes received data. Returns false once the peer has closed the connection.
fn answer(s: &mut TcpStream) -> bool {
    let mut buffer = [0; 512];
    match s.read(&mut buffer) {
        Ok(0) => false,
        Ok(n) => s.write_all(&buffer[..n]).is_ok(),
        Err(e) => e.kind() == ErrorKind::WouldBlock,
    }
}

/// The client's observations so far.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    accepted: AtomicU64,
    denied: AtomicU64,
    answered: AtomicU64,
    stalled: AtomicU64,
}

/// [`Seen`] at one moment: totals since the start.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    /// New connections that the server accepted.
    pub(crate) accepted: u64,
    /// New connections that timed out.
    pub(crate) denied: u64,
    /// Answers on established connections.
    pub(crate) answered: u64,
    /// Established connections that broke or did not answer in time.
    pub(crate) stalled: u64,
}

impl Totals {
    /// Returns the text about new connections.
    pub(crate) fn connections(self) -> String {
        format!("{} accepted, {} denied", self.accepted, self.denied)
    }
}

impl std::ops::Sub for Totals {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self {
            accepted: self.accepted - earlier.accepted,
            denied: self.denied - earlier.denied,
            answered: self.answered - earlier.answered,
            stalled: self.stalled - earlier.stalled,
        }
    }
}

/// Signs to the client's threads.
#[derive(Debug, Default)]
struct Signs {
    stop: AtomicBool,
    rest: AtomicBool,
}

impl Signs {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn rests(&self) -> bool {
        self.rest.load(Ordering::Relaxed)
    }
}

/// The remote client: keeps opening new connections and exchanges data on lasting ones. Stops on drop.
#[derive(Debug)]
pub(crate) struct Client {
    seen: Arc<Seen>,
    signs: Arc<Signs>,
    threads: Vec<JoinHandle<()>>,
    hoards: Vec<Vec<TcpStream>>,
}

impl Client {
    /// Opens the plan's connections inside `ns`, then starts to open new ones.
    pub(crate) fn start(ns: &NetNs, server: IpAddr, plan: Plan) -> std::io::Result<Self> {
        ns.inside(|| Self::here(server, plan))
    }

    /// As [`Self::start`], in the caller's network namespace.
    pub(crate) fn here(server: IpAddr, plan: Plan) -> std::io::Result<Self> {
        let open = |port| {
            let s = TcpStream::connect_timeout(&SocketAddr::new(server, port), Duration::from_secs(5))?;
            s.set_nodelay(true).map(|()| s)
        };
        let kept = (0..plan.established).map(|_| open(ECHO)).collect::<Result<Vec<_>, _>>()?;
        let group = || (0..plan.hoarders).map(|_| open(HOARD)).collect::<Result<Vec<_>, _>>();
        let hoards = (0..plan.groups).map(|_| group()).collect::<Result<Vec<_>, _>>()?;
        for s in hoards.iter().flatten() {
            s.set_nonblocking(true)?;
        }
        let (seen, signs) = (Arc::new(Seen::default()), Arc::new(Signs::default()));
        let talk = {
            let (seen, signs) = (Arc::clone(&seen), Arc::clone(&signs));
            std::thread::spawn(move || keep_talking(kept, plan, &seen, &signs))
        };
        let knock = {
            let (seen, signs) = (Arc::clone(&seen), Arc::clone(&signs));
            std::thread::spawn(move || keep_knocking(server, plan, &seen, &signs))
        };
        Ok(Self { seen, signs, threads: vec![talk, knock], hoards })
    }

    /// Returns the totals so far.
    pub(crate) fn totals(&self) -> Totals {
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        Totals {
            accepted: get(&self.seen.accepted),
            denied: get(&self.seen.denied),
            answered: get(&self.seen.answered),
            stalled: get(&self.seen.stalled),
        }
    }

    /// Sends on one group of unread connections until the kernel accepts no more.
    pub(crate) fn fill(&mut self) {
        while self.fill_more(64 * 1024) {}
    }

    /// Sends up to so many bytes on each connection of a group. Returns whether the kernel took any.
    pub(crate) fn fill_more(&mut self, bytes: usize) -> bool {
        let chunk = vec![0x5a; bytes];
        let group = self.hoards.last_mut().into_iter().flatten();
        group.map(|s| matches!(s.write(&chunk), Ok(n) if n > 0)).fold(false, |any, took| any | took)
    }

    /// Stops to open connections and to ask on lasting ones, or goes on.
    pub(crate) fn rest(&self, rests: bool) {
        self.signs.rest.store(rests, Ordering::Relaxed);
    }

    /// Closes the group that was filled.
    pub(crate) fn empty(&mut self) {
        self.hoards.pop();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.signs.stop.store(true, Ordering::Relaxed);
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
    }
}

fn keep_talking(mut kept: Vec<TcpStream>, plan: Plan, seen: &Seen, signs: &Signs) {
    for s in &kept {
        // An unlimited wait would hide a stalled connection, so a limit that cannot be set counts as one.
        if s.set_read_timeout(Some(plan.patience)).is_err() {
            seen.stalled.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut number = 0_u64;
    while !signs.stops() && !kept.is_empty() {
        kept.retain_mut(|s| {
            if signs.rests() {
                return true;
            }
            number += 1;
            let alive = ask(s, number) || signs.stops();
            let count = if alive { &seen.answered } else { &seen.stalled };
            count.fetch_add(1, Ordering::Relaxed);
            alive
        });
        std::thread::sleep(plan.pause);
    }
}

fn ask(s: &mut TcpStream, number: u64) -> bool {
    let mut back = [0; 8];
    s.write_all(&number.to_be_bytes()).is_ok()
        && s.read_exact(&mut back).is_ok()
        && back == number.to_be_bytes()
}

fn keep_knocking(server: IpAddr, plan: Plan, seen: &Seen, signs: &Signs) {
    while !signs.stops() {
        if signs.rests() {
            std::thread::sleep(plan.pause);
            continue;
        }
        let start = Instant::now();
        let count = match TcpStream::connect_timeout(&SocketAddr::new(server, ECHO), plan.attempt) {
            Ok(_) => &seen.accepted,
            Err(_) => &seen.denied,
        };
        count.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(plan.pause.saturating_sub(start.elapsed()));
    }
}
