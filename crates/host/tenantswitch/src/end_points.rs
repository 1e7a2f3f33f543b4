//! The end points for controllers: the host accepts their connections and passes the bytes on to the switch
//! in its compartment, where TLS ends. The host parses none of them.

use crate::order::{OPENFLOW, OVSDB};
use p4shield_links::inside;
use p4shield_topology::Plan;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep, timeout};

/// Connections at an end point.
const MOST: usize = 64;
/// Connections of one address at an end point, so that one machine does not take all.
const OF_ONE_ADDRESS: usize = 8;
/// Time without a byte after which a connection is closed. Open vSwitch and controllers probe a silent peer
/// every few seconds; one that never completes its handshake is not probed.
const IDLE: Duration = Duration::from_secs(60);
/// Longest time for a switch to accept a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Time after which an address that cannot be opened is tried again, and a listener that failed.
const RETRY: Duration = Duration::from_secs(2);
/// Bytes that are passed on at a time.
const BUFFER: usize = 16 << 10;
/// Threads that connect to switches at a time.
const CONNECTING: usize = 4;

/// How an end point is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndPointStatus {
    /// The switch compartment.
    pub compartment: String,
    /// The tenant whose switch it is.
    pub tenant: String,
    /// `ovsdb` or `openflow`.
    pub protocol: String,
    /// Where the host accepts connections.
    pub address: SocketAddr,
    /// Reason why it does not; it tries again. `None`: it does.
    pub problem: Option<String>,
    /// Open connections.
    pub connections: usize,
    /// Connections that were closed at once: there were too many, or the switch accepted none.
    pub refused: u64,
}

/// The thread that serves the end points. Their connections end with it.
#[derive(Debug)]
pub(crate) struct EndPoints {
    wanted: Option<UnboundedSender<Vec<EndPoint>>>,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// An end point, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EndPoint {
    address: SocketAddr,
    compartment: String,
    tenant: String,
    protocol: &'static str,
    /// Where the switch listens in its network namespace.
    port: u16,
}

#[derive(Debug, Default)]
struct Shared {
    /// The first process of each compartment.
    processes: Mutex<BTreeMap<String, Arc<OwnedFd>>>,
    states: Mutex<BTreeMap<SocketAddr, State>>,
}

/// An end point's state.
#[derive(Clone, Debug)]
struct State {
    point: EndPoint,
    problem: Option<String>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicUsize,
    refused: AtomicU64,
}

impl EndPoints {
    /// Starts the thread, in the network namespace of the calling one.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(CONNECTING)
            .build()?;
        let shared = Arc::new(Shared::default());
        let (wanted, orders) = unbounded_channel();
        let serve = serve_all(Arc::clone(&shared), orders);
        let thread = std::thread::Builder::new().name("controllers".to_owned());
        let thread = thread.spawn(move || runtime.block_on(serve))?;
        Ok(Self { wanted: Some(wanted), shared, thread: Some(thread) })
    }

    /// Has it serve the end points of a plan, and no other.
    pub(crate) fn want(&self, plan: Option<&Plan>) {
        // It fails after the thread has panicked only.
        let _ = self.wanted.as_ref().map(|wanted| wanted.send(of_plan(plan)));
    }

    /// Takes the compartments' first processes, whose network namespaces have the switches.
    pub(crate) fn reach(&self, processes: BTreeMap<String, Arc<OwnedFd>>) {
        *locked(&self.shared.processes) = processes;
    }

    /// Returns how the end points are, by address.
    pub(crate) fn status(&self) -> Vec<EndPointStatus> {
        let status = |state: &State| EndPointStatus {
            compartment: state.point.compartment.clone(),
            tenant: state.point.tenant.clone(),
            protocol: state.point.protocol.to_owned(),
            address: state.point.address,
            problem: state.problem.clone(),
            connections: state.counts.connections.load(Ordering::Relaxed),
            refused: state.counts.refused.load(Ordering::Relaxed),
        };
        locked(&self.shared.states).values().map(status).collect()
    }
}

impl Drop for EndPoints {
    fn drop(&mut self) {
        // The thread ends with its channel.
        self.wanted = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn of_plan(plan: Option<&Plan>) -> Vec<EndPoint> {
    let mut points = Vec::new();
    for c in plan.iter().flat_map(|plan| &plan.compartments) {
        let (Some(controllers), [tenant, ..]) = (&c.controllers, &*c.tenants) else { continue };
        let of = [("ovsdb", controllers.ovsdb, OVSDB), ("openflow", controllers.openflow, OPENFLOW)];
        points.extend(of.into_iter().filter_map(|(protocol, address, port)| {
            let (compartment, tenant) = (c.name.clone(), tenant.name.clone());
            Some(EndPoint { address: address?, compartment, tenant, protocol, port })
        }));
    }
    points
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the end points that are wanted last, until the channel ends.
async fn serve_all(shared: Arc<Shared>, mut orders: UnboundedReceiver<Vec<EndPoint>>) {
    let mut wanted = Vec::new();
    let mut served: BTreeMap<SocketAddr, (EndPoint, JoinSet<()>)> = BTreeMap::new();
    loop {
        // One that leads elsewhere from now on is closed with its connections.
        let others: Vec<_> =
            served.iter().filter(|(_, (point, _))| !wanted.contains(point)).map(|(at, _)| *at).collect();
        for address in others {
            if let Some((_, mut task)) = served.remove(&address) {
                task.shutdown().await;
            }
        }
        locked(&shared.states).retain(|_, state| wanted.contains(&state.point));
        let mut all = true;
        for point in
            wanted.iter().filter(|point| !served.contains_key(&point.address)).cloned().collect::<Vec<_>>()
        {
            let counts = Arc::default();
            let opened = TcpListener::bind(point.address).await;
            let problem = opened.as_ref().err().map(ToString::to_string);
            all &= problem.is_none();
            let state = State { point: point.clone(), problem, counts: Arc::clone(&counts) };
            locked(&shared.states).insert(point.address, state);
            if let Ok(listener) = opened {
                let mut task = JoinSet::new();
                task.spawn(serve(listener, point.clone(), Arc::clone(&shared), counts));
                served.insert(point.address, (point, task));
            }
        }
        let order = if all { Ok(orders.recv().await) } else { timeout(RETRY, orders.recv()).await };
        match order {
            Ok(Some(points)) => wanted = points,
            Ok(None) => return,
            Err(_) => {}
        }
    }
}

/// Accepts connections at an end point.
async fn serve(listener: TcpListener, point: EndPoint, shared: Arc<Shared>, counts: Arc<Counts>) {
    let mut connections = JoinSet::new();
    let mut peers: HashMap<Id, IpAddr> = HashMap::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(done) = connections.join_next_with_id() => {
                peers.remove(&done.map_or_else(|e| e.id(), |(id, ())| id));
                counts.connections.store(peers.len(), Ordering::Relaxed);
                continue;
            }
        };
        let Ok((controller, peer)) = accepted else {
            // Such as: no descriptor is left.
            sleep(RETRY).await;
            continue;
        };
        let same = peers.values().filter(|ip| **ip == peer.ip()).count();
        if peers.len() >= MOST || same >= OF_ONE_ADDRESS {
            counts.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let process = locked(&shared.processes).get(&point.compartment).cloned();
        let task = connections.spawn(relay(controller, process, point.port, Arc::clone(&counts)));
        peers.insert(task.id(), peer.ip());
        counts.connections.store(peers.len(), Ordering::Relaxed);
    }
}

/// Connects a controller with its switch.
async fn relay(mut controller: TcpStream, process: Option<Arc<OwnedFd>>, port: u16, counts: Arc<Counts>) {
    let Ok(mut switch) = connect(process, port).await else {
        counts.refused.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let _ = controller.set_nodelay(true).and_then(|()| switch.set_nodelay(true));
    let last = Mutex::new(Instant::now());
    let (from_controller, to_controller) = controller.split();
    let (from_switch, to_switch) = switch.split();
    // The first error ends both directions, and with it the connections.
    let _ =
        tokio::try_join!(pass(from_controller, to_switch, &last), pass(from_switch, to_controller, &last));
}

/// Connects to a port of a switch, in the network namespace of its compartment.
async fn connect(process: Option<Arc<OwnedFd>>, port: u16) -> io::Result<TcpStream> {
    let process = process.ok_or(io::ErrorKind::NotConnected)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let connect =
        move || inside(process.as_fd(), || std::net::TcpStream::connect_timeout(&address, CONNECT))?;
    let stream = tokio::task::spawn_blocking(connect).await.map_err(io::Error::other)??;
    stream.set_nonblocking(true)?;
    TcpStream::from_std(stream)
}

/// Passes bytes on in one direction, until it ends. `last` is when one was passed on in any direction.
async fn pass(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, last: &Mutex<Instant>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let n = match timeout(IDLE, from.read(&mut buffer)).await {
            Ok(read) => read?,
            Err(_) if locked(last).elapsed() < IDLE => continue,
            Err(idle) => return Err(idle.into()),
        };
        if n == 0 {
            return to.shutdown().await;
        }
        *locked(last) = Instant::now();
        timeout(IDLE, to.write_all(&buffer[..n])).await??;
    }
}

#[cfg(test)]
mod tests;
