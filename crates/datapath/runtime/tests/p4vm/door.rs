//! A P4 VM that loses its daemon, and the daemons that come to its door.

use crate::programs;
use crate::rig::{EGRESS, FIRST, PATIENCE, Rig, hello, memory, resources};
use p4shield_abi::{Direction, Verdict};
use p4shield_control::{
    Client, ClientError, Hello, PROTOCOL_VERSION, Reply, Request, Resources, Socket, SocketError,
};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_p4_vm_with_a_daemon_admits_no_other", one_daemon),
    ("only_a_request_for_adoption_opens_the_door", only_adoption),
    ("without_patience_a_p4_vm_ends_with_its_daemon", no_patience),
];

/// Longer than an answer takes.
const SHORT: Duration = Duration::from_millis(300);

/// A P4 VM with a door, in a folder of its own.
struct Orphan {
    rig: Rig,
    _folder: tempfile::TempDir,
    door: PathBuf,
}

impl Orphan {
    fn new(patience: Option<Duration>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let door = folder.path().join("door");
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None);
        let listener: OwnedFd = listener.unwrap();
        bind(&listener, &SocketAddrUnix::new(&door).unwrap()).unwrap();
        listen(&listener, 4).unwrap();
        let mut client = Client::new(crate::rig::spawn());
        let first = Request::Hello(Hello { door: Some(FIRST), ..hello() });
        client.call(first, &resources(&[&listener]), PATIENCE).unwrap();
        let pid = client.peer().unwrap();
        let mut rig = Rig { client, pid };
        if let Some(patience) = patience {
            let ms = u32::try_from(patience.as_millis()).unwrap();
            rig.ask(Request::SetPatience { ms }, &[]).unwrap();
        }
        rig.ask(crate::rig::set_vm(0, "web"), &[]).unwrap();
        rig.load(EGRESS, programs::PASS).unwrap();
        Self { rig, _folder: folder, door }
    }

    /// Connects to the door.
    fn connect(&self) -> Client {
        let socket = Socket::connect(&self.door).unwrap();
        socket.ask_for_senders().unwrap();
        Client::new(socket)
    }
}

fn adopt(client: &mut Client, version: u32, time: Duration) -> Result<Reply, ClientError> {
    let (mut pipe, stderr) = std::io::pipe().unwrap();
    let mut resources = Resources::none();
    resources.add(&stderr);
    let reply = client.call(Request::Adopt { version }, &resources, time);
    drop(stderr);
    if reply.is_err() {
        // The P4 VM has closed its end, too.
        drop(pipe.read(&mut [0; 16]));
    }
    reply
}

fn one_daemon() {
    let mut p4vm = Orphan::new(Some(PATIENCE));
    let mut channel = p4vm.rig.attach(7);
    let mut other = p4vm.connect();
    let early = other.call(Request::Status, &Resources::none(), SHORT);
    assert!(matches!(early, Err(ClientError::Socket(SocketError::Timeout(_)))), "{early:?}");
    assert_eq!(p4vm.rig.status().channels.len(), 1, "its own daemon is served");
    p4vm.rig.hang_up();
    assert_eq!(channel.judge(Direction::Egress, 1).0, Verdict::Pass, "it judges without a daemon");
    // The connection that waited did not ask for adoption.
    let mut next = p4vm.connect();
    let reply = adopt(&mut next, PROTOCOL_VERSION, PATIENCE).unwrap();
    assert!(matches!(reply, Reply::Hello { version: PROTOCOL_VERSION, .. }), "{reply:?}");
    assert_eq!(next.peer(), Some(p4vm.rig.pid), "the kernel names the process");
    p4vm.rig.client = next;
    let status = p4vm.rig.status();
    assert_eq!((status.channels[0].channel, status.vms.len()), (7, 1));
    assert!(status.vms[0].directions[1].program.is_some());
    assert_eq!(channel.judge(Direction::Egress, 1).0, Verdict::Pass);
    let again = p4vm.rig.ask(Request::Adopt { version: PROTOCOL_VERSION }, &[&memory("stderr", b"")]);
    assert!(matches!(again, Err(ClientError::Failed(_))), "{again:?}");
}

fn only_adoption() {
    let mut p4vm = Orphan::new(Some(PATIENCE));
    p4vm.rig.hang_up();
    let mut first = p4vm.connect();
    let refused = first.call(Request::Status, &Resources::none(), PATIENCE);
    assert!(matches!(&refused, Err(ClientError::Failed(why)) if why.contains("Adopt")), "{refused:?}");
    let closed = first.call(Request::Status, &Resources::none(), PATIENCE);
    assert!(matches!(closed, Err(ClientError::Socket(SocketError::Closed))), "{closed:?}");
    let mut older = p4vm.connect();
    let refused = adopt(&mut older, PROTOCOL_VERSION - 1, PATIENCE);
    assert!(matches!(&refused, Err(ClientError::Failed(why)) if why.contains("version")), "{refused:?}");
    // A connection that says nothing, and one that is closed, delay the next only.
    drop(p4vm.connect());
    let mut next = p4vm.connect();
    adopt(&mut next, PROTOCOL_VERSION, PATIENCE).unwrap();
    // The next daemon may be lost, too.
    drop(next);
    let mut last = p4vm.connect();
    adopt(&mut last, PROTOCOL_VERSION, PATIENCE).unwrap();
    p4vm.rig.client = last;
    assert_eq!(p4vm.rig.status().vms.len(), 1);
}

fn no_patience() {
    for patience in [None, Some(Duration::from_millis(50))] {
        let mut p4vm = Orphan::new(patience);
        let pid = p4vm.rig.pid.as_raw_pid();
        p4vm.rig.hang_up();
        let end = std::time::Instant::now() + PATIENCE;
        let runs = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|s| !s.is_empty() && !s.starts_with('Z'))
        };
        while runs() {
            assert!(std::time::Instant::now() < end, "it goes on after {patience:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
