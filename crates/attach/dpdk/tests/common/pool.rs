//! Real mbufs from real pools, in this process.
#![allow(dead_code, reason = "each test file uses its part of it")]

use p4shield_dpdk::mbuf::{Mbuf, RawMbuf};
use p4shield_mediator::Packet;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

#[link(name = "p4shield_dpdk_pool", kind = "static")]
unsafe extern "C" {
    fn pool_create(name: *const c_char, count: u32, room: u16) -> *mut c_void;
    fn pool_free_count(pool: *const c_void) -> u32;
    fn pool_packet(pool: *mut c_void) -> *mut RawMbuf;
    fn pool_append(packet: *mut RawMbuf, pool: *mut c_void, bytes: *const u8, len: u16) -> c_int;
    fn pool_write(packet: *mut RawMbuf, bytes: *const u8, len: u16) -> c_int;
    fn pool_clone(packet: *mut RawMbuf, pool: *mut c_void) -> *mut RawMbuf;
    fn pool_external(pool: *mut c_void, buffer: *mut u8, len: *mut u16, freed: *mut u32) -> *mut RawMbuf;
    fn pool_check(packet: *const RawMbuf) -> *const c_char;
    fn pool_packet_len(packet: *const RawMbuf) -> u32;
    fn pool_headroom(packet: *const RawMbuf) -> u16;
    fn pool_read(packet: *const RawMbuf, len: u32, buffer: *mut u8) -> *const u8;
    fn pool_set_flags(packet: *mut RawMbuf, flags: u64, l2: u64, l3: u64, l4: u64);
    fn pool_set_tags(packet: *mut RawMbuf, inner: u16, outer: u16);
    fn pool_tags(packet: *const RawMbuf) -> u32;
    fn pool_flags(packet: *const RawMbuf) -> u64;
    fn pool_offload(packet: *const RawMbuf) -> u64;
    fn pool_port(device: *const c_char, arguments: *const c_char, pool: *mut c_void) -> c_int;
    fn pool_poll(port: u16, packets: *mut *mut RawMbuf, count: u16) -> u16;
}

#[link(name = "rte_eal")]
#[link(name = "rte_mempool")]
#[link(name = "rte_mbuf")]
#[link(name = "rte_ethdev")]
unsafe extern "C" {
    fn rte_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    fn rte_mempool_free(pool: *mut c_void);
    fn rte_eth_dev_count_avail() -> u16;
}

/// Starts DPDK in this process, once: without devices, hugepages or files.
fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        let folder = std::env::temp_dir();
        // SAFETY: called once, before anything here reads the environment.
        unsafe { std::env::set_var("RUNTIME_DIRECTORY", folder) };
        let words = [
            "test",
            "--no-pci",
            "--no-huge",
            "--no-shconf",
            "--no-telemetry",
            "-m",
            "64",
            "--lcores=0@(0-1)",
        ];
        let words = words.map(|w| CString::new(w).expect("no NUL").into_raw());
        let mut argv = words.to_vec();
        // SAFETY: argv holds as many C strings as told, which are never freed.
        let parsed = unsafe { rte_eal_init(words.len() as c_int, argv.as_mut_ptr()) };
        assert!(parsed >= 0, "DPDK does not start");
        // Without this the linker would leave out the library, in which ours looks functions up by name.
        // SAFETY: DPDK runs.
        assert_eq!(unsafe { rte_eth_dev_count_avail() }, 0);
    });
}

/// A pool of packets; freed on drop.
pub(crate) struct Pool {
    raw: *mut c_void,
}

impl Pool {
    /// With `count` buffers of `room` bytes, 128 of which are headroom.
    pub(crate) fn new(count: u32, room: u16) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        start();
        let name = CString::new(format!("p{}", NUMBER.fetch_add(1, Ordering::Relaxed))).expect("no NUL");
        // SAFETY: DPDK runs and the name is a C string.
        let raw = unsafe { pool_create(name.as_ptr(), count, room) };
        assert!(!raw.is_null(), "no memory for a pool");
        Self { raw }
    }

    /// How many buffers are free.
    pub(crate) fn free_count(&self) -> u32 {
        // SAFETY: the pool is valid until it is dropped.
        unsafe { pool_free_count(self.raw) }
    }

    /// A packet of these segments.
    pub(crate) fn packet(&self, segments: &[&[u8]]) -> Mbuf {
        let len = |s: &[u8]| u16::try_from(s.len()).expect("short");
        // SAFETY: the pool is valid, and so is each pointer with its length.
        unsafe {
            let packet = pool_packet(self.raw);
            assert!(!packet.is_null(), "no buffer left");
            assert_eq!(pool_write(packet, segments[0].as_ptr(), len(segments[0])), 0, "it fits");
            for segment in &segments[1..] {
                assert_eq!(pool_append(packet, self.raw, segment.as_ptr(), len(segment)), 0, "it fits");
            }
            Mbuf::from_raw(packet).expect("not null")
        }
    }

    /// Whether a packet of these segments is in one piece as far as it matters.
    pub(crate) fn packet_is_whole(&self, segments: &[&[u8]]) -> bool {
        let packet = self.packet(segments);
        let whole = packet.is_whole();
        packet.free();
        whole
    }

    /// Another packet with the same bytes, held by both.
    pub(crate) fn clone_of(&self, packet: &Mbuf) -> Mbuf {
        // SAFETY: packet and pool are valid.
        unsafe { Mbuf::from_raw(pool_clone(raw(packet), self.raw)).expect("there is a buffer") }
    }

    /// A packet whose bytes lie in a buffer of ours.
    pub(crate) fn external(&self, bytes: &[u8]) -> External {
        let buffer: Box<[Cell<u64>]> = (0..1000).map(|_| Cell::new(0)).collect();
        let freed = Box::new(Cell::new(0));
        let mut len = 8000;
        // SAFETY: the buffer is as long as told, outlives the packet, and is changed through pointers only.
        let packet = unsafe {
            let packet = pool_external(self.raw, buffer.as_ptr() as *mut u8, &raw mut len, freed.as_ptr());
            assert_eq!(pool_write(packet, bytes.as_ptr(), u16::try_from(bytes.len()).expect("short")), 0);
            Mbuf::from_raw(packet)
        };
        External { packet, freed, _buffer: buffer }
    }

    /// Adds flags to a packet, and sets the lengths of its headers.
    pub(crate) fn set_flags(&self, packet: &Mbuf, flags: u64, lengths: [u64; 3]) {
        // SAFETY: the packet is valid.
        unsafe { pool_set_flags(raw(packet), flags, lengths[0], lengths[1], lengths[2]) }
    }

    /// Sets the tags beside a packet: the inner or only one, and the outer one.
    pub(crate) fn set_tags(&self, packet: &Mbuf, [inner, outer]: [u16; 2]) {
        // SAFETY: the packet is valid.
        unsafe { pool_set_tags(raw(packet), inner, outer) }
    }
}

/// A virtual device of this process that is polled as a switch polls it.
pub(crate) struct Port(pub(crate) u16);

impl Port {
    /// Makes and sets up a device that receives into `pool`; it is not started.
    pub(crate) fn new(device: &str, arguments: &str, pool: &Pool) -> Self {
        let words = [device, arguments].map(|w| CString::new(w).expect("no NUL"));
        // SAFETY: both are C strings, and the pool outlives the device as long as the test does.
        let number = unsafe { pool_port(words[0].as_ptr(), words[1].as_ptr(), pool.raw) };
        Self(u16::try_from(number).expect("DPDK makes the device"))
    }

    /// Takes a burst.
    pub(crate) fn poll(&self) -> Vec<Mbuf> {
        let mut packets = [std::ptr::null_mut(); 32];
        // SAFETY: there is room for as many packets as told; those that come are ours.
        unsafe {
            let count = pool_poll(self.0, packets.as_mut_ptr(), 32);
            packets[..count.into()].iter().filter_map(|p| Mbuf::from_raw(*p)).collect()
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the tests free their packets before.
        unsafe { rte_mempool_free(self.raw) }
    }
}

/// A packet in a buffer of ours.
pub(crate) struct External {
    packet: Option<Mbuf>,
    freed: Box<Cell<u32>>,
    _buffer: Box<[Cell<u64>]>,
}

impl External {
    pub(crate) fn packet(&mut self) -> &mut Mbuf {
        self.packet.as_mut().expect("not taken yet")
    }

    /// Takes it apart, and checks that the buffer was let go once.
    pub(crate) fn take(mut self) -> Whole {
        let whole = Whole::of(self.packet.take().expect("not taken yet"));
        assert_eq!(self.freed.get(), 1, "the buffer is let go once");
        whole
    }
}

/// A packet taken apart, and freed.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Vec<u8>,
    pub(crate) flags: u64,
    pub(crate) offload: u64,
    pub(crate) headroom: u16,
    /// The tags beside it: the inner or only one, and the outer one.
    pub(crate) tags: [u16; 2],
}

impl Whole {
    /// Checks by DPDK's own rules that a packet is sound, reads and frees it.
    pub(crate) fn of(packet: Mbuf) -> Self {
        let len = packet.len();
        let raw = packet.into_raw();
        // SAFETY: the packet is valid and ours; the buffer is as long as told.
        unsafe {
            let fault = pool_check(raw);
            assert!(fault.is_null(), "DPDK says: {:?}", CStr::from_ptr(fault));
            assert_eq!(pool_packet_len(raw) as usize, len);
            let mut bytes = vec![0; len];
            let at = pool_read(raw, len as u32, bytes.as_mut_ptr());
            assert!(!at.is_null(), "the segments hold as much as the packet says");
            let bytes = std::slice::from_raw_parts(at, len).to_vec();
            let whole = Self {
                bytes,
                flags: pool_flags(raw),
                offload: pool_offload(raw),
                headroom: pool_headroom(raw),
                tags: [pool_tags(raw) as u16, (pool_tags(raw) >> 16) as u16],
            };
            Mbuf::from_raw(raw).expect("not null").free();
            whole
        }
    }
}

/// The pointer of a packet that stays ours.
fn raw(packet: &Mbuf) -> *mut RawMbuf {
    // SAFETY: an Mbuf is a transparent pointer; the copy is used while `packet` lives.
    unsafe { std::ptr::from_ref(packet).cast::<*mut RawMbuf>().read() }
}
