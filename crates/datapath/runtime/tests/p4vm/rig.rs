//! The host and the mediator of one P4 VM.

use p4shield_abi::channel::{Geometry, Request as Packet};
use p4shield_abi::info_page::INFO_PAGE_SIZE;
use p4shield_abi::log_page::LOG_PAGE_SIZE;
use p4shield_abi::{Direction, Verdict};
use p4shield_channel::{Doorbell, Requester, SharedMemory, create_channel};
use p4shield_control::{
    Client, ClientError, Hello, MapQuery, PROTOCOL_VERSION, ProgramSlot, Reply, Request, ResourceId,
    Resources, Socket, Status, VmKeys,
};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Far longer than any step takes, so that a test that hangs ends.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) const KEY: [u8; 32] = [0x5a; 32];
pub(crate) const INGRESS: ProgramSlot = ProgramSlot::new(0, Direction::Ingress);
pub(crate) const EGRESS: ProgramSlot = ProgramSlot::new(0, Direction::Egress);

/// A running P4 VM.
pub(crate) struct Rig {
    pub(crate) client: Client,
    pub(crate) pid: Pid,
}

/// The mediator's end of a channel.
pub(crate) struct Mediator {
    pub(crate) requester: Requester,
    pub(crate) bell: Doorbell,
    next: u64,
}

/// Starts a P4 VM without sending `Hello`.
pub(crate) fn spawn() -> Socket {
    spawn_with(&[])
}

fn spawn_with(options: &[&str]) -> Socket {
    let (ours, theirs) = Socket::pair().unwrap();
    ours.ask_for_senders().unwrap();
    let mut command = Command::new("/proc/self/exe");
    let mut child = command.arg("p4vm").args(options).stdin(Stdio::from(theirs.into_fd())).spawn().unwrap();
    drop(command);
    // The started process waits for a first message, then forks the P4 VM and ends.
    std::thread::spawn(move || child.wait());
    ours
}

/// Starts a P4 VM that has a socket to what collects evidence. Returns the other end of that, too.
pub(crate) fn spawn_with_evidence() -> (Socket, Socket) {
    let (evidence, theirs) = Socket::pair().unwrap();
    let theirs = theirs.into_fd();
    fcntl_setfd(&theirs, FdFlags::empty()).unwrap();
    (spawn_with(&[&theirs.as_raw_fd().to_string()]), evidence)
}

pub(crate) fn hello() -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        tenant: "red".into(),
        door: None,
        no_program: Verdict::Drop as u8,
        age_limit_ms: 60_000,
        log_interval_ms: 20,
        budget: 1 << 18,
        min_epoch: 0,
    }
}

/// A VM without pages.
pub(crate) fn set_vm(vm: u16, name: &str) -> Request {
    Request::SetVm { vm, name: name.into(), info: None, log: None, handshake: None, keys: None }
}

/// The resources of a request, in the order in which a test lists their files.
pub(crate) const FIRST: ResourceId = ResourceId(0);
pub(crate) const SECOND: ResourceId = ResourceId(1);
pub(crate) const THIRD: ResourceId = ResourceId(2);

/// A VM with a log page and a key.
pub(crate) fn set_vm_with_log() -> Request {
    let keys = Some(VmKeys { current: SECOND, previous: None });
    Request::SetVm { vm: 0, name: "web".into(), info: None, log: Some(FIRST), handshake: None, keys }
}

/// Returns files as the resources of a request.
pub(crate) fn resources<'a>(files: &[&'a OwnedFd]) -> Resources<'a> {
    let mut resources = Resources::none();
    for file in files {
        resources.add(*file);
    }
    resources
}

/// A channel whose headers are copied.
pub(crate) fn attach(channel: u32, geometry: Geometry) -> Request {
    let geometry = geometry.into();
    Request::AttachChannel { channel, geometry, memory: FIRST, doorbell: SECOND, packets: None }
}

impl Rig {
    /// Starts a P4 VM and sends `Hello`.
    pub(crate) fn start(hello: Hello) -> Self {
        Self::greet(spawn(), hello)
    }

    /// Sends `Hello` to a P4 VM.
    pub(crate) fn greet(socket: Socket, hello: Hello) -> Self {
        let mut client = Client::new(socket);
        let reply = client.call(Request::Hello(hello), &Resources::none(), PATIENCE).unwrap();
        let Reply::Hello { sandbox, .. } = reply else { panic!("{reply:?}") };
        assert!(sandbox.missing.is_empty() && sandbox.landlock_abi >= 1, "{sandbox:?}");
        let pid = client.peer().unwrap();
        Self { client, pid }
    }

    /// Starts a P4 VM with one VM without pages.
    pub(crate) fn with_vm() -> Self {
        let mut rig = Self::start(hello());
        rig.ask(set_vm(0, "web"), &[]).unwrap();
        rig
    }

    pub(crate) fn ask(&mut self, request: Request, fds: &[&OwnedFd]) -> Result<Reply, ClientError> {
        self.client.call(request, &resources(fds), PATIENCE)
    }

    pub(crate) fn load(&mut self, slot: ProgramSlot, source: &str) -> Result<[u8; 32], ClientError> {
        self.load_object(slot, &crate::programs::object(source))
    }

    pub(crate) fn load_object(&mut self, slot: ProgramSlot, object: &[u8]) -> Result<[u8; 32], ClientError> {
        let lengths = vec![object.len() as u32];
        let request = Request::LoadProgram { slot, name: "test".into(), objects: FIRST, lengths };
        match self.ask(request, &[&memory("objects", object)])? {
            Reply::Loaded { digest, .. } => Ok(digest),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn attach(&mut self, channel: u32) -> Mediator {
        let geometry = Geometry { slots: 256, ..Geometry::default() };
        let memory = create_channel("test", geometry).unwrap();
        let (ours, theirs) = Doorbell::pair().unwrap();
        let theirs = theirs.into_fd();
        let fd = memory.fd().unwrap().try_clone_to_owned().unwrap();
        let request = attach(channel, geometry);
        self.ask(request, &[&fd, &theirs]).unwrap();
        Mediator { requester: Requester::new(memory, geometry).unwrap(), bell: ours, next: 0 }
    }

    /// Closes the control socket.
    pub(crate) fn hang_up(&mut self) {
        self.client = Client::new(Socket::pair().unwrap().0);
    }

    pub(crate) fn status(&mut self) -> Status {
        match self.ask(Request::Status, &[]).unwrap() {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the value of a program's map for a key, as the daemon reads it.
    pub(crate) fn entry(&mut self, slot: ProgramSlot, map: &str, key: u32) -> Option<u64> {
        let describe = Request::DescribeProgram { slot, maps: 0, schema: 0 };
        let Ok(Reply::Description(description)) = self.ask(describe, &[]) else { return None };
        let map = description.maps.iter().position(|m| m.name == map)?;
        let (program, map) = (description.program, map as u32);
        let query = MapQuery { slot, program, map, from: 0, rows: u32::MAX, zeros: true };
        let Ok(Reply::MapPart(part)) = self.ask(Request::ReadMap(query), &[]) else { return None };
        assert_eq!(part.next, None, "the map fits one part");
        let (_, value) = part.entries.into_iter().find(|(k, _)| k == &key.to_ne_bytes())?;
        Some(u64::from_ne_bytes(value.try_into().unwrap()))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // The P4 VM usually ends with the socket.
        let _ = kill_process(self.pid, Signal::KILL);
    }
}

impl Mediator {
    /// Submits as many packets as there is room for, up to `max`, whose first bytes are `byte(n)`.
    pub(crate) fn push(&mut self, direction: Direction, max: usize, byte: impl Fn(u64) -> u8) -> usize {
        let mut packet = [0_u8; 64];
        let n = self.requester.room().min(max);
        for _ in 0..n {
            let id = self.next;
            self.next += 1;
            packet[0] = byte(id);
            let request = Packet { id, packet_len: 64, direction: direction as u8, ..Packet::default() };
            self.requester.push(&request, &packet).unwrap();
        }
        if self.requester.publish() {
            self.requester.wake(&self.bell);
        }
        n
    }

    /// Wakes a P4 VM that sleeps while answers are pending, as a mediator does at each poll.
    pub(crate) fn wake(&mut self) {
        if self.requester.must_wake() {
            self.requester.wake(&self.bell);
        }
    }

    /// Submits one packet and waits for the verdict, with the new header if it was rewritten.
    pub(crate) fn judge(&mut self, direction: Direction, byte: u8) -> (Verdict, Option<Vec<u8>>) {
        assert_eq!(self.push(direction, 1, |_| byte), 1);
        let mut answer = None;
        wait_for("an answer", || {
            self.wake();
            let take = |a: p4shield_channel::CheckedAnswer<'_>| {
                answer = Some((a.verdict, a.rewrite.map(|r| r.header.to_vec())));
            };
            self.requester.take(1, take).unwrap() == 1
        });
        answer.unwrap()
    }
}

/// Waits until `happened` returns true.
pub(crate) fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < end, "{what} never came");
        std::thread::yield_now();
    }
}

/// Returns a memory file with these bytes.
pub(crate) fn memory(name: &str, bytes: &[u8]) -> OwnedFd {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC).unwrap();
    assert_eq!(rustix::io::write(&fd, bytes).unwrap(), bytes.len());
    fd
}

/// The files of a VM's info page and log page, removed when dropped.
pub(crate) struct Pages {
    pub(crate) info: PathBuf,
    pub(crate) log: PathBuf,
}

impl Pages {
    pub(crate) fn new(name: &str) -> Self {
        let at = |kind: &str| {
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{kind}-{}", std::process::id()))
        };
        let pages = Self { info: at("info"), log: at("log") };
        SharedMemory::create_file(&pages.info, INFO_PAGE_SIZE, 0o600).unwrap();
        SharedMemory::create_file(&pages.log, LOG_PAGE_SIZE, 0o600).unwrap();
        pages
    }

    pub(crate) fn open(path: &Path, len: usize) -> SharedMemory {
        SharedMemory::open_file(path, len).unwrap()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.info);
        let _ = std::fs::remove_file(&self.log);
    }
}
