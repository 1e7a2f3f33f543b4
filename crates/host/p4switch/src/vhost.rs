//! Ports of a switch in a virtual machine that are connections to a vhost-user switch, such as one over DPDK.
//!
//! ```text
//!   DPDK switch ── its socket, or ours ── this process: `vhost_messages` ── QEMU's socket, in its namespace
//!        └────────────── packets: in the machine's memory, which it maps ──────────────┘
//! ```
//!
//! QEMU runs as a user without rights, and opens no socket of the host. This process does, also again after
//! the switch was gone. It passes on what both agree on at the start, and sees no packet.

use crate::vhost_messages::{End, pass_on};
use p4shield_io::afxdp::LONGEST_MTU;
use p4shield_links::inside;
use p4shield_socket::{Entrance as _, ListenError, Listener, listen};
use p4shield_vmm::VhostNic;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The prefix of such a port's name, behind which there is the path of the socket.
pub(crate) const VHOST_USER: &str = "vhost-user:";
/// The word behind the path if the other switch connects to it.
const SERVER: &str = "server";
/// The shortest MTU that Linux gives an interface (`ETH_MIN_MTU`).
const SHORTEST_MTU: u16 = 68;
/// Time between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);
/// Time between two attempts to connect to QEMU.
const START: Duration = Duration::from_millis(100);
/// Time between two looks for the request to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Looks until the operator hears what is awaited.
const LATE: u32 = 10;

/// The reason why a port has no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VhostError {
    /// The name is none of a port.
    #[error(
        "port {0}: write vhost-user:SOCKET for the path of a socket where a DPDK switch listens, or \
         vhost-user:SOCKET,server for one that it connects to, each with ,mtu=BYTES and ,queues=NUMBER \
         behind it if need be; the path has no comma"
    )]
    Name(u16),
    /// The MTU is none of a port.
    #[error(
        "port {0}: write mtu={SHORTEST_MTU} to mtu={LONGEST_MTU}; a packet has to fit into a page, so \
         switches with jumbo frames of 9000 bytes need their MTU lowered"
    )]
    Mtu(u16),
    /// No thread would have the packets of a queue.
    #[error(
        "port {number}: write queues=1 to queues={threads}, a queue pair for each thread at most; --threads \
         NUMBER gives the switch more"
    )]
    Queues {
        /// The port's number.
        number: u16,
        /// The switch's packet threads.
        threads: usize,
    },
    /// Two ports have the same socket.
    #[error("{} is given for two ports; a vhost-user socket is for one", .0.display())]
    Twice(PathBuf),
    /// There is no socket.
    #[error(
        "port {number}: there is no {}; start the DPDK switch that listens there first \
         (net_vhost0,iface={}), or have it connect: vhost-user:{},server", path.display(), path.display(),
         path.display()
    )]
    Missing {
        /// The port's number.
        number: u16,
        /// The socket's path.
        path: PathBuf,
    },
    /// There is another kind of file.
    #[error("port {number}: {} is no socket; name the one where a DPDK switch listens", path.display())]
    NoSocket {
        /// The port's number.
        number: u16,
        /// The file.
        path: PathBuf,
    },
    /// No process listens there.
    #[error(
        "port {number}: no process listens on {}; start the DPDK switch that makes it again", path.display()
    )]
    Dead {
        /// The port's number.
        number: u16,
        /// The socket's path.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("port {number}: cannot connect to {}", path.display())]
    Connect {
        /// The port's number.
        number: u16,
        /// The socket's path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Clients cannot connect.
    #[error("port {number}")]
    Listen {
        /// The port's number.
        number: u16,
        /// The cause.
        #[source]
        source: ListenError,
    },
}

impl VhostError {
    /// Returns whether the options are wrong, whatever the state of the machine.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Name(_) | Self::Mtu(_) | Self::Queues { .. } | Self::Twice(_))
    }
}

/// A port, as the operator writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VhostPort {
    number: u16,
    path: PathBuf,
    /// This process listens, and the other switch connects.
    listens: bool,
    /// Bytes of the longest packet behind the Ethernet header, if the operator says so.
    mtu: Option<u16>,
    /// Queue pairs.
    queues: u16,
}

/// Returns the name of a port in the machine: that of a network interface.
pub(crate) fn name_inside(number: u16, name: &str) -> String {
    if name.starts_with(VHOST_USER) { format!("vhost{number}") } else { name.to_owned() }
}

impl VhostPort {
    /// Returns those of a switch's ports that are vhost-user ones; the switch has this many packet threads.
    pub(crate) fn among(ports: &[(u16, String)], threads: usize) -> Result<Vec<Self>, VhostError> {
        let named = ports.iter().filter_map(|(number, name)| Some((*number, name.strip_prefix(VHOST_USER)?)));
        let all = named.map(|(number, rest)| Self::of(number, rest)).collect::<Result<Vec<_>, _>>()?;
        if let Some(port) = all.iter().find(|port| !(1..=threads).contains(&port.queues.into())) {
            return Err(VhostError::Queues { number: port.number, threads });
        }
        let mut paths = BTreeSet::new();
        match all.iter().find(|port| !paths.insert(&port.path)) {
            Some(port) => Err(VhostError::Twice(port.path.clone())),
            None => Ok(all),
        }
    }

    fn of(number: u16, rest: &str) -> Result<Self, VhostError> {
        let mut words = rest.split(',');
        let path = words.next().filter(|path| !path.is_empty()).ok_or(VhostError::Name(number))?;
        let mut port = Self { number, path: path.into(), listens: false, mtu: None, queues: 1 };
        let mut seen = BTreeSet::new();
        for word in words {
            let (name, value) =
                word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            match (name, value) {
                _ if !seen.insert(name) => return Err(VhostError::Name(number)),
                (SERVER, None) => port.listens = true,
                ("mtu", Some(mtu)) => port.mtu = Some(parsed_mtu(mtu).ok_or(VhostError::Mtu(number))?),
                // A number that is none is no number of queues that a switch has.
                ("queues", Some(queues)) => port.queues = queues.parse().unwrap_or_default(),
                _ => return Err(VhostError::Name(number)),
            }
        }
        Ok(port)
    }

    fn connect(&self) -> Result<UnixStream, VhostError> {
        let (number, path) = (self.number, self.path.clone());
        match std::fs::metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(VhostError::Missing { number, path });
            }
            Ok(file) if !file.file_type().is_socket() => return Err(VhostError::NoSocket { number, path }),
            _ => {}
        }
        match connect(&path) {
            Ok(stream) => Ok(stream),
            Err(Errno::CONNREFUSED) => Err(VhostError::Dead { number, path }),
            Err(source) => Err(VhostError::Connect { number, path, source: source.into() }),
        }
    }
}

fn parsed_mtu(text: &str) -> Option<u16> {
    text.parse().ok().filter(|mtu| (SHORTEST_MTU.into()..=LONGEST_MTU).contains(&u32::from(*mtu)))
}

/// Connects without waiting for a process that accepts no connection.
fn connect(path: &Path) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket.into())
}

/// The sockets of ports where other switches connect. Dropping it removes them.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<Listener>);

/// A port, and where its connections come from.
#[derive(Debug)]
struct Source {
    port: VhostPort,
    /// A copy of that in [`Listeners`], if the other switch connects.
    listener: Option<UnixListener>,
}

/// A port with its first connection.
#[derive(Debug)]
pub(crate) struct Connected {
    source: Source,
    first: UnixStream,
}

/// Connects all ports, and waits for the switches that are to connect. `None`: `stop` is set.
pub(crate) fn connect_all(
    ports: Vec<VhostPort>,
    stop: &AtomicBool,
) -> Result<Option<(Vec<Connected>, Listeners)>, VhostError> {
    let mut listeners = Listeners::default();
    let sources = ports.into_iter().map(|port| Source::open(port, &mut listeners));
    let mut sources = sources.collect::<Result<Vec<_>, _>>()?;
    // An error comes before a wait.
    sources.sort_by_key(|source| source.listener.is_some());
    let mut all = Vec::new();
    for source in sources {
        let Some(first) = source.first(stop)? else { return Ok(None) };
        all.push(Connected { source, first });
    }
    Ok(Some((all, listeners)))
}

impl Connected {
    /// Returns the name of the port's network interface in the machine.
    pub(crate) fn interface(&self) -> String {
        name_inside(self.source.port.number, VHOST_USER)
    }

    /// Returns the machine's device for the port, which has this Ethernet address.
    pub(crate) fn device(&self, address: [u8; 6]) -> VhostNic {
        let VhostPort { mtu, queues, .. } = self.source.port;
        VhostNic { address, socket: self.interface(), mtu, queues }
    }

    /// Keeps the port connected to QEMU's device in a thread, until `ending` is set and QEMU has ended.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn keep(self, qemu: Qemu) -> io::Result<()> {
        let Self { source, first } = self;
        let thread = std::thread::Builder::new().name(format!("vhost{}", source.port.number));
        thread.spawn(move || source.keep(first, &qemu)).map(drop)
    }
}

/// QEMU's end of a port.
#[derive(Debug)]
pub(crate) struct Qemu {
    /// The machine's device.
    pub(crate) nic: VhostNic,
    /// QEMU's network namespace.
    pub(crate) network: Arc<OwnedFd>,
    /// Set before QEMU is ended.
    pub(crate) ending: Arc<AtomicBool>,
}

impl Qemu {
    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Connects to QEMU, which may only just have started. An error: it ends.
    fn connect(&self) -> io::Result<UnixStream> {
        loop {
            match inside(self.network.as_fd(), || self.nic.connect())? {
                Err(error) if self.is_ending() => return Err(error),
                Err(_) => std::thread::sleep(START),
                Ok(stream) => return Ok(stream),
            }
        }
    }
}

impl Source {
    fn open(port: VhostPort, listeners: &mut Listeners) -> Result<Self, VhostError> {
        if !port.listens {
            return Ok(Self { port, listener: None });
        }
        let failed = |source| VhostError::Listen { number: port.number, source };
        let listener = listen(&port.path).map_err(failed)?;
        let copy = listener.socket();
        let copy = copy.map_err(|source| failed(ListenError::Io { path: port.path.clone(), source }))?;
        listeners.0.push(listener);
        Ok(Self { port, listener: Some(copy.into()) })
    }

    /// Waits for the first connection; `None`: `stop` is set.
    fn first(&self, stop: &AtomicBool) -> Result<Option<UnixStream>, VhostError> {
        let (port, socket) = (self.port.number, self.port.path.display());
        let mut looks = 0;
        while !stop.load(Ordering::Relaxed) {
            if let Some(stream) = self.next()? {
                return Ok(Some(stream));
            }
            looks += 1;
            if looks == LATE {
                let wait = "no switch has connected yet, and the machine starts once one has, to";
                tracing::warn!(event = "vhost_user_awaited", port, %socket, "port {port}: {wait} {socket}");
            }
        }
        Ok(None)
    }

    /// Returns the next connection; `None`: none comes within a moment.
    fn next(&self) -> Result<Option<UnixStream>, VhostError> {
        let Some(listener) = &self.listener else { return self.port.connect().map(Some) };
        match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&LOOK)) {
            Ok(1..) => Ok(listener.accept().ok().map(|(stream, _)| stream)),
            _ => Ok(None),
        }
    }

    fn keep(&self, mut switch: UnixStream, qemu: &Qemu) {
        let (port, socket) = (self.port.number, self.port.path.display());
        loop {
            let ended = qemu.connect().and_then(|qemu| pass_on(&switch, &qemu));
            if qemu.is_ending() {
                return;
            }
            let why = match ended {
                Ok(End::Switch) => "has closed its connection".to_owned(),
                Ok(End::Qemu) => "loses its connection, which QEMU has closed".to_owned(),
                Err(error) => format!("has no connection to QEMU: {error}"),
            };
            tracing::warn!(
                event = "vhost_user_down", port, %socket,
                "port {port} is down: the switch at {socket} {why}; a new connection is tried every second"
            );
            let Some(next) = self.again(qemu) else { return };
            switch = next;
            tracing::info!(event = "vhost_user_up", port, %socket, "port {port}: connected to {socket}");
        }
    }

    /// Waits for the next connection; `None`: the machine ends.
    fn again(&self, qemu: &Qemu) -> Option<UnixStream> {
        while !qemu.is_ending() {
            // A switch that closes each connection costs no core.
            std::thread::sleep(RETRY);
            if let Ok(Some(next)) = self.next() {
                return Some(next);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn among(names: &[&str]) -> Result<Vec<VhostPort>, String> {
        let ports: Vec<_> = (1..).zip(names.iter().map(|name| (*name).to_owned())).collect();
        VhostPort::among(&ports, 2).map_err(|error| {
            assert!(error.is_refusal());
            error.to_string()
        })
    }

    fn connected(name: &str) -> String {
        let ports = among(&[name]).unwrap();
        connect_all(ports, &AtomicBool::new(false)).unwrap_err().to_string()
    }

    #[test]
    fn names_say_which_switch_listens() {
        let port = |number, path: &str, listens| VhostPort {
            number,
            path: path.into(),
            listens,
            mtu: None,
            queues: 1,
        };
        let names = ["eth0", "vhost-user:/run/a.sock", "cpu:controller", "vhost-user:b=c:d,server"];
        assert_eq!(among(&names), Ok(vec![port(2, "/run/a.sock", false), port(4, "b=c:d", true)]));
        assert_eq!(name_inside(2, names[1]), "vhost2");
        assert_eq!(name_inside(1, names[0]), "eth0");
        let set = VhostPort { mtu: Some(3000), queues: 2, ..port(1, "/a", true) };
        assert_eq!(among(&["vhost-user:/a,queues=2,server,mtu=3000"]), Ok(vec![set]));
        for wrong in ["", ",server", "/a,", "/a,client", "/a,server,server", "/a,server=on", "/a,mtu"] {
            let why = among(&["eth0", &format!("vhost-user:{wrong}")]).unwrap_err();
            assert!(why.starts_with("port 2: write vhost-user:SOCKET"), "{wrong}: {why}");
        }
        for wrong in ["mtu=67", "mtu=9000", "mtu=x"] {
            let why = among(&[&format!("vhost-user:/a,{wrong}")]).unwrap_err();
            assert!(why.starts_with("port 1: write mtu=68 to mtu=3818;"), "{wrong}: {why}");
        }
        for wrong in ["queues=0", "queues=3", "queues=-1", "queues=99999999"] {
            let why = among(&[&format!("vhost-user:/a,{wrong}")]).unwrap_err();
            assert!(why.starts_with("port 1: write queues=1 to queues=2, a queue pair"), "{wrong}: {why}");
        }
        let twice = among(&["vhost-user:/a", "vhost-user:/a,server"]).unwrap_err();
        assert!(twice.starts_with("/a is given for two ports"), "{twice}");
    }

    #[test]
    fn a_port_without_a_switch_is_an_error_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let missing = connected(&format!("vhost-user:{}", path("missing")));
        let remedy = format!("have it connect: vhost-user:{},server", path("missing"));
        assert!(missing.contains("there is no /") && missing.ends_with(&remedy), "{missing}");
        std::fs::write(path("file"), "").unwrap();
        let file = connected(&format!("vhost-user:{}", path("file")));
        assert!(file.contains("file is no socket"), "{file}");
        drop(UnixListener::bind(path("dead")).unwrap());
        let dead = connected(&format!("vhost-user:{}", path("dead")));
        assert!(dead.contains("no process listens on /"), "{dead}");
        let in_file = connected(&format!("vhost-user:{}", path("file/a.sock")));
        assert!(in_file.contains("cannot connect to /"), "{in_file}");
        let long = connected(&format!("vhost-user:{}", path(&"a".repeat(120))));
        assert!(long.contains("there is no /"), "{long}");
    }

    #[test]
    fn a_missing_switch_is_reported_before_another_is_awaited() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let names =
            [format!("vhost-user:{},server", ours.display()), format!("vhost-user:{}", theirs.display())];
        let ports = among(&names.each_ref().map(String::as_str)).unwrap();
        let stop = AtomicBool::new(true);
        let connect = || connect_all(ports.clone(), &AtomicBool::new(false)).map(|all| all.unwrap());
        assert!(matches!(connect(), Err(VhostError::Missing { number: 2, .. })));
        let listener = UnixListener::bind(&theirs).unwrap();
        let (all, listeners) = std::thread::scope(|scope| {
            let connecting = scope.spawn(connect);
            // The port's own socket is there before the other is connected to.
            drop(listener.accept().unwrap());
            let first = UnixStream::connect(&ours).unwrap();
            let done = connecting.join().unwrap().unwrap();
            drop(first);
            done
        });
        assert_eq!(all.iter().map(Connected::interface).collect::<Vec<_>>(), ["vhost2", "vhost1"]);
        drop((all, listeners));
        assert!(!ours.exists());
        assert!(connect_all(ports, &stop).unwrap().is_none(), "a stop ends the wait");
    }
}
