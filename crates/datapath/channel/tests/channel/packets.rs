//! Headers in the switch's packet memory: honest ends, the protection of that memory, and mediators
//! with false offsets.

use p4shield_abi::channel::{Geometry, REQUEST_HEAD, Request};
use p4shield_channel::{
    ChannelFault, Memory, PacketMemory, Requester, Responder, Response, SharedMemory, ShmError,
    create_channel,
};
use proptest::prelude::*;
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect};
use std::sync::atomic::Ordering::Relaxed;

const GEOMETRY: Geometry = Geometry { slots: 8, header_bytes: 100, headroom: 60 };
const LEN: usize = 8192;

/// A switch's packet memory: its mapping and its descriptor.
struct Switch {
    fd: OwnedFd,
    bytes: &'static mut [u8],
}

fn memfd() -> OwnedFd {
    let fd = memfd_create("packets", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
    ftruncate(&fd, LEN as u64).expect("memory");
    fd
}

impl Switch {
    fn new() -> Self {
        let fd = memfd();
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which is never unmapped; this process has no other that is written.
        let bytes = unsafe {
            let at = mmap(std::ptr::null_mut(), LEN, prot, MapFlags::SHARED, &fd, 0).expect("a mapping");
            std::slice::from_raw_parts_mut(at.cast::<u8>(), LEN)
        };
        PacketMemory::seal(&fd).expect("it can be sealed");
        Self { fd, bytes }
    }

    /// Returns both ends of a channel over it, and a mapping of the channel for tests with a hostile
    /// mediator.
    fn ends(&self) -> (Requester, Responder, SharedMemory) {
        let memory = create_channel("test", GEOMETRY).expect("memory");
        let responder = Responder::new(memory.map_again().expect("memory"), GEOMETRY).expect("valid");
        let hostile = memory.map_again().expect("memory");
        let range = self.bytes.as_ptr_range();
        let requester = Requester::new(memory, GEOMETRY).expect("valid");
        let packets = PacketMemory::from_fd(&self.fd, LEN).expect("it is sealed");
        (
            requester.with_packet_memory(range.start.addr()..range.end.addr()),
            responder.with_packet_memory(packets),
            hostile,
        )
    }
}

fn request(id: u64, packet_len: usize) -> Request {
    Request { id, packet_len: packet_len as u32, ..Request::default() }
}

#[test]
fn headers_are_read_from_packet_memory_and_rewritten() {
    let switch = Switch::new();
    for (n, byte) in switch.bytes.iter_mut().enumerate() {
        *byte = (n * 7 / 3) as u8;
    }
    let (mut requester, mut responder, _) = switch.ends();
    let packets = [0..60, 777..977, LEN - 64..LEN];
    for (id, place) in packets.clone().into_iter().enumerate() {
        let packet = &switch.bytes[place];
        requester.push(&request(id as u64, packet.len()), packet).expect("there is room");
    }
    let _ = requester.publish();
    let mut seen = Vec::new();
    let fetched = responder.fetch_with(8, |_, frame| {
        let mut header = [0; 100];
        let len = frame.copy_to(&mut header);
        seen.push(header[..len].to_vec());
    });
    assert_eq!(fetched, Ok(3));
    for (header, place) in seen.iter().zip(packets) {
        assert_eq!(header, &switch.bytes[place][..header.len()]);
    }
    assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), [60, 100, 64], "no more than header bytes");
    // One grows, one shrinks, one passes unchanged.
    let (grown, cut) = ([1_u8; 90], [2_u8; 20]);
    responder.respond(Response::Rewritten { header: &grown, packet_len: 90 }).expect("it fits");
    responder.respond(Response::Rewritten { header: &cut, packet_len: 100 }).expect("it fits");
    responder.respond(Response::Pass).expect("a request is open");
    let _ = responder.publish();
    let mut answers = Vec::new();
    let taken = requester.take(8, |a| {
        answers.push(a.rewrite.map(|r| (r.replaced, r.header.to_vec(), r.packet_len)));
    });
    assert_eq!(taken, Ok(3));
    assert_eq!(answers, [Some((60, grown.to_vec(), 90)), Some((100, cut.to_vec(), 100)), None]);
}

#[test]
fn no_byte_outside_packet_memory_is_submitted() {
    let switch = Switch::new();
    let (mut requester, mut responder, _) = switch.ends();
    requester.push(&request(1, 60), &[9; 60]).expect("there is room");
    let _ = requester.publish();
    assert_eq!(responder.fetch_with(1, |r, frame| assert_eq!((r.copy_len, frame.len()), (0, 0))), Ok(1));
}

#[test]
fn a_p4vm_cannot_write_packet_memory() {
    let switch = Switch::new();
    let fd = &switch.fd;
    let map = |prot| {
        // SAFETY: a new mapping that is not used.
        unsafe { mmap(std::ptr::null_mut(), LEN, prot, MapFlags::SHARED, fd, 0) }
    };
    assert_eq!(map(ProtFlags::READ | ProtFlags::WRITE).unwrap_err(), Errno::PERM);
    let at = map(ProtFlags::READ).expect("to be read");
    // SAFETY: this test's own mapping.
    let made_writable = unsafe { mprotect(at, LEN, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(made_writable.unwrap_err(), Errno::ACCESS);
    assert_eq!(rustix::io::pwrite(fd, b"x", 0).unwrap_err(), Errno::PERM);
    for len in [0, LEN as u64 / 2, 2 * LEN as u64] {
        assert_eq!(ftruncate(fd, len).unwrap_err(), Errno::PERM, "or make the switch fault");
    }
    assert_eq!(fcntl_add_seals(fd, SealFlags::WRITE).unwrap_err(), Errno::PERM);
}

#[test]
fn writable_or_resizable_packet_memory_is_refused() {
    let fd = memfd();
    assert!(matches!(PacketMemory::from_fd(&fd, LEN), Err(ShmError::NotSealed { .. })));
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).expect("seals");
    assert!(matches!(PacketMemory::from_fd(&fd, LEN), Err(ShmError::NotSealed { .. })), "it can be written");
    assert!(matches!(PacketMemory::from_fd(&Switch::new().fd, LEN + 1), Err(ShmError::Size { .. })));
}

proptest! {
    /// A mediator gives any offset and length: the P4 VM reads within the memory or not at all.
    #[test]
    fn arbitrary_offsets_read_packet_memory_or_nothing(
        offset in prop_oneof![any::<u64>(), 0..2 * LEN as u64, u64::MAX - 200..=u64::MAX],
        packet_len: u32,
        copy_len: u16,
    ) {
        let switch = Switch::new();
        switch.bytes.fill(0xa5);
        let (_, mut responder, hostile) = switch.ends();
        hostile.store_u64(GEOMETRY.frames(), offset, Relaxed);
        hostile.store_u64(GEOMETRY.requests() + 16, packet_len.into(), Relaxed);
        hostile.store_u64(GEOMETRY.requests() + 24, copy_len.into(), Relaxed);
        hostile.store_u32(REQUEST_HEAD, 1, Relaxed);
        let due = usize::from(copy_len).min(100).min(packet_len as usize);
        let inside = offset.checked_add(due as u64).is_some_and(|end| end <= LEN as u64);
        let mut read = None;
        let result = responder.fetch_with(1, |_, frame| {
            let mut header = [0; 100];
            let len = frame.copy_to(&mut header);
            read = Some(header[..len].to_vec());
        });
        if inside {
            prop_assert_eq!((result, read), (Ok(1), Some(vec![0xa5; due])));
        } else {
            let fault = ChannelFault::Outside { offset, len: due as u16 };
            prop_assert_eq!((result, read), (Err(fault), None));
            prop_assert_eq!(responder.fetch_with(1, |_, _| panic!("a fault sticks")), Err(fault));
        }
    }
}
