//! A stand-in for QEMU in the tests of hostile machines. It has all that an attacker has who took over
//! QEMU: its user, its sockets, and every region of memory that is plugged into the machine. Until an attack
//! begins it serves as a P4 VM in a machine does, and passes every packet.

use p4shield_abi::channel::Geometry;
use p4shield_channel::{Memory, RequestBatch, Responder, Response, SharedMemory};
use p4shield_control::{Envelope, PROTOCOL_VERSION, Reply, Request, SandboxReport, decode, encode};
use p4shield_line::{
    Attachment, CARRIED_VERSION, CarriedRequest, FrameReader, FromGuest, MAX_FROM_GUEST, MAX_TO_GUEST,
    encode_frame,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, Signal, getpid, kill_process, pidfd_getfd, pidfd_open};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The file of the folder that names an attack.
pub(crate) const ATTACK: &str = "attack";
/// Time between two looks for it.
const LOOK: Duration = Duration::from_millis(100);

/// An attacker's deed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Stops the whole process.
    Stop,
    /// Floods the console, and judges no packet.
    Console,
    /// Floods the lines that are read, and reads none.
    Lines,
    /// Sends what no request asked for.
    Nonsense,
    /// Writes rubbish into all regions and cuts those that are not sealed, while everything is answered.
    Regions,
    /// Renounces the signal at the end of its parent, and answers no more.
    Outlive,
}

impl Attack {
    pub(crate) const ALL: [Self; 6] =
        [Self::Stop, Self::Console, Self::Lines, Self::Nonsense, Self::Regions, Self::Outlive];
}

/// State of all threads.
#[derive(Default)]
struct Shared {
    /// By slots of the bridge and behind it.
    regions: Mutex<BTreeMap<(u8, u8), OwnedFd>>,
    channels: Mutex<Vec<(Responder, RequestBatch)>>,
    /// Set once requests are neither read nor answered.
    deaf: AtomicBool,
}

/// Serves until an attack begins.
pub(crate) fn run(folder: &Path, arguments: &[String]) -> Result<(), String> {
    let [console, messages, rings, qmp] =
        ["console", "messages", "rings", "qmp"].map(|line| inherited(line, arguments));
    let shared = Arc::new(Shared::default());
    let [of_qmp, of_messages] = [Arc::clone(&shared), Arc::clone(&shared)];
    let mut lines = [console, messages, rings, qmp];
    let [_, messages, _, qmp] = lines.each_ref().map(|line| line.try_clone().expect("descriptors"));
    std::thread::spawn(move || monitor(qmp, &of_qmp));
    std::thread::spawn(move || answer(messages, &of_messages));
    let mut looked = Instant::now();
    loop {
        judge(&shared);
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            let name = std::fs::read_to_string(folder.join(ATTACK)).unwrap_or_default();
            if let Some(attack) = Attack::ALL.into_iter().find(|a| format!("{a:?}") == name) {
                begin(attack, &shared, &mut lines);
            }
        }
        std::thread::yield_now();
    }
}

/// Returns an inherited socket.
fn inherited(line: &str, arguments: &[String]) -> UnixStream {
    let prefix = format!("socket,id={line},fd=");
    let number = arguments.iter().find_map(|a| a.strip_prefix(&prefix)?.parse().ok());
    let own = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
    let socket = pidfd_getfd(own, number.expect("a line"), PidfdGetfdFlags::empty());
    socket.expect("an inherited descriptor").into()
}

/// Passes all packets.
fn judge(shared: &Shared) {
    for (responder, batch) in shared.channels.lock().unwrap().iter_mut() {
        for _ in 0..responder.fetch(batch).unwrap_or(0) {
            responder.respond(Response::Pass).expect("an open request");
        }
        // The mediator of these tests does not sleep.
        let _ = responder.publish();
    }
}

/// Attacks without end.
fn begin(attack: Attack, shared: &Shared, lines: &mut [UnixStream; 4]) {
    let [console, messages, rings, qmp] = lines;
    shared.deaf.store(matches!(attack, Attack::Lines | Attack::Outlive), Ordering::Release);
    let noise = b"[    6.660000] \x1b[2J\x07 attack\xff\n".repeat(2000);
    let event = format!("{{\"event\": \"{}\"}}\n", "X".repeat(4000));
    match attack {
        Attack::Stop => kill_process(getpid(), Signal::STOP).expect("this process"),
        Attack::Outlive => rustix::process::set_parent_process_death_signal(None).unwrap_or_default(),
        Attack::Nonsense => messages.write_all(&[0xff; 64]).unwrap_or_default(),
        Attack::Lines => [&*rings, &*qmp].into_iter().for_each(|line| {
            line.set_nonblocking(true).expect("a socket");
        }),
        Attack::Console | Attack::Regions => {}
    }
    // As long as the process lives; the judgment has ended.
    loop {
        match attack {
            Attack::Console => console.write_all(&noise).unwrap_or_default(),
            // What does not fit waits for the next round.
            Attack::Lines => {
                let _ = rings.write(&std::array::from_fn::<u8, 256, _>(|n| n as u8));
                let _ = qmp.write(event.as_bytes());
            }
            Attack::Regions => scribble(shared),
            Attack::Stop | Attack::Nonsense | Attack::Outlive => std::thread::sleep(LOOK),
        }
    }
}

/// Writes rubbish into all regions, and cuts those that can be cut.
fn scribble(shared: &Shared) {
    let rubbish: Vec<u8> = (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for file in shared.regions.lock().unwrap().values() {
        let len = rustix::fs::fstat(file).map_or(0, |stat| stat.st_size as u64);
        for at in (0..len).step_by(rubbish.len()) {
            let _ = rustix::io::pwrite(file, &rubbish, at);
        }
        for len in [0, 1] {
            let _ = rustix::fs::ftruncate(file, len);
        }
    }
    for (responder, _) in shared.channels.lock().unwrap().iter() {
        let memory = responder.memory();
        for at in (0..memory.len()).step_by(rubbish.len()) {
            memory.copy_in(at, &rubbish[..rubbish.len().min(memory.len() - at)]);
        }
    }
}

/// Answers QEMU's machine protocol, and keeps what is plugged.
fn monitor(mut socket: UnixStream, shared: &Shared) {
    let mut objects: BTreeMap<String, OwnedFd> = BTreeMap::new();
    let mut files: BTreeMap<String, OwnedFd> = BTreeMap::new();
    let mut received = Vec::new();
    socket.write_all(b"{\"QMP\": {}}\n").expect("the other end");
    while !shared.deaf.load(Ordering::Acquire) {
        let sent = receive(&socket, &mut received);
        let Some(end) = received.iter().position(|b| *b == b'\n') else { return };
        let line: Vec<u8> = received.drain(..=end).collect();
        let command: Value = serde_json::from_slice(&line).expect("JSON");
        let arguments = &command["arguments"];
        let word = |key: &str| arguments[key].as_str().unwrap_or_default().to_owned();
        let mut result = Ok(json!({}));
        match command["execute"].as_str().unwrap_or_default() {
            "add-fd" => {
                let file = sent.expect("a descriptor");
                result = Ok(json!({ "fd": file.as_raw_fd(), "fdset-id": 1 }));
                files.insert(format!("/proc/self/fd/{}", file.as_raw_fd()), file);
            }
            "object-add" => {
                let file = files.remove(&word("mem-path")).expect("a file");
                let len = rustix::fs::fstat(&file).expect("a file").st_size;
                // QEMU refuses it.
                if Some(len) == arguments["size"].as_i64() {
                    objects.insert(word("id"), file);
                } else {
                    result = Err(format!("backing store size {len} does not match"));
                }
            }
            "device_add" => {
                let bridge = word("bus").strip_prefix("bridge").and_then(|n| n.parse::<u8>().ok());
                let slot = u8::from_str_radix(&word("addr"), 16).expect("a slot");
                let place = (0x10 + bridge.expect("a bridge"), slot);
                let file = objects.remove(&word("memdev")).expect("an object");
                shared.regions.lock().unwrap().insert(place, file);
            }
            "device_del" => {
                let event = json!({ "event": "DEVICE_DELETED", "data": { "device": word("id") } });
                socket.write_all(format!("{event}\n").as_bytes()).expect("the other end");
            }
            _ => {}
        }
        let said = match result {
            Ok(result) => json!({ "return": result }),
            Err(why) => json!({ "error": { "desc": why } }),
        };
        socket.write_all(format!("{said}\n").as_bytes()).expect("the other end");
    }
}

/// Receives bytes, with a descriptor if one comes.
fn receive(socket: &UnixStream, to: &mut Vec<u8>) -> Option<OwnedFd> {
    let (mut buffer, mut space) = ([0; 4096], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let received = rustix::net::recvmsg(socket.as_fd(), &mut parts, &mut ancillary, RecvFlags::empty());
    let len = received.map_or(0, |message| message.bytes);
    to.extend_from_slice(&buffer[..len]);
    let mut files = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    files.next().and_then(|mut files| files.next())
}

/// Answers the daemon's requests as a P4 VM does.
fn answer(mut line: UnixStream, shared: &Shared) {
    let send = |mut line: &UnixStream, body: &FromGuest| {
        let _ = line.write_all(&encode_frame(body, MAX_FROM_GUEST).expect("a frame"));
    };
    send(&line, &FromGuest::Ready { version: CARRIED_VERSION });
    let (mut frames, mut buffer) = (FrameReader::new(MAX_TO_GUEST), [0; 4096]);
    while let Ok(n @ 1..) = line.read(&mut buffer) {
        frames.extend(&buffer[..n]);
        while let Ok(Some(CarriedRequest { message, attachments, .. })) = frames.take() {
            if shared.deaf.load(Ordering::Acquire) {
                return;
            }
            let Envelope { id, body } = decode(&message).expect("a request");
            let reply = Envelope { id, body: reply_to(&body, &attachments, shared) };
            send(&line, &FromGuest::Reply(encode(&reply).expect("a reply")));
        }
    }
}

fn reply_to(request: &Request, attachments: &[Attachment], shared: &Shared) -> Reply {
    match (request, attachments) {
        (Request::Hello(_), _) => {
            Reply::Hello { version: PROTOCOL_VERSION, sandbox: SandboxReport::default() }
        }
        (Request::Status, _) => Reply::Status(Box::default()),
        (Request::LoadProgram { .. }, _) => Reply::Loaded { digest: [7; 32], instructions: 1 },
        (Request::AttachChannel { geometry, .. }, [Attachment::Region { bridge, slot, len, .. }, ..]) => {
            let geometry = Geometry::from(*geometry);
            let regions = shared.regions.lock().unwrap();
            let file = regions[&(*bridge, *slot)].try_clone().expect("descriptors");
            let memory = SharedMemory::from_fd(file, *len as usize).expect("a channel's memory");
            let responder = Responder::new(memory, geometry).expect("a channel");
            shared.channels.lock().unwrap().push((responder, RequestBatch::new(&geometry)));
            Reply::Done
        }
        _ => Reply::Done,
    }
}
