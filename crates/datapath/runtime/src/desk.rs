//! What the host asks for, carried out: programs linked, proven and compiled, VMs made from their pages.
//!
//! Who proves programs and who runs them differs: in a P4 VM a process of its own and the worker's thread, in the placement
//! `inline` the host's word and the switch's threads ([`crate::inline`]).

use crate::program::{self, Prove};
use crate::worker::{Answer, Control, Order, Served, Vm};
use p4shield_abi::channel::Geometry;
use p4shield_abi::info_page::INFO_PAGE_SIZE;
use p4shield_abi::log_page::LOG_PAGE_SIZE;
use p4shield_channel::{Doorbell, PacketMemory, Responder, SharedMemory};
use p4shield_control::{
    Hello, MAX_NAME, MAX_OBJECTS, MAX_VMS, PROTOCOL_VERSION, ProgramSlot, Reply, Request, WireGeometry,
};
use p4shield_seal::{AgeLimit, Identity, KEY_SIZE, TenantKey};
use std::os::fd::OwnedFd;
use std::time::Duration;
use zeroize::Zeroizing;

/// The most bytes of entries in one answer.
const ENTRIES_BYTES: usize = 96 << 10;

/// Whoever runs programs.
pub(crate) trait Run {
    /// Has something done, and waits for it. `None` if nobody is there any more.
    fn order(&self, order: Order) -> Option<Answer>;
}

impl Run for Control {
    fn order(&self, order: Order) -> Option<Answer> {
        Self::order(self, order)
    }
}

/// Carries out requests.
pub(crate) struct Desk<V, W> {
    pub(crate) verifier: V,
    pub(crate) worker: W,
    tenant: Tenant,
}

/// What the host said in its first message.
#[derive(Default)]
struct Tenant {
    name: String,
    key: Option<TenantKey>,
    limit: AgeLimit,
    budget: u64,
    min_epoch: u64,
}

/// Why a request is answered with [`Reply::Failed`].
pub(crate) type Failure = String;

impl<V: Prove, W: Run> Desk<V, W> {
    pub(crate) fn new(verifier: V, worker: W) -> Self {
        Self { verifier, worker, tenant: Tenant::default() }
    }

    /// Notes what the host says of the tenant.
    pub(crate) fn introduce(&mut self, hello: &Hello, descriptors: Vec<OwnedFd>) -> Result<(), Failure> {
        if hello.version != PROTOCOL_VERSION {
            return Err(format!(
                "this P4 VM speaks version {PROTOCOL_VERSION} of the control protocol and the host {}; restart the host daemon",
                hello.version
            ));
        }
        check_name("tenant", &hello.tenant)?;
        let max_age = Duration::from_millis(hello.age_limit_ms.into());
        self.tenant = Tenant {
            name: hello.tenant.clone(),
            key: descriptors.first().map(read_key).transpose()?,
            limit: AgeLimit { max_age, ..AgeLimit::default() },
            budget: hello.budget,
            min_epoch: hello.min_epoch,
        };
        Ok(())
    }

    /// Carries out a request with the descriptors that belong to it.
    pub(crate) fn handle(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> Result<Reply, Failure> {
        match request {
            Request::Hello(_) => Err("Hello was said already".to_owned()),
            Request::SetVm { vm, name, info, log } => self.set_vm(vm, &name, (info, log), descriptors),
            Request::LoadProgram { slot, name, objects } => self.load(slot, &name, &objects, descriptors),
            Request::UnloadProgram { slot } => self.order(Order::SetProgram(slot, None)),
            Request::AttachChannel { channel, geometry, packets } => {
                self.attach(channel, geometry, packets, descriptors)
            }
            Request::DetachChannel { channel } => self.order(Order::Detach(channel)),
            Request::MapRead { slot, map, key, skip } => {
                let work =
                    move |p: &mut program::Loaded| p.read_map(&map, key.as_deref(), skip, ENTRIES_BYTES);
                self.order(Order::WithProgram(slot, Box::new(work)))
            }
            Request::MapWrite { slot, map, key, value } => {
                let work =
                    move |p: &mut program::Loaded| p.write_map(&map, &key, value.as_deref()).map(|()| vec![]);
                self.order(Order::WithProgram(slot, Box::new(work)))
            }
            Request::Status => self.order(Order::Status),
            Request::Stop => Ok(Reply::Done),
        }
    }

    /// Has the worker do something. What it hands back is freed here, not there.
    fn order(&self, order: Order) -> Result<Reply, Failure> {
        match self.worker.order(order) {
            Some(Answer::Done | Answer::Retired(_) | Answer::Detached(..)) => Ok(Reply::Done),
            Some(Answer::Worked(entries)) => entries.map(Reply::Entries),
            Some(Answer::Status(status)) => Ok(Reply::Status(status)),
            Some(Answer::Failed(why)) => Err(why),
            None => Err("the worker has ended".to_owned()),
        }
    }

    fn set_vm(
        &self,
        vm: u16,
        name: &str,
        (info, log): (bool, bool),
        descriptors: Vec<OwnedFd>,
    ) -> Result<Reply, Failure> {
        check_name("VM", name)?;
        if vm >= MAX_VMS {
            return Err(format!("VM {vm} cannot be: a tenant has at most {MAX_VMS}"));
        }
        let mut descriptors = descriptors.into_iter();
        let mut page = |wanted: bool, len| {
            let fd = if wanted { descriptors.next() } else { None };
            fd.map(|fd| SharedMemory::from_page_fd(fd, len)).transpose().map_err(|e| chain(&e))
        };
        let (info, log) = (page(info, INFO_PAGE_SIZE)?, page(log, LOG_PAGE_SIZE)?);
        let identity = Identity { tenant: &self.tenant.name, vm: name };
        let vm = Vm::new(
            vm,
            &identity,
            self.tenant.key.as_ref(),
            self.tenant.limit,
            info,
            log,
            self.tenant.min_epoch,
        )
        .map_err(|e| chain(&e))?;
        self.order(Order::SetVm(Box::new(vm)))
    }

    fn load(
        &mut self,
        slot: ProgramSlot,
        name: &str,
        lengths: &[u32],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Reply, Failure> {
        check_name("program", name)?;
        let bytes = read_objects(&descriptors, lengths)?;
        let mut rest = bytes.as_slice();
        let mut objects = Vec::with_capacity(lengths.len());
        for len in lengths {
            let (object, tail) = rest.split_at(*len as usize);
            objects.push(object);
            rest = tail;
        }
        let loaded = match program::build(&objects, &mut self.verifier, self.tenant.budget) {
            Ok(loaded) => loaded,
            Err(e) => return Ok(Reply::Refused(e)),
        };
        let (digest, instructions) = (loaded.digest(), loaded.instructions());
        self.order(Order::SetProgram(slot, Some(Box::new(loaded))))?;
        Ok(Reply::Loaded { digest, instructions })
    }

    fn attach(
        &self,
        channel: u32,
        geometry: WireGeometry,
        packets: Option<u64>,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<Reply, Failure> {
        let geometry = Geometry::from(geometry);
        // Before its size is computed: numbers out of range would overflow.
        if !geometry.is_valid() {
            return Err(format!("a channel cannot have the geometry {geometry:?}"));
        }
        let packets = packets.map(|len| packet_memory(descriptors.pop(), len)).transpose()?;
        let [memory, bell] =
            <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| "descriptors are missing".to_owned())?;
        let memory = SharedMemory::from_fd(memory, geometry.size()).map_err(|e| chain(&e))?;
        let mut judge = Responder::new(memory, geometry).map_err(|e| chain(&e))?;
        if let Some(packets) = packets {
            judge = judge.with_packet_memory(packets);
        }
        let served = Box::new(Served::new(channel, judge, &geometry));
        self.order(Order::Attach(served, Doorbell::from_fd(bell)))
    }
}

/// Maps the switch's packet memory.
fn packet_memory(fd: Option<OwnedFd>, len: u64) -> Result<PacketMemory, Failure> {
    let fd = fd.ok_or("the packet memory is missing")?;
    let len = usize::try_from(len).map_err(|e| e.to_string())?;
    PacketMemory::from_fd(&fd, len).map_err(|e| format!("the switch's packet memory: {}", chain(&e)))
}

/// Reads the key from the file that the host opened.
fn read_key(fd: &OwnedFd) -> Result<TenantKey, Failure> {
    let mut bytes = Zeroizing::new([0; KEY_SIZE + 1]);
    match rustix::io::pread(fd, &mut bytes[..], 0) {
        Ok(KEY_SIZE) => {
            let key = bytes.first_chunk().expect("the buffer is longer than a key");
            Ok(TenantKey::from_bytes(*key))
        }
        Ok(n) => Err(format!("the key file has {n} bytes instead of {KEY_SIZE}")),
        Err(e) => Err(format!("the key file cannot be read: {e}")),
    }
}

/// Copies the objects into private memory, once: whoever else holds the memory may change it at any time.
fn read_objects(descriptors: &[OwnedFd], lengths: &[u32]) -> Result<Vec<u8>, Failure> {
    let total = lengths.iter().try_fold(0_usize, |sum, n| sum.checked_add(*n as usize));
    let total = total.filter(|n| *n <= MAX_OBJECTS && !lengths.is_empty());
    let total =
        total.ok_or_else(|| format!("a program has at least one object and at most {MAX_OBJECTS} bytes"))?;
    let fd = descriptors.first().ok_or("the objects are missing")?;
    let mut bytes = vec![0; total];
    let mut at = 0;
    while at < total {
        match rustix::io::pread(fd, &mut bytes[at..], at as u64) {
            Ok(0) => return Err(format!("the objects end after {at} of {total} bytes")),
            Ok(n) => at += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(format!("the objects cannot be read: {e}")),
        }
    }
    Ok(bytes)
}

/// Names become part of keys, logs and metrics: one to [`MAX_NAME`] letters, digits, `.`, `_` and `-`.
fn check_name(what: &str, name: &str) -> Result<(), Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    Err(format!("a {what}'s name has 1 to {MAX_NAME} letters, digits, dots, dashes and underscores"))
}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text.push_str(": ");
        text.push_str(&e.to_string());
        cause = e.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    fn memory(bytes: &[u8]) -> OwnedFd {
        let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&fd, bytes).unwrap();
        fd
    }

    #[test]
    fn objects_are_read_within_what_was_announced() {
        let fds = [memory(b"abcdef")];
        assert_eq!(read_objects(&fds, &[2, 3]).unwrap(), b"abcde");
        assert!(read_objects(&fds, &[7]).unwrap_err().contains("after 6 of 7"));
        assert!(read_objects(&fds, &[]).is_err());
        assert!(read_objects(&fds, &[u32::MAX; 4]).is_err(), "nothing of that size is allocated");
        assert!(read_objects(&[], &[1]).is_err());
    }

    #[test]
    fn a_key_has_its_size() {
        assert!(read_key(&memory(&[7; KEY_SIZE])).is_ok());
        assert!(read_key(&memory(&[7; KEY_SIZE + 1])).is_err());
        assert!(read_key(&memory(&[])).is_err());
    }

    #[test]
    fn names_are_plain() {
        for good in ["a", "web-1.example_2"] {
            check_name("VM", good).unwrap();
        }
        for bad in ["", "a b", "a/b", "ä", "a\n", &"x".repeat(MAX_NAME + 1)] {
            assert!(check_name("VM", bad).is_err(), "{bad:?}");
        }
    }
}
